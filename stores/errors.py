"""Every exception that tfgrpo raises on purpose, in one tree, and the problems of several checks in one of them.

    TfgrpoError
    ├── ConfigError              bad input, found before any spending: exit code 2
    │   ├── SettingsError        an option, an environment variable or a pipeline key
    │   ├── PipelineError        a pipeline file
    │   ├── DatasetError         a dataset file or its lines
    │   ├── PackError            a prompt pack or instruction file: unknown, unstamped, tampered with
    │   └── EndpointError        the endpoint refuses the key, or its address is wrong, at preflight
    │       └── EndpointUnavailable  no connection, or overloaded: a run waits for it
    ├── StoreError               the disk or a record refuses
    │   ├── RecordRejected       a record that may not be stored: unstamped, over-long, malformed
    │   └── CorruptFile          a file that is not readable as its kind
    ├── ModelCallError           a model call without a usable answer
    │   ├── ModelTimeout         no answer within the time limit
    │   ├── ModelUnreachable     no connection, or it broke
    │   ├── ModelRateLimited     429 after the last retry
    │   ├── ModelServerFault     5xx after the last retry
    │   ├── ModelAuthRefused     401 or 403: never retried, ends the run
    │   ├── ModelRequestRejected any other 4xx: never retried
    │   │   └── ModelNotFound    404, or a page of HTML, before the model has answered: no run is resumed with it
    │   └── ModelReplyMalformed  a reply outside the protocol, or an empty one
    ├── ActorError               a user's actor or tool raised, or ran out of turns
    │   └── ToolUnavailable      the server of a tool cannot be started, or ended during a call
    ├── BudgetRefused            the ledger refused to reserve: the run ends with exit code 3
    ├── NothingRight             no attempt of the first batch has a reward above the lowest: exit code 3
    ├── RewardError              a rewarder raised, or returned something that is not a score
    │   ├── RewarderTimeout      a rewarder ran over its time limit: its attempt has no reward
    │   └── GraderUnavailable    a grader that no item can be sent to
    ├── OptionError              an option of a rewarder has a value that it does not accept
    ├── ShapeError               rollouts, rewards or log-probabilities that do not fit together
    ├── PowlError                a text, JSON or tree that is not a process model, with its position
    ├── SelectionFailed          no candidate of a best-of-K round is eligible
    ├── RepairExhausted          a structured answer stayed invalid; carries every attempt
    ├── PrefectUnavailable       Prefect's server does not start, or fails a run: exit code 1
    ├── ReplayMiss               a replay asked for a call that is not in the journal
    ├── FlowFailed               a flow ended as failed, with its summary
    └── RunAborted               the run stopped after spending started: exit code 1, resumable

A class exists only where a caller handles it differently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final, ParamSpec, TypeVar

from tfgrpo.stores.text import did_you_mean

_OPTION: Final = re.compile(r"(?<![\w-])--(?:set (?P<key>[\w.]+(?:=\w+)?)|(?P<name>[a-z]+(?:-[a-z]+)*))")


class TfgrpoError(Exception):
    """Base of everything raised on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of the input: its place, the value, and the accepted values."""

    source: str
    """For example ``--epochs``, ``TFGRPO_EPOCHS``, ``items.jsonl:17``, ``pipeline.yaml: tfgrpo.epochs``."""
    given: str
    """The offending value as text, shortened; never a secret."""
    accepted: str

    def renamed(self, name_of: Callable[[str, str | None], str | None]) -> Problem:
        """Return the problem with each option of the command line as another door writes it.

        ``name_of`` gets ``max-usd`` and None, or ``set`` and what follows it: ``KEY`` or ``KEY=VALUE``. Its None leaves the
        option as it is.
        """

        def other_name(option: re.Match[str]) -> str:
            return name_of("set" if option["key"] else option["name"], option["key"]) or option[0]

        # A command to type keeps its options.
        texts = (text if "tfgrpo " in text else _OPTION.sub(other_name, text) for text in (self.source, self.accepted))
        return Problem(next(texts), self.given, next(texts))

    def __str__(self) -> str:
        return f"{self.source}: got {self.given}; accepted: {self.accepted}"


class ConfigError(TfgrpoError):
    """Bad input, with every problem found.

    Examples:
        >>> try:
        ...     tfgrpo.plan("items.jsonl", epochs=1)
        ... except tfgrpo.ConfigError as error:
        ...     print([problem.accepted for problem in error.problems])
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        if not problems:
            raise ValueError("a ConfigError needs at least one problem")
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, problems)))

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
    """The model endpoint is unreachable or refuses the credential, before any spending."""


class EndpointUnavailable(EndpointError):
    """The endpoint cannot be reached, or is overloaded or starting: it may answer the same request later."""


class StoreError(TfgrpoError):
    """The disk or a record refuses."""


class RecordRejected(StoreError):
    """A record may not be stored; the file is untouched."""


class CorruptFile(StoreError):
    """A file is not readable as its kind."""


class ModelCallError(TfgrpoError):
    """A model call without a usable answer."""


class ModelTimeout(ModelCallError):
    """No answer within the time limit."""


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


class ModelNotFound(ModelRequestRejected):
    """404 or a page of HTML, before any answer: there is no such model, or the base URL is wrong."""


class ModelReplyMalformed(ModelCallError):
    """A reply outside the protocol, or an empty one."""


class ActorError(TfgrpoError):
    """A user's actor or tool raised, or ran out of turns."""


class ToolUnavailable(ActorError):
    """The server of a tool cannot be started, or ended during a call: the attempt fails."""


class BudgetRefused(TfgrpoError):
    """The ledger refused to reserve what the call may cost, or the account at the endpoint has no credit."""


class NothingRight(TfgrpoError):
    """No attempt of the first batch has a reward above the lowest: a whole run would be paid for without a chance to learn."""


class RewardError(TfgrpoError):
    """A rewarder raised, or returned something that is not a score."""


class RewarderTimeout(RewardError):
    """A rewarder ran over its time limit."""


class GraderUnavailable(RewardError):
    """A grader is unavailable: its service is down or refuses, or its calls hang. Asking item by item is no use."""


class OptionError(TfgrpoError, ValueError):
    """An option of a rewarder has a value that it does not accept: ``given``, and what is ``accepted`` instead."""

    def __init__(self, given: str, accepted: str) -> None:
        self.given, self.accepted = given, accepted
        # Both, so that it can be pickled.
        super().__init__(given, accepted)

    def __str__(self) -> str:
        return f"{self.given}; accepted: {self.accepted}"


@dataclass(frozen=True, slots=True)
class ShapeProblem:
    """One value that does not fit: its name, what was expected, what was received, and the first place of it."""

    name: str
    expected: str
    received: str
    where: str = ""

    def __str__(self) -> str:
        text = f"{self.name}: expected {self.expected}, received {self.received}"
        return f"{text}; {self.where}" if self.where else text


class ShapeError(TfgrpoError, ValueError):
    """Groups that do not fit together. Carries every problem; the first is also in the four fields."""

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
    """A text, JSON or tree that is not a process model.

    ``reason`` is one sentence. Its position: ``line`` and ``column`` (from 1) and an ``excerpt`` with a caret for text and
    for JSON that does not parse, ``pointer`` (RFC 6901) for JSON that parses; ``summary`` is both in one line.
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
        self.summary = f"{where}{reason}"
        # The one positional argument, so that it can be pickled.
        super().__init__(reason)

    def __str__(self) -> str:
        return f"{self.summary}\n{self.excerpt}" if self.excerpt else self.summary


class RepairExhausted(TfgrpoError):
    """A structured answer stayed invalid. ``attempts``: every (reply, error) pair, oldest first."""

    def __init__(self, message: str, attempts: Sequence[tuple[str, str]]) -> None:
        self.message = message
        self.attempts = tuple(attempts)
        super().__init__(message)

    def __reduce__(self) -> tuple[type[RepairExhausted], tuple[str, tuple[tuple[str, str], ...]]]:
        return type(self), (self.message, self.attempts)


class SelectionFailed(TfgrpoError):
    """No candidate of a best-of-K round is eligible."""


class PrefectUnavailable(TfgrpoError):
    """Prefect's server does not start, or fails a run; what the run has written is kept."""


class ReplayMiss(TfgrpoError):
    """A replay asked for a call that is not in the journal."""


class FlowFailed(TfgrpoError):
    """A flow ended as failed; ``summary`` is its result for machines."""

    def __init__(self, message: str, summary: Mapping[str, object] | None = None) -> None:
        # Both, so that it can be pickled.
        super().__init__(message, summary)
        self.summary = summary or {}

    def __str__(self) -> str:
        return str(self.args[0])


class RunAborted(TfgrpoError):
    """The run stopped after spending started; everything paid for is on disk."""


_KINDS: Final[Mapping[str, type[TfgrpoError]]] = {
    name: kind for name, kind in globals().items() if isinstance(kind, type) and issubclass(kind, TfgrpoError)
}


def error_kind(name: str) -> type[TfgrpoError]:
    """Return the class of a recorded failure; ``ActorError`` for a name outside the tree, which is a user's class."""
    return _KINDS.get(name, ActorError)


def error_named(name: str, reason: str) -> TfgrpoError:
    """Return a recorded failure as an error; ``ActorError`` also for classes that carry more than a text."""
    kind = error_kind(name)
    carries_more = issubclass(kind, ConfigError | OptionError | ShapeError | RepairExhausted)
    return ActorError(reason) if carries_more else kind(reason)


_MAX_PROBLEMS: Final = 50
# Most problems with equal words that are listed one by one.
_MAX_EQUAL: Final = 3
_DETAILS: Final = re.compile(r"(?:'[^']*'|\"[^\"]*\"|\d[\d.,]*)(?:, )?")
_MAX_SHOWN = 80
_PYTHON_OPTIONS: Final = {"actor": "agent", "dataset": "items", "rewarder": "rewarders"}
# Options, and keys of settings, that Python names otherwise.
_PYTHON_KEYS: Final = {"actor.kind": "agent", "actor.tools": "tools", "rewarders": "rewarders"}
_T = TypeVar("_T")
_P = ParamSpec("_P")


class ProblemCollector:
    """Runs several checks and collects the problems of all."""

    def __init__(self) -> None:
        self._errors: list[ConfigError] = []

    def run(self, check: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> list[_T]:
        """Return the check's result as the only element, or an empty list if it raised ``ConfigError``."""
        try:
            return [check(*args, **kwargs)]
        except ConfigError as error:
            self._errors.append(error)
            return []

    def refuse(self, problems: Sequence[Problem]) -> None:
        """Add problems of settings, if there are any."""
        if problems:
            self._errors.append(SettingsError(problems))

    def raise_problems(self) -> None:
        """Raise all problems as one error of the first one's class, if there are any."""
        if self._errors:
            problems = dict.fromkeys(problem for error in self._errors for problem in error.problems)
            raise type(self._errors[0])(tuple(problems)) from None


class CappedProblems:
    """The problems of one source: equal ones as one, the first fifty, and the number of all."""

    def __init__(self) -> None:
        self.total = 0
        # By the words of the problems, whatever the names and figures in them: their number, and the first ones with theirs.
        self._alike: dict[tuple[str, str], tuple[int, list[tuple[int, Problem]]]] = {}

    def add(self, problem: Problem) -> None:
        """Record a problem."""
        self.total += 1
        words = (problem.accepted, _DETAILS.sub("", problem.given))
        if words in self._alike or len(self._alike) < _MAX_PROBLEMS:
            count, first = self._alike.get(words, (0, []))
            self._alike[words] = (count + 1, first if count >= _MAX_EQUAL else [*first, (self.total, problem)])

    def raise_problems(self, error: type[ConfigError], source: str) -> None:
        """Raise the problems with one that counts the others, if there are any."""
        lines = list[tuple[int, Problem, int]]()
        for count, first in self._alike.values():
            if more := count - len(first):
                number, problem = first[0]
                differ = " (the first)" * (len({each.given for _, each in first}) > 1)
                sources = _several([each.source for _, each in first], more)
                lines.append((number, replace(problem, source=sources, given=problem.given + differ), count))
            else:
                lines += [(number, each, 1) for number, each in first]
        lines = sorted(lines, key=itemgetter(0))[:_MAX_PROBLEMS]
        problems = [problem for _, problem, _ in lines]
        if hidden := self.total - sum(count for *_, count in lines):
            problems.append(Problem(source, f"{hidden} more problems", f"{self.total} problems fewer"))
        if problems:
            raise error(problems)


def _several(sources: Sequence[str], more: int) -> str:
    """Return several sources as one: ``items.csv: lines 2, 3, 4 and 17 more``."""
    files, _, lines = zip(*(source.rpartition(":") for source in sources), strict=True)
    if len({*files}) > 1 or not files[0] or not all(map(str.isdecimal, lines)):
        return f"{', '.join(sources)} and {more:,} more"
    numbers = [*dict.fromkeys(lines)]
    return f"{files[0]}: {'lines' if len(numbers) > 1 else 'line'} {', '.join(numbers)} and {more:,} more"


def shown_value(value: object) -> str:
    """Return a value for a message: a short scalar, or the size of a list or mapping."""
    if isinstance(value, dict):
        return f"a mapping of {len(value)}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


def unknown(source: str, what: str, name: str, candidates: Iterable[str]) -> Problem:
    """Return the problem of an unknown name. Its value is not shown: it may be a misplaced secret."""
    return Problem(source, f"an unknown {what}", did_you_mean(name, candidates, listed_by="tfgrpo config"))


@contextmanager
def python_names() -> Iterator[None]:
    """Name arguments in messages as Python does, not as the command line does."""
    try:
        yield
    except ConfigError as error:
        problems = [each.renamed(_python_name) for each in error.problems]
        named = [replace(each, source=_argument(each.source) or each.source) for each in problems]
        raise type(error)(named) from error.__cause__


def _python_name(name: str, assigned: str | None) -> str:
    if assigned is None:
        return _PYTHON_OPTIONS.get(name, name.replace("-", "_"))
    key, has_value, value = assigned.partition("=")
    return _argument(key) or (f"settings={{{key!r}: {value!r}}}" if has_value else f"settings[{key!r}]")


def _argument(key: str) -> str | None:
    section = next((name for name in _PYTHON_KEYS if f"{key}.".startswith(f"{name}.")), None)
    return None if section is None else _PYTHON_KEYS[section] + key[len(section) :]
