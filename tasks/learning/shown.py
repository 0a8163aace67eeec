"""Show attempts to the reflecting model: in full where they fit, else a digest and the steps around their first difference.

What the graders said goes with each attempt; its rank does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Final, NamedTuple

from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.tasks.learning.ask import DIGEST, Spend, ask
from tfgrpo.tasks.learning.summarize import frame_label, shorten_middle
from tfgrpo.tasks.rollout import FinishedRollout
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.shapes import GroupSpec

_MAX_DIGEST_CHARS: Final = 6_000
_MAX_GRADER_CHARS: Final = 500
_AROUND: Final = 2
"""Steps before and after the first difference that are shown."""
_LEAST_CHARS: Final = 100
"""A step in fewer characters loses its end, not its middle: the mark in its place would be most of it."""


class Step(NamedTuple):
    """One call of an attempt, or its final output."""

    label: str
    text: str


async def transcripts(
    spec: GroupSpec, contrast: int, attempts: Sequence[FinishedRollout], runtime: Runtime, spend: Spend
) -> list[dict[str, str]]:
    """Return what is shown of each attempt, together within ``LearningSettings.REFLECTION_CHARS``.

    An attempt with more than its share is shortened step by step. Of the first and the last, which are contrasted, a
    digest is asked for instead, one call each, and the steps around their first difference are shown next to it.
    """
    budget = runtime.context.settings.tfgrpo.REFLECTION_CHARS
    steps = [steps_of(attempt) for attempt in attempts]
    texts = [numbered(each) for each in steps]
    share = fair_share([len("\n".join(each)) for each in texts], budget)
    shown = [{"transcript": fitted(each, share)} for each in texts]
    last = len(attempts) - 1
    around = dict(zip((0, last), first_difference(steps[0], steps[last]), strict=True))
    for number, at in around.items():
        if len("\n".join(texts[number])) <= share or spend.stopped:
            continue
        failure, payload = spend.failure, {"task": spec.item.prompt, "transcript": fitted(texts[number], budget)}
        answer = await ask(
            DIGEST, CallKey(spec.key, rollout=0, turn=2 * contrast + number, role="digest"), payload, runtime, spend
        )
        spend.failure = failure  # without a digest the shortened attempt has to do
        if answer is not None:
            digest = shorten_middle(answer.digest, min(_MAX_DIGEST_CHARS, share // 2))
            window = [text for step, text in enumerate(texts[number]) if abs(step - at) <= _AROUND] + texts[number][-1:]
            shown[number] = {"digest": digest, "transcript": fitted(list(dict.fromkeys(window)), share - len(digest))}
    return shown


def grader_words(scores: Sequence[RewardScore]) -> list[dict[str, object]]:
    """Return what each grader says of an attempt."""
    return [
        {"grader": each.rewarder_id, "score": each.score, "says": shorten_middle(each.evidence, _MAX_GRADER_CHARS)}
        for each in scores
    ]


def steps_of(attempt: FinishedRollout) -> list[Step]:
    """Return the calls of an attempt that are not its output, then the output."""
    calls = [frame for frame in attempt.frames if frame.text and frame.text != attempt.output]
    return [*(Step(frame_label(frame), frame.text) for frame in calls), Step("final", attempt.output)]


def numbered(steps: Sequence[Step]) -> list[str]:
    """Return the texts of the steps, each with its number and label; a single one is its text alone."""
    if len(steps) == 1:
        return [steps[0].text]
    return [f"[{number} {step.label}] {step.text}" for number, step in zip(count(1), steps, strict=False)]


def fair_share(lengths: Sequence[int], room: int) -> int:
    """Return the length to which texts are cut so that all fit into ``room``: short ones leave their rest to long ones."""
    left = len(lengths)
    for length in sorted(lengths):
        if length * left > room:
            return max(0, room) // left
        room -= length
        left -= 1
    return max(lengths, default=0)


def fitted(texts: Sequence[str], room: int) -> str:
    """Return texts below each other in at most ``room`` characters: each is cut to its share, and none is omitted."""
    share = max(0, fair_share([len(text) + 1 for text in texts], room + 1) - 1)
    cut = (text[:share] if share < _LEAST_CHARS else shorten_middle(text, share) for text in texts)
    return "\n".join(cut)[:room]


def first_difference(one: Sequence[Step], other: Sequence[Step]) -> tuple[int, int]:
    """Return the number, from 0, of the step at which each of two attempts first differs from the other.

    By what their tools returned; without a difference there by every step: models rarely word one alike.
    """
    for begins in ("tool ", ""):
        ones, others = (
            [at for at, step in enumerate(steps) if step.label.startswith(begins)] for steps in (one, other)
        )
        for at, against in zip(ones, others, strict=False):
            if one[at] != other[against]:
                return at, against
        if len(ones) != len(others):
            shorter = min(len(ones), len(others))
            return (*ones, len(one) - 1)[shorter], (*others, len(other) - 1)[shorter]
    return len(one) - 1, len(other) - 1
