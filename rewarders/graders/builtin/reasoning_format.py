"""Is the reasoning block well placed? Scores the tags of a completion; what stands inside them is never looked at."""

from __future__ import annotations

from dataclasses import dataclass

from tfgrpo.rewarders.graders.base import GraderInput, ItemGrader
from tfgrpo.rewarders.text.completions import CLOSE, OPEN


@dataclass(frozen=True, slots=True)
class ReasoningFormat(ItemGrader):
    """1.0 for one ``<think>…</think>`` block at the start, a new line, and a final text; less for what is amiss.

    Parts, on the stripped completion and its first open and close tag: an open tag 0.125, at the very start another
    0.125; a close tag 0.125, behind the open tag another 0.125, before it -0.125; text behind the close tag 0.5, none
    -0.25; a space or a glued character right behind the close tag -0.1; 0.15 off for each further tag. Clamped to [0, 1].
    """

    def score_one(self, item: GraderInput) -> float:
        """Reward of one item; only its completion counts."""
        text = item.completion.strip()
        opened, closed = text.find(OPEN), text.find(CLOSE)
        score = _open_tag(opened) + _close_tag(opened, closed)
        if closed >= 0:
            score += _behind(text[closed + len(CLOSE) :])
        opens, closes = text.count(OPEN), text.count(CLOSE)
        if opens > 1 or closes > 1:
            # A kind of tag that is absent counts as -1 here, which forgives one double of the other kind.
            score -= 0.15 * ((opens - 1) + (closes - 1))
        return min(1.0, max(0.0, score))


def _open_tag(opened: int) -> float:
    return 0.0 if opened < 0 else 0.125 + 0.125 * (opened == 0)


def _close_tag(opened: int, closed: int) -> float:
    if closed < 0:
        return 0.0
    if opened < 0:
        return 0.125
    return 0.25 if closed > opened else 0.0


def _behind(rest: str) -> float:
    """What follows the first close tag, to the end."""
    glued = bool(rest) and (rest[0] == " " or not rest[0].isspace())
    return (0.5 if rest.strip() else -0.25) - 0.1 * glued
