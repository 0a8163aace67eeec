"""Is the evidence of a lesson good enough to write it down? Thresholds on relative rank and reward, nothing else.

Wording, safety and duplicates are judged elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfgrpo.pipelines.settings.learning import LearningSettings
from tfgrpo.stores.experiences.record import ExperienceRecord, Polarity
from tfgrpo.tasks.shapes import Proposal


@dataclass(frozen=True, slots=True)
class LessonPolicy:
    """What the best attempt behind a lesson must have reached."""

    min_reward: float
    """To be exceeded, by lessons that say *do*; what to avoid is also learned from attempts that all failed to pay."""
    min_rank: float
    """To be reached, by every lesson."""

    @classmethod
    def of(cls, settings: LearningSettings) -> LessonPolicy:
        """The policy that the settings ask for."""
        return cls(min_reward=settings.min_reward, min_rank=settings.min_rank)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Accepted, or the reason why not."""

    accepted: bool
    reason: str = ""


def optimize_experience(lesson: Proposal | ExperienceRecord, policy: LessonPolicy) -> Verdict:
    """Hold a proposal, or a record before it is written, against the thresholds. Deletions always pass."""
    if isinstance(lesson, ExperienceRecord):
        if lesson.operation == "delete":
            return Verdict(accepted=True)
        return _judge(lesson.polarity, lesson.reward.gt_score, lesson.reward.relative_rank, policy)
    return _judge(lesson.polarity, lesson.best_reward, lesson.best_rank, policy)


def _judge(polarity: Polarity, reward: float, rank: float, policy: LessonPolicy) -> Verdict:
    if rank < policy.min_rank:
        return Verdict(accepted=False, reason=f"best attempt ranks {rank:.3g}, below {policy.min_rank:.3g}")
    if polarity == "do" and reward <= policy.min_reward:
        return Verdict(accepted=False, reason=f"best reward {reward:.3g} does not exceed {policy.min_reward:.3g}")
    return Verdict(accepted=True)
