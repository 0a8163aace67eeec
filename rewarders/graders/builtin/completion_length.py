"""Did the completion stay within its length? Compares a token count with a cap; counts no tokens itself."""

from __future__ import annotations

from dataclasses import dataclass

from tfgrpo.rewarders.graders.base import GraderInput, ItemGrader
from tfgrpo.rewarders.graders.options import above_zero, flag, number, refuse


@dataclass(frozen=True, slots=True)
class CompletionLengthCap(ItemGrader):
    """1.0 up to the cap, ``min_reward`` above it. Raises ``PipelineError`` for options without a meaning."""

    max_completion_tokens: float
    """The cap, itself still allowed; greater than 0."""
    treat_missing_as_fail: bool = True
    """Whether a completion without a token count gets ``min_reward``, else 1.0."""
    min_reward: float = 0.0
    """What a completion above the cap is worth, 0 to 1."""

    def __post_init__(self) -> None:
        refuse(
            above_zero("max_completion_tokens", self.max_completion_tokens),
            flag("treat_missing_as_fail", self.treat_missing_as_fail),
            number("min_reward", self.min_reward, least=0, most=1),
        )

    def score_one(self, item: GraderInput) -> float:
        """Reward of one item; only its ``completion_tokens`` count."""
        if item.completion_tokens is None:
            return float(self.min_reward) if self.treat_missing_as_fail else 1.0
        return 1.0 if item.completion_tokens <= self.max_completion_tokens else float(self.min_reward)
