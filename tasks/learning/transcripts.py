"""What does the reflecting model see of an attempt? Its calls in order, shortened so that both ends survive.

Outcome labels and rewards are added by reflection; nothing here says which attempt was better.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfgrpo.tasks.shapes import Frame

_LEAST_CHARS = 400


def transcript_of(frames: Sequence[Frame], output: str, max_chars: int) -> str:
    """The attempt as text of at most ``max_chars`` characters.

    An attempt that is one model call is its output alone. In longer ones the final output keeps the larger part of the
    room, because it shows what the calls came to.
    """
    steps = [frame for frame in frames if frame.text and frame.text != output]
    if not steps:
        return shorten_middle(output, max_chars)
    ending = shorten_middle(output, max(_LEAST_CHARS, max_chars // 2))
    room = max(_LEAST_CHARS, max_chars - len(ending))
    # A single huge tool result may not push out all the other steps.
    each = max(_LEAST_CHARS, room // min(len(steps), 4))
    told = "\n".join(f"[{_label(frame)}] {shorten_middle(frame.text, each)}" for frame in steps)
    return shorten_middle(f"{shorten_middle(told, room)}\n[final] {ending}", max_chars)


def shorten_middle(text: str, max_chars: int) -> str:
    """Head and tail of a text that is too long, with a mark between them that says how much is missing."""
    if len(text) <= max_chars:
        return text
    mark = f"\n[… {len(text) - max_chars} characters left out …]\n"
    room = max(0, max_chars - len(mark))
    head = room // 2
    return f"{text[:head]}{mark}{text[len(text) - (room - head) :]}"[:max_chars]


def _label(frame: Frame) -> str:
    what = "model" if frame.kind == "model" else f"{frame.kind} {frame.name}"
    return f"{what}, error" if frame.error else what
