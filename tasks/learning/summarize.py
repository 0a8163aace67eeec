"""How did an attempt go, in at most 32 words? A local digest: no model call, and no full read of a huge output.

The text is sliced before it is split into words, so 10 MB of output cost what two kilobytes cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tfgrpo.stores.counted import counted
from tfgrpo.stores.words import MAX_CHARS, MAX_WORDS, clean_text, count_words, first_words
from tfgrpo.tasks.shapes import Frame

_TAIL_CHARS = 2_000
_MAX_TOOLS_NAMED = 3


def summarize_trajectory(
    frames: Sequence[Frame], output: str = "", *, max_words: int = MAX_WORDS, max_chars: int = MAX_CHARS
) -> str:
    """Turns, tool calls and errors of an attempt, then the end of its output, within both limits.

    ``frames`` are the attempt's calls in order; without ``output`` the text of the last frame stands in. The result is
    one line without control characters.
    """
    head = _counts(frames)
    ending = _ending(output or (frames[-1].text if frames else ""))
    return _fit(f"{head} Ended: {ending}" if ending else head, max_words, max_chars)


def _counts(frames: Sequence[Frame]) -> str:
    turns = sum(frame.kind == "model" for frame in frames)
    parts = [counted(turns, "model turn")]
    tools = Counter(frame.name for frame in frames if frame.kind == "tool")
    if tools:
        named = ", ".join(f"{name} x{count}" for name, count in sorted(tools.items())[:_MAX_TOOLS_NAMED])
        parts.append(f"{counted(tools.total(), 'tool call')} ({named})")
    errors = sum(frame.error is not None for frame in frames)
    if errors:
        parts.append(counted(errors, "error"))
    return ", ".join(parts) + "."


def _ending(text: str) -> str:
    """The last line that says something; a whole last page when there are no lines."""
    tail = text[-_TAIL_CHARS:]
    for line in reversed(tail.splitlines()):
        if cleaned := clean_text(line):
            return cleaned
    return ""


def _fit(text: str, max_words: int, max_chars: int) -> str:
    """Cut at a word boundary, so that the cut text obeys both limits."""
    words = first_words(clean_text(text)[: 4 * max_chars], max_words)
    while len(words) > max_chars:
        kept = count_words(words) - 1
        words = first_words(words, kept) if kept > 0 else words[:max_chars]
    return words
