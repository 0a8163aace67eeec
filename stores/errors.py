"""Which failures exist? Every exception tfgrpo raises on purpose is in this tree, and nowhere else.

    TfgrpoError
    ├── ConfigError              bad input found before anything is spent: exit code 2
    │   ├── SettingsError        an option, an environment variable or a pipeline key
    │   ├── PipelineError        a pipeline file
    │   ├── DatasetError         a dataset file or its lines
    │   ├── PackError            a prompt pack or instruction file: unknown, unstamped, tampered
    │   └── EndpointError        the endpoint cannot be reached or refuses the key, at preflight
    ├── StoreError               the disk or a record refuses
    │   ├── RecordRejected       a record that may not be stored: unstamped, over-long, malformed
    │   └── CorruptFile          a file that cannot be read as what it claims to be
    ├── ModelCallError           a call to a model that brought no usable answer
    │   ├── ModelTimeout         nothing came within the time limit
    │   ├── ModelUnreachable     no connection, or it broke
    │   ├── ModelRateLimited     429 after the last retry
    │   ├── ModelServerFault     5xx after the last retry
    │   ├── ModelAuthRefused     401 or 403: never retried, ends the run
    │   ├── ModelRequestRejected any other 4xx: never retried
    │   └── ModelReplyMalformed  a reply that is not the protocol, or is empty
    ├── ActorError               an actor or tool of the user's raised, or ran out of turns
    ├── BudgetRefused            the ledger would not reserve: the run ends with exit code 3
    ├── RewardError              a rewarder raised, or returned what is no score
    │   ├── RewarderTimeout      a rewarder ran over its time limit: the epoch's evidence is void
    │   └── GraderUnavailable    a grader that cannot be asked at all: asking it item by item is no use
    ├── ShapeError               rollouts, rewards or log-probabilities that do not fit together
    ├── PowlError                a text, JSON or tree that is no process model; says where
    ├── SelectionFailed          no candidate of a best-of-K round can be chosen
    ├── RepairExhausted          a structured answer stayed invalid; carries every attempt
    ├── PrefectUnavailable       Prefect's server does not start, or fails a run: exit code 1
    ├── ReplayMiss               a replay asked for a call that the journal does not hold
    ├── FlowFailed               a flow ended as failed, with its summary
    └── RunAborted               the run cannot go on after spending began: exit code 1, resumable

A class exists only where a caller handles it differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final


class TfgrpoError(Exception):
    """Base of everything raised on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the input: where it stands, what was given, what is accepted."""

    source: str
    """Where it came from: ``--epochs``, ``TFGRPO_EPOCHS``, ``items.jsonl:17``, ``pipeline.yaml: tfgrpo.epochs``."""
    given: str
    """The offending value as text, shortened; never a secret."""
    accepted: str
    """What would have been accepted, as a phrase."""

    def __str__(self) -> str:
        return f"{self.source}: got {self.given}; accepted: {self.accepted}"


class ConfigError(TfgrpoError):
    """Bad input. Carries every problem found, so that one run of the command shows them all."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        if not problems:
            raise ValueError("a ConfigError needs at least one problem")
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def one(cls, source: str, given: str, accepted: str) -> ConfigError:
        """Build the error for a single problem."""
        return cls([Problem(source, given, accepted)])

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class SettingsError(ConfigError):
    """An option, an environment variable or a pipeline key has no usable value."""


class PipelineError(ConfigError):
    """A pipeline file cannot be read or names something unknown."""


class DatasetError(ConfigError):
    """A dataset file is missing, unreadable, or has bad lines."""


class PackError(ConfigError):
    """A prompt pack or instruction file is unknown, unstamped or tampered with."""


class EndpointError(ConfigError):
    """The model endpoint cannot be reached, or refuses the credential, before spending began."""


class StoreError(TfgrpoError):
    """The disk or a record refuses."""


class RecordRejected(StoreError):
    """A record may not be stored; the file is untouched."""


class CorruptFile(StoreError):
    """A file cannot be read as what it claims to be."""


class ModelCallError(TfgrpoError):
    """A call to a model brought no usable answer."""


class ModelTimeout(ModelCallError):
    """Nothing came within the time limit."""


class ModelUnreachable(ModelCallError):
    """No connection, or it broke before the reply was complete."""


class ModelRateLimited(ModelCallError):
    """Still 429 after the last retry."""


class ModelServerFault(ModelCallError):
    """Still 5xx after the last retry."""


class ModelAuthRefused(ModelCallError):
    """401 or 403. Retrying cannot help; the run ends."""


class ModelRequestRejected(ModelCallError):
    """Any other 4xx: this request will never be accepted."""


class ModelReplyMalformed(ModelCallError):
    """A reply that is not the protocol, or that is empty."""


class ActorError(TfgrpoError):
    """An actor or tool of the user's raised, or ran out of turns."""


class BudgetRefused(TfgrpoError):
    """The ledger would not reserve what the call may cost, or the account at the endpoint has nothing left."""


class RewardError(TfgrpoError):
    """A rewarder raised, or returned something that is no score."""


class RewarderTimeout(RewardError):
    """A rewarder ran over its time limit."""


class GraderUnavailable(RewardError):
    """A grader cannot be asked at all: its service is down or refuses, or its calls hang."""


@dataclass(frozen=True, slots=True)
class ShapeProblem:
    """One thing that does not fit: what it is called, what was expected, what was received, and where."""

    name: str
    """``rewards``, ``action_groups``, ``group_size`` …"""
    expected: str
    received: str
    where: str = ""
    """The first place, and how many more there are; empty when there is only one."""

    def __str__(self) -> str:
        text = f"{self.name}: expected {self.expected}, received {self.received}"
        return f"{text}; {self.where}" if self.where else text


class ShapeError(TfgrpoError, ValueError):
    """Groups as data do not fit together. Carries every problem; the first one is also in the four fields."""

    def __init__(self, problems: Sequence[ShapeProblem]) -> None:
        if not problems:
            raise ValueError("a ShapeError needs at least one problem")
        self.problems = tuple(problems)
        first = self.problems[0]
        self.name, self.expected, self.received, self.where = first.name, first.expected, first.received, first.where
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def one(cls, name: str, expected: str, received: str, where: str = "") -> ShapeError:
        """Build the error for a single problem."""
        return cls([ShapeProblem(name, expected, received, where)])

    def __reduce__(self) -> tuple[type[ShapeError], tuple[tuple[ShapeProblem, ...]]]:
        return type(self), (self.problems,)


class PowlError(TfgrpoError):
    """A text, JSON or tree that is no process model.

    ``reason`` says what is wrong in one sentence. Where it is wrong: ``line`` and ``column`` (from 1) and an ``excerpt``
    with a caret for text and for JSON that does not parse; ``pointer`` (RFC 6901) for JSON that parses and is no model.
    ``str`` of it has all of that, ready for a person or for a model that is asked to repair its answer.
    """

    def __init__(
        self,
        reason: str,
        *,
        line: int | None = None,
        column: int | None = None,
        excerpt: str | None = None,
        pointer: str | None = None,
    ) -> None:
        self.reason = reason
        self.line, self.column, self.excerpt = line, column, excerpt
        self.pointer = pointer
        where = f"line {line}, column {column}: " if line is not None else ""
        if pointer is not None:
            where += f"at {pointer or 'the root'}: "
        super().__init__(f"{where}{reason}" + (f"\n{excerpt}" if excerpt else ""))

    def __reduce__(self) -> tuple[Callable[..., PowlError], tuple[object, ...]]:
        return _powl_error, (self.reason, self.line, self.column, self.excerpt, self.pointer)


def _powl_error(
    reason: str, line: int | None, column: int | None, excerpt: str | None, pointer: str | None
) -> PowlError:
    return PowlError(reason, line=line, column=column, excerpt=excerpt, pointer=pointer)


class RepairExhausted(TfgrpoError):
    """A structured answer stayed invalid. ``attempts`` holds every (reply, error) pair, oldest first."""

    def __init__(self, message: str, attempts: Sequence[tuple[str, str]]) -> None:
        self.message = message
        self.attempts = tuple(attempts)
        super().__init__(message)

    def __reduce__(self) -> tuple[type[RepairExhausted], tuple[str, tuple[tuple[str, str], ...]]]:
        return type(self), (self.message, self.attempts)


class SelectionFailed(TfgrpoError):
    """No candidate of a best-of-K round can be chosen."""


class PrefectUnavailable(TfgrpoError):
    """Prefect's server does not start, or fails a run; what the run has written is kept."""


class ReplayMiss(TfgrpoError):
    """A replay asked for a call that the journal does not hold."""


class FlowFailed(TfgrpoError):
    """A flow of ours ended as a failure. What it came to, for machines, is its ``summary``."""

    def __init__(self, message: str, summary: Mapping[str, object] | None = None) -> None:
        super().__init__(message, summary)  # both, so that it can be pickled
        self.summary = summary or {}

    def __str__(self) -> str:
        return str(self.args[0])


class RunAborted(TfgrpoError):
    """The run cannot go on after spending began; everything paid for is on disk."""


_KINDS: Final[Mapping[str, type[TfgrpoError]]] = {
    name: kind for name, kind in globals().items() if isinstance(kind, type) and issubclass(kind, TfgrpoError)
}


def error_kind(name: str) -> type[TfgrpoError]:
    """What a recorded failure of this name was. ``ActorError`` for a name that is not in the tree: it is a user's own."""
    return _KINDS.get(name, ActorError)


def error_named(name: str, reason: str) -> TfgrpoError:
    """A recorded failure as the error it was; ``ActorError`` also for classes that carry more than a text."""
    kind = error_kind(name)
    return ActorError(reason) if issubclass(kind, ConfigError | ShapeError | RepairExhausted) else kind(reason)
