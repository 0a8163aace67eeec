"""Scorers of the tool calls, the cost, the time and the tokens of an attempt; what is not known of it is ungraded, never 0."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.options import FiniteNumber, Flag, Options, accepts
from tfgrpo.rewarders.scorer import GraderInput, ItemScorer, column, field_of, references
from tfgrpo.stores.errors import PipelineError, RewardError
from tfgrpo.stores.json_values import canonical_json, json_of, mapping_of
from tfgrpo.stores.numeric import is_cost
from tfgrpo.stores.outcomes import RewardScore

MatchMode: TypeAlias = Literal["exact", "any_order", "subset"]
# As OpenAI, LangChain, Anthropic, Llama, tau-bench and agents that write actions call them
_ARGUMENTS: Final = ("arguments", "args", "input", "parameters", "kwargs", "params", "tool_input", "action_input")
# What the interfaces of models refuse in the name of a tool: ``math.hypot`` is called as ``math_hypot``
_UNSENT: Final = re.compile(r"[^A-Za-z0-9_-]")


class _Call(NamedTuple):
    name: str
    # Canonical JSON; None: unknown, or of a reference, any
    arguments: str | None

    def fits(self, made: _Call) -> bool:
        if self.name != made.name or self.arguments is None:
            return self.name == made.name
        if made.arguments is None:
            raise RewardError(f"the arguments of the calls of {made.name} are not known")
        return self.arguments == made.arguments

    def __str__(self) -> str:
        return f"{self.name}({self.arguments or '…'})"[:200]


@dataclass(frozen=True, slots=True)
class ToolCalls(Options, ItemScorer):
    """Share of the tool calls that are as those of the reference, by name and arguments.

    The reference is ``tool_calls`` of the metadata, else the record's ``answer``: a list of ``name`` and ``arguments``, in
    which a call without ``arguments`` fits any, and an empty list means that no tool is to be called.
    """

    mode: Annotated[MatchMode, accepts("exact, any_order, subset")] = "exact"
    """``exact``: these calls in this order; ``any_order``: these calls; ``subset``: these calls, and others may be made too."""
    all: Flag = False
    """1.0 for the calls of the reference and no others, else 0.0."""

    def score_one(self, item: GraderInput) -> RewardScore:
        made = item.attempt.get("tool_calls")
        if made is None:
            raise RewardError("the tool calls of the attempt are not known")
        calls = _calls(made)
        return max((self._compared(each, calls) for each in self.wanted(item)), key=lambda each: each.score)

    def wanted(self, item: GraderInput) -> list[list[_Call]]:
        own = column(item, "tool_calls")
        own = [] if own is None and field_of(item, "answer") == [] else own
        answers = references(item) if own is None else [own]
        whole = all(isinstance(each, dict) for each in answers)  # a list of calls, rather than of several references
        return [_calls(each, are_wanted=True) for each in ([answers] if whole else answers)]

    def _compared(self, wanted: Sequence[_Call], made: Sequence[_Call]) -> RewardScore:
        names = [{each.name for each in calls} for calls in (wanted, made)]
        # Unless names of one side would then be the same.
        if all(len({_UNSENT.sub("_", each) for each in own}) == len(own) for own in names):
            wanted, made = ([each._replace(name=_UNSENT.sub("_", each.name)) for each in calls] for calls in (wanted, made))
        pairs: dict[int, int] = {}
        if self.mode == "exact":
            pairs = {at: at for at, (one, other) in enumerate(zip(wanted, made, strict=False)) if one.fits(other)}
        else:
            left = list(range(len(made)))
            # What names its arguments is paired first, so that nothing else takes its call.
            for at in sorted(range(len(wanted)), key=lambda at: wanted[at].arguments is None):
                match = next((other for other in left if wanted[at].fits(made[other])), None)
                if match is not None:
                    left.remove(match)
                    pairs[at] = match
        whole = len(wanted) if self.mode == "subset" else max(len(wanted), len(made))
        share = len(pairs) / whole if whole else 1.0
        missing = [str(each) for at, each in enumerate(wanted) if at not in pairs]
        others = [str(each) for at, each in enumerate(made) if at not in pairs.values() and self.mode != "subset"]
        lists = (("; missing: ", missing), ("; not in the reference: ", others))
        faults = "".join(what + ", ".join(calls) for what, calls in lists if calls)
        score = float(share == 1.0) if self.all else share
        return RewardScore("", score, f"{len(pairs)} of {len(wanted)} calls of the reference{faults[:1_000]}")


def _calls(value: Any, *, are_wanted: bool = False) -> list[_Call]:
    # In the common spellings: arguments, as text or object, within ``function`` or next to the name.
    read = json_of(value) if isinstance(value, str) else value
    calls = [read] if isinstance(read, dict) else read
    if not isinstance(calls, list | tuple):
        raise RewardError(f"{value!r:.100} is not a list of objects with name and arguments")
    named = []
    for each in calls:
        outer = mapping_of(each)
        fields = {**outer, "function": None, **mapping_of(outer.get("function"))}
        name, arguments = fields.get("name"), next((fields[key] for key in _ARGUMENTS if key in fields), None)
        if not isinstance(name, str):
            raise RewardError(f"{each!r:.100} is no object with name and arguments")
        # In a call of a reference without arguments, another object may be these.
        if are_wanted and arguments is None and any(isinstance(other, dict) for other in fields.values()):
            raise RewardError(f"{each!r:.100} has its arguments under no known name: {', '.join(_ARGUMENTS)}")
        if isinstance(arguments, str):
            read = json_of(arguments or "{}")
            arguments = arguments if read is None else read
        named.append(_Call(name, None if arguments is None else canonical_json(_with_whole_numbers(arguments))))
    return named


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [*map(_with_whole_numbers, value)]
    if isinstance(value, dict):
        return {key: _with_whole_numbers(each) for key, each in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


@dataclass(frozen=True, slots=True)
class _Linear(Options, ItemScorer):
    """1.0 at ``best`` and beyond, 0.0 at ``worst`` and beyond, linear between. Raises ``RewardError`` for an unknown figure."""

    worst: Annotated[FiniteNumber, accepts("a finite number")]
    best: Annotated[FiniteNumber, accepts("a finite number")] = 0.0

    figure: ClassVar[str]
    unit: ClassVar[str]

    def __post_init__(self) -> None:
        if self.best == self.worst:
            raise PipelineError.one("best", repr(self.best), "another number than worst")

    def score_one(self, item: GraderInput) -> RewardScore:
        value: Any = {"completion_tokens": item.completion_tokens, **item.attempt}.get(self.figure)
        if not is_cost(value):
            raise RewardError(f"the {self.figure} of the attempt is not known")
        share = (self.worst - value) / (self.worst - self.best)
        evidence = f"{value:.6g} {self.unit}, between {self.best:g} (1.0) and {self.worst:g} (0.0)"
        return RewardScore("", min(1.0, max(0.0, share)), evidence)


@dataclass(frozen=True, slots=True)
class Cost(_Linear):
    """Score by the cost of the attempt's model calls in USD."""

    figure: ClassVar[str] = "cost_usd"
    unit: ClassVar[str] = "USD"


@dataclass(frozen=True, slots=True)
class Latency(_Linear):
    """Score by the seconds that the attempt's calls took, of models and of tools; of an agent of your own, by those of all."""

    figure: ClassVar[str] = "latency_s"
    unit: ClassVar[str] = "s"


@dataclass(frozen=True, slots=True)
class Tokens(_Linear):
    """Score by the completion tokens of the attempt."""

    figure: ClassVar[str] = "completion_tokens"
    unit: ClassVar[str] = "tokens"
