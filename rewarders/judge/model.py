"""Protocol between judges and the language model that they call; a higher floor implements it.

The implementation is responsible for ledger, journal, rate limits and seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from tfgrpo.rewarders.judge.options import JudgeOptions

Speaker: TypeAlias = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class JudgeQuestion:
    """One call to a model of the run: a question to one that judges, or texts for one that embeds."""

    messages: tuple[tuple[Speaker, str], ...]
    schema_name: str = ""
    schema: Mapping[str, Any] | None = None
    """JSON schema of the answer, for endpoints that enforce one."""
    rollout: int = 0
    """Index of the judged attempt; of a pair, the lower index."""
    turn: int = 0
    """Number of the question about one attempt: votes, opponents, orders. Part of the call's name and of its seed."""
    attempt: int = 0
    """Number of earlier calls with an unusable answer."""
    temperature: float = 0.3
    max_tokens: int | None = None
    """Longest reply. None: as the run's other calls."""
    model: str | None = None
    """None: the model that reflects."""
    embeds: bool = False
    """The reply is a JSON list with the vector of each message's text."""


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """The reply as text."""

    text: str
    cut_off: bool = False
    """The reply reached the limit of tokens and is incomplete."""
    tokens: int | None = None
    """Prompt and completion; None when unknown."""
    cost_usd: float | None = None
    """None: unknown."""
    model: str = ""
    """Model that replied."""


class JudgeModel(Protocol):
    """Answers questions of judges, within one group of one run."""

    async def ask(self, question: JudgeQuestion, timeout_s: float | None = None) -> JudgeReply:
        """Answer. The same question of the same run is paid for once.

        Raises ``ModelCallError`` when there is no answer, such as ``ModelTimeout`` after ``timeout_s``; the vote is lost.
        Any other error (``BudgetRefused``, a refused key) ends the run, and passes through.
        """
        ...


@dataclass(frozen=True, slots=True)
class JudgeLoad:
    """Questions to a judge for one group, for the forecast."""

    options: JudgeOptions
    instructions: str
    """Text in every call."""
    shown: int
    """Attempts shown in one call."""
    calls_low: int
    """When all attempts of the group are equal and every answer is usable."""
    questions: int
    """When all attempts differ."""

    @property
    def calls_high(self) -> int:
        """Calls when every question is repeated as often as allowed; a repetition carries the earlier answers."""
        return self.questions * (1 + self.options.retries)
