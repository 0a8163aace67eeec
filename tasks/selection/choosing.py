"""Choose the candidate with the highest reward, the first among equals, if enough candidates are usable.

Within a group the advantage rises with the reward, so that choosing by either is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.selection.shapes import (
    Candidate,
    Choice,
    Chosen,
    Grade,
    LostCandidate,
    NotChosen,
    SelectionSpec,
    lost_and_flawed,
)


def usable_candidates(spec: SelectionSpec, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return the candidates to grade: the valid ones, or, for best effort without any, all that have an answer."""
    valid = tuple(candidate for candidate in candidates if candidate.valid)
    if valid or spec.none_valid == "raise":
        return valid
    return tuple(candidate for candidate in candidates if candidate.text.strip())


def choose(spec: SelectionSpec, candidates: Sequence[Candidate], grades: Mapping[int, Grade]) -> Choice:
    """Choose one of ``usable_candidates``, or return the reason why none may be chosen."""
    usable = usable_candidates(spec, candidates)
    valid = [candidate for candidate in usable if candidate.valid]
    if not usable or (len(valid) < spec.min_success and spec.none_valid == "raise"):
        return _too_few(spec, candidates, len(valid))
    rewards = {
        candidate.index: grade.reward
        for candidate in usable
        if (grade := grades.get(candidate.index)) is not None and grade.reward is not None
    }
    short = _short_of(spec, candidates, len(valid))
    if rewards:
        return _highest(rewards, short)
    reasons = dict.fromkeys(grades[candidate.index].reason for candidate in usable if candidate.index in grades)
    why = f"none of the {pluralize(len(usable), 'usable candidate')} could be graded: {'; '.join(reasons)}"
    if spec.none_valid == "raise":
        return NotChosen(why)
    return Chosen(usable[0].index, f"best effort, the first that can be used: {why}")


def _highest(rewards: Mapping[int, float], short: str) -> Chosen:
    index = max(rewards, key=lambda each: rewards[each])  # the first among equals
    equals = sum(reward == rewards[index] for reward in rewards.values())
    tie = f", the first of {equals} that have it" if equals > 1 else ""
    graded = pluralize(len(rewards), "graded candidate")
    return Chosen(index, f"{short}highest reward of {graded}, {rewards[index]:.4g}{tie}")


def _short_of(spec: SelectionSpec, candidates: Sequence[Candidate], valid: int) -> str:
    if valid >= spec.min_success:
        return ""
    return f"best effort, {valid} of {pluralize(len(candidates), 'candidate')} valid ({lost_and_flawed(tuple(candidates))}): "


def _too_few(spec: SelectionSpec, candidates: Sequence[Candidate], valid: int) -> NotChosen:
    needed = f", {spec.min_success} needed" if spec.min_success > 1 else ""
    why = f"{valid or 'none'} of {pluralize(len(candidates), 'candidate')} valid{needed}: {lost_and_flawed(tuple(candidates))}"
    lost = [candidate.outcome for candidate in candidates if isinstance(candidate.outcome, LostCandidate)]
    return NotChosen(why, over_budget=any(outcome.name == "refused" for outcome in lost))
