"""Shorten an attempt for its readers: a 32-word summary, a text without its middle. No model is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tfgrpo.stores.text import MAX_CHARS, MAX_WORDS, clean_text, count_words, first_words, pluralize
from tfgrpo.tasks.shapes import Frame

_TAIL_CHARS = 2_000
_MAX_TOOLS_NAMED = 3


def summarize_trajectory(frames: Sequence[Frame], output: str = "", *, max_words: int = MAX_WORDS) -> str:
    """Return turns, tool calls and errors of an attempt, then the end of its output, in one line within both limits.

    ``frames`` are the attempt's calls in order; without ``output`` the text of the last frame is used.
    """
    head = _counts(frames)
    ending = _last_line(output or (frames[-1].text if frames else ""))
    return _fit(f"{head} Ended: {ending}" if ending else head, max_words)


def shorten_middle(text: str, max_chars: int) -> str:
    """Return head and tail of a text that is too long, with a mark between them that states how much is missing."""
    if len(text) <= max_chars:
        return text
    mark = f"\n[… {len(text) - max_chars} characters left out …]\n"
    room = max(0, max_chars - len(mark))
    head = room // 2
    return f"{text[:head]}{mark}{text[len(text) - (room - head) :]}"[:max_chars]


def _counts(frames: Sequence[Frame]) -> str:
    counts = [pluralize(sum(frame.kind == "model" for frame in frames), "model turn")]
    tools = Counter(frame.name for frame in frames if frame.kind == "tool")
    if tools:
        named = ", ".join(f"{name} x{count}" for name, count in sorted(tools.items())[:_MAX_TOOLS_NAMED])
        counts.append(f"{pluralize(tools.total(), 'tool call')} ({named})")
    if errors := sum(frame.error is not None for frame in frames):
        counts.append(pluralize(errors, "error"))
    return ", ".join(counts) + "."


def _last_line(text: str) -> str:
    """The last line that is not blank. Sliced before it is split: 10 MB of output cost what 2 kB cost."""
    lines = map(clean_text, reversed(text[-_TAIL_CHARS:].splitlines()))
    return next(filter(None, lines), "")


def _fit(text: str, max_words: int) -> str:
    """Cut at a word boundary, within both limits."""
    words = first_words(clean_text(text)[: 4 * MAX_CHARS], max_words)
    while len(words) > MAX_CHARS:
        kept = count_words(words) - 1
        words = first_words(words, kept) if kept > 0 else words[:MAX_CHARS]
    return words


def frame_label(frame: Frame) -> str:
    """Return who made a call, and whether it failed."""
    caller = "model" if frame.kind == "model" else f"{frame.kind} {frame.name}"
    return f"{caller}, error" if frame.error else caller
