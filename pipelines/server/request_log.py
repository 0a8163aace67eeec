"""What does ``--verbose`` say of each request? Lines for people; a reply never depends on whether they are said.

Completions are anybody's text: each of their lines is marked, so that none of them can pass for one of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from tfgrpo.pipelines.server.shapes import GradeItem
from tfgrpo.rewarders.graders.combine import ItemGrade

Say: TypeAlias = Callable[[str], None]
"""Takes whole lines and does not raise."""
NAME = "[dataserver]"


def sample_line(iteration: int, batch_size: int, stage: str) -> str:
    """One request for samples."""
    return f"{NAME} /sample iteration={iteration} batch_size={batch_size} stage={stage}"


def grade_lines(iteration: int, items: Sequence[GradeItem], grades: Sequence[ItemGrade]) -> Iterator[str]:
    """One request to grade: figures, a line for each item, and the best and the worst completion in full.

    The figures are those of the items that have a reward.
    """
    head = f"{NAME} iteration={iteration} graded"
    if not items:
        yield f"{head} 0 completions."
        return
    scored = [(grade.reward, item) for item, grade in zip(items, grades, strict=True) if grade.reward is not None]
    rewards = [reward for reward, _ in scored]
    lost = len(items) - len(rewards)
    figures = "no rewards"
    if rewards:
        mean = sum(reward / len(rewards) for reward in rewards)
        figures = f"avg={mean:.3f} min={min(rewards):.3f} max={max(rewards):.3f}"
    yield f"{head} {len(items)} | {figures}{f' ungraded={lost}' if lost else ''}"
    yield from (f"  {_named(item)} {_grade_text(grade)}" for item, grade in zip(items, grades, strict=True))
    if scored:
        yield from _block("BEST", *max(scored, key=lambda one: one[0]))
        yield from _block("WORST", *min(scored, key=lambda one: one[0]))


def _named(item: GradeItem) -> str:
    return item.sample_id if item.completion_index is None else f"{item.sample_id} #{item.completion_index}"


def _grade_text(grade: ItemGrade) -> str:
    if grade.reward is None:
        return f"ungraded: {reasons(grade)}"
    parts = " ".join(f"{name}={reward:.3f}" for name, reward in grade.parts.items())
    return f"reward={grade.reward:.3f} {parts}".rstrip()


def reasons(grade: ItemGrade) -> str:
    """Why an item has no reward."""
    return grade.reasons or "the reward is no finite number"


def _block(title: str, reward: float, item: GradeItem) -> Iterator[str]:
    yield f"{NAME} {title} reward={reward:.3f} {_named(item)}"
    yield from (f"  | {line}" for line in item.completion.splitlines() or [""])
