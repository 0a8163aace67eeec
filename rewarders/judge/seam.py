"""What does a judge need of a language model? One question, one reply, one protocol; the higher floor implements it.

Whoever implements it sees to ledger, journal, limiter and seeds. Nothing here opens a connection or knows a vendor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

Speaker: TypeAlias = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class JudgeQuestion:
    """One call to the judging model."""

    messages: tuple[tuple[Speaker, str], ...]
    schema_name: str
    schema: Mapping[str, Any]
    """JSON schema that the answer should follow, where the endpoint can be held to one."""
    rollout: int
    """Index of the attempt in question; of a pair, of the one with the lower index."""
    turn: int
    """Tells apart what is asked of one attempt: votes, opponents, orders. Part of the call's name and of its seed."""
    attempt: int = 0
    """How often the same was asked before, because the answer could not be used."""
    temperature: float = 0.3
    max_tokens: int | None = None
    """Longest reply. None: as the run's other calls."""
    model: str | None = None
    """None: the model that reflects."""


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """What came back, as text."""

    text: str
    cut_off: bool = False
    """It reached the limit of tokens: what stands at its end is not its end."""
    tokens: int | None = None
    """Prompt and completion; None when the endpoint did not say."""
    cost_usd: float | None = None
    """None: unknown."""
    model: str = ""
    """Who answered."""


class JudgeModel(Protocol):
    """Answers questions of judges, within one group of one run."""

    async def ask(self, question: JudgeQuestion, timeout_s: float | None = None) -> JudgeReply:
        """Answer. The same question of the same run is paid for once.

        Raises ``ModelCallError`` when no answer was to be had, ``ModelTimeout`` after ``timeout_s`` among them; that
        judgement is lost. Whatever else it raises (``BudgetRefused``, a refused key) ends the run, and passes through.
        """
        ...


@dataclass(frozen=True, slots=True)
class JudgeLoad:
    """What a judge asks of one group, for the forecast."""

    model: str | None
    """None: the model that reflects."""
    calls_low: int
    """When all attempts of the group are the same and every answer can be used."""
    calls_high: int
    """When all differ and every question is repeated as often as allowed."""
    instructions: str
    """Text that every call carries."""
    shown: int
    """Attempts shown in one call."""
    max_chars: int
    """Longest part of an attempt that is shown."""
    max_tokens: int | None
    """Longest reply. None: as the run's other calls."""
    retries: int = 0
    """A repetition carries the answers before it."""


@runtime_checkable
class AsksModel(Protocol):
    """A rewarder that asks a model, and can say how much."""

    def judge_loads(self, group_size: int) -> Sequence[JudgeLoad]:
        """What one group of this size takes; one entry for each judge."""
        ...


def judge_loads(rewarder: object, group_size: int) -> Sequence[JudgeLoad]:
    """What a rewarder asks of a model for one group, as far as it says so; nothing when it asks none."""
    return rewarder.judge_loads(group_size) if isinstance(rewarder, AsksModel) else ()
