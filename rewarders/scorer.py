"""Scorers: what they look at, what they return, and how one is described.

A **scorer** gives each attempt a finite number, or says why it has none. Its *scope* is what one call looks at: one attempt
(``item``), many independent ones (``batch``), or the attempts of one item together (``group``). Its *place* is where it runs:
``inline`` on the event loop, in a ``thread``, in a worker ``process``, or as a coroutine of the run's event ``loop``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, TypeAlias, runtime_checkable

from tfgrpo.rewarders.text.answers import without_reasoning
from tfgrpo.stores.errors import OptionError, RewardError
from tfgrpo.stores.json_values import json_of
from tfgrpo.stores.numeric import is_number
from tfgrpo.stores.outcomes import RewardScore

if TYPE_CHECKING:
    from tfgrpo.rewarders.composite import AnyScorer
    from tfgrpo.rewarders.judge.model import JudgeLoad, JudgeModel
    from tfgrpo.stores.experiences.store import ExperienceRecord


Scope: TypeAlias = Literal["item", "batch", "group"]
ScoringPlace: TypeAlias = Literal["inline", "thread", "process", "loop"]
Parse: TypeAlias = Literal["auto", "think"]
Range: TypeAlias = tuple[float, float]
UNIT: Final[Range] = (0.0, 1.0)
NO_REFERENCE: Final = "the item has no reference answer"
ACCEPTED_RANGE: Final = "two finite numbers, the lower one first"

OPEN: Final = "<think>"
CLOSE: Final = "</think>"


def parse_completion(text: str, parse: Parse = "think") -> tuple[str | None, str | None]:
    """Return reasoning and answer, split at the first ``<think>`` and the first ``</think>``; None when empty or absent.

    The tags are literal: no attributes, no other case. Without both, or with the first close before the first open, there
    is neither reasoning nor answer. Text before the block is ignored, and later tags belong to the answer.
    Under ``auto`` a text without an opening tag is cut at its first closing one, or is an answer as a whole.
    """
    opened, closed = text.find(OPEN), text.find(CLOSE)
    if parse == "auto" and opened < 0:
        reasoning, _, answer = text.partition(CLOSE) if closed >= 0 else ("", "", text)
    elif opened < 0 or closed < opened:
        return None, None
    else:
        reasoning, answer = text[opened + len(OPEN) : closed], text[closed + len(CLOSE) :]
    return reasoning.strip() or None, answer.strip() or None


@dataclass(frozen=True, slots=True)
class GraderInput:
    """One completion and the record of the sample that it was generated for: what scorers of single attempts see."""

    sample_id: str
    record: Mapping[str, Any]
    """The whole record of the dataset, unknown keys included. A malformed one may be any JSON value."""
    completion: str
    """As generated, not stripped."""
    reasoning: str | None
    answer: str | None
    """Final answer after the reasoning block; None when the completion has no such block or no text after it."""
    completion_tokens: int | None = None
    completion_index: int | None = None
    """Index of the completion in the batch, if the caller sets it; returned with the result."""
    attempt: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        sample_id: str,
        record: Mapping[str, Any],
        completion: str,
        completion_tokens: int | None = None,
        completion_index: int | None = None,
    ) -> GraderInput:
        """Return the input for a completion, split into reasoning and answer."""
        return cls(sample_id, record, completion, *parse_completion(completion), completion_tokens, completion_index)


def field_of(item: GraderInput, name: str) -> Any:
    """Return a field of the record; None when it is absent, or when the record is no object."""
    return item.record.get(name) if isinstance(item.record, Mapping) else None


def references(item: GraderInput) -> list[Any]:
    """Return the accepted answers of the record: those of a list, or the one."""
    answer = field_of(item, "answer")
    return (list(answer) or [None]) if isinstance(answer, list | tuple) else [answer]


def answer_text(answer: object) -> str:
    """Return an accepted answer as text; empty for none."""
    if isinstance(answer, bool):
        return str(answer).lower()
    try:
        return "" if answer is None else str(answer)
    except (ValueError, RecursionError):  # an integer of thousands of digits, extreme nesting
        return ""


@dataclass(slots=True)
class GradeResult:
    """The reward of one item. Mutable: grader files of the existing system change the rewards that they made."""

    sample_id: str
    reward: float
    completion_index: int | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One finished attempt as scorers of groups see it."""

    rollout_id: str
    index: int
    output: str
    tokens: int | None
    """Completion tokens, None when unknown; the cheaper of equal attempts ranks first."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """How it was made, where known: ``tool_calls`` (``name`` and ``arguments`` as JSON text), ``cost_usd``, ``latency_s``."""


@dataclass(frozen=True, slots=True)
class RewardContext:
    """The attempts of one item, with all that a scorer may compare them with (requirement 34)."""

    fixture_path: str
    """Dataset file and item id of the reference, as ``path#id``."""
    item_id: str
    prompt: str
    answer: str
    """Reference answer of the item, the first of several; empty when the item has none."""
    outputs: tuple[Attempt, ...]
    alternatives: tuple[str, ...] = ()
    experiences: tuple[ExperienceRecord, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    prior_scores: Mapping[str, float] = field(default_factory=dict)
    """Weighted totals so far by rollout id, which ``relative`` ranks."""
    judge: JudgeModel | None = field(default=None, compare=False, repr=False)
    time_limit_s: float | None = None
    record: Mapping[str, Any] | None = None
    """The whole record of a data mix; None: one is made of prompt, answer and metadata."""
    parse: Parse = "auto"
    completion_indices: tuple[int | None, ...] = ()
    """What a client called each completion; none: their indices."""
    failures: Mapping[str, Mapping[str, Abstained]] = field(default_factory=dict)
    """Scorers that failed when an attempt was first scored, by rollout id: their verdicts stay."""

    def inputs(self) -> list[GraderInput]:
        """Return each attempt as scorers of single attempts see it."""
        record: Mapping[str, Any] | None = self.record
        if record is None:
            answer = [self.answer, *self.alternatives] if self.alternatives else self.answer or None
            record = {"prompt": self.prompt, "answer": answer, "metadata": dict(self.metadata)}
        indices = self.completion_indices or tuple(attempt.index for attempt in self.outputs)
        return [
            GraderInput(
                self.item_id, record, each.output, *parse_completion(each.output, self.parse), each.tokens, index, each.metadata
            )
            for each, index in zip(self.outputs, indices, strict=True)
        ]


def reference_text(answer: str, alternatives: Sequence[str]) -> str:
    """Return the reference answers as a model is shown them."""
    return f"{answer}\nalso accepted: {'; '.join(alternatives)}" if alternatives else answer


@dataclass(frozen=True, slots=True)
class Abstained:
    """The scorer has no score; the rollout becomes ``ungraded``."""

    rewarder_id: str
    reason: str
    broke: bool = False
    """The scorer failed, rather than the attempt, and the total depends on it."""
    late: bool = False
    undecided: bool = False
    """The scorer's ``second`` may have a score."""

    @property
    def message(self) -> str:
        """The reason with the name of the scorer."""
        name = f"{self.rewarder_id}: "
        return self.reason if self.reason.startswith(name) else name + self.reason


Verdict: TypeAlias = RewardScore | Abstained
Verdicts: TypeAlias = tuple[Verdict, ...]


def abstain_on_all(name: str, context: RewardContext, reason: str) -> Verdicts:
    """Return an abstention for every attempt of the group."""
    return (Abstained(name, reason),) * len(context.outputs)


class ItemScorer(ABC):
    """A scorer of single attempts, written as a class."""

    def prepare(self) -> None:  # noqa: B027 - most load nothing
        """Load what takes long, before the clock of the first attempt starts."""

    def wanted(self, item: GraderInput) -> Any:  # noqa: B027 - many compare with nothing
        """Return what of a record outputs are compared with. Raise ``RewardError`` where there is nothing of use."""

    def unusable(self, record: Mapping[str, Any]) -> str | None:
        """Return why no output can be scored with a record; None if one can."""
        try:
            self.wanted(GraderInput.of("", record, ""))
        except RewardError as error:
            return str(error)
        return None

    @abstractmethod
    def score_one(self, item: GraderInput) -> float | Verdict:
        """Return the score of one attempt. Raise ``RewardError`` where it has none."""

    def grade_batch(self, inputs: Sequence[GraderInput], /) -> list[GradeResult]:
        """Return a result for each input, in order: the form of graders elsewhere."""
        results = []
        for item in inputs:
            score = self.score_one(item)
            if isinstance(score, Abstained):
                raise RewardError(score.reason)
            number = score.score if isinstance(score, RewardScore) else score
            results.append(GradeResult(item.sample_id, number, item.completion_index))
        return results


@dataclass(frozen=True, slots=True)
class ScorerSource:
    """How a worker process makes a scorer again: the arguments of ``tfgrpo.rewarders.registry.build_scorer``, and where."""

    name: str
    options: Mapping[str, Any]
    folder: str
    entry: str = ""
    """Entry of a data mix, for which a file is run once more; empty for a pipeline."""


@dataclass(frozen=True, slots=True, eq=False)
class Scorer:
    """One way to score: of scope ``item`` by a ``GraderInput``, ``batch`` by a list, ``group`` by a ``RewardContext``."""

    rewarder_id: str
    call: Callable[[Any], Any]
    scope: Scope = "item"
    place: ScoringPlace = "inline"
    score_range: Range = UNIT
    needs_answer: bool = False
    """Abstains on an item without a reference answer."""
    per_item: bool = True
    """In a batch, no score depends on the others, so that one of a failed batch is asked about alone."""
    ranks: bool = False
    """Runs after the others and reads their totals from ``context.prior_scores``."""
    compares: bool = False
    asks_model: bool = False
    """Its time is that of calls to a model, whose limit it keeps itself."""
    limit_s: float | None = None
    """Most seconds of one call. None: the runner's, or that of its use."""
    cpu_s: float | None = None
    """Seconds of processor time for one call in a worker process. None: its limit."""
    source: ScorerSource | None = None
    second: Scorer | None = None
    """Asked about attempts that this one leaves undecided."""
    unusable: Callable[[Mapping[str, Any]], str | None] | None = None
    """Returns why no output can be scored with a record; None for a scorer that can use any record."""
    overlooked: Callable[[Mapping[str, Any]], Sequence[str]] | None = None
    """Returns what a record asks for and the scorer does not look at; None for a scorer that overlooks nothing."""
    judge_loads: Callable[[int], Sequence[JudgeLoad]] | None = None
    close: Callable[[], Any] | None = None
    made_from: object = None

    members: ClassVar[tuple[AnyScorer, ...]] = ()

    @property
    def together(self) -> bool:
        """Whether a call is about several attempts, none of which can be scored without the others."""
        return self.scope == "group" or (self.scope == "batch" and not self.per_item)


@dataclass(frozen=True, slots=True)
class Weighted:
    """A scorer with its share in a total, and its limit."""

    scorer: AnyScorer
    weight: float = 1.0
    """Relative to the other weights. 0: recorded, not counted."""
    timeout_s: float | None = None
    """Seconds for one call. None: 30, or 600 for one that calls a model."""
    score_range: Range | None = None
    """Lowest and highest score. None: as the scorer declares."""

    @property
    def range(self) -> Range:
        """The range in force."""
        return self.scorer.score_range if self.score_range is None else self.score_range


def is_range(ends: object) -> bool:
    """Return whether a value is two finite numbers, the lower one first."""
    pair = isinstance(ends, Sequence) and len(ends) == 2 and all(is_number(end, allow_nan=False) for end in ends)
    return pair and bool(ends[0] < ends[1])  # type: ignore[index]


def declared_range(holder: object) -> Range:
    """Return the ``score_range`` of an object, else 0 to 1. Raises ``OptionError`` for an invalid one."""
    ends = getattr(holder, "score_range", UNIT)
    if not is_range(ends):
        raise OptionError(f"score_range is {ends!r}", ACCEPTED_RANGE)
    return float(ends[0]), float(ends[1])


# A fenced block, also one whose end is missing; by the second one, which is Markdown's, a string in it may have fences
_BLOCKS: Final = [
    re.compile(
        r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*+(?P<language>[\w+#.-]*+)[^\n`]*+\n(?P<code>.*?)"
        rf"(?:^{before}(?P=fence)|(?<=\S)[ \t]*(?P=fence)[ \t]*$|\Z)",
        re.DOTALL | re.MULTILINE,
    )
    for before in (r"[ \t]*", r"(?:(?P=indent))? {0,3}")
]


@runtime_checkable
class Grader(Protocol):
    """Grades a batch: one result for each input, in the order of the inputs.

    A batch for which it raises is ungraded as a whole, but for a class attribute ``per_item = True``: no reward depends on
    the other items of the batch. Then every item of a failed batch is graded alone.
    """

    def grade_batch(self, inputs: Sequence[GraderInput], /) -> Sequence[Any] | Awaitable[Sequence[Any]]:
        """Grade every input. May be called from several threads at once."""
        ...


def metadata(item: GraderInput, name: str) -> Any:
    """Return a field of the record's metadata; None when it, or the metadata, is absent or no object."""
    values = field_of(item, "metadata")
    return values.get(name) if isinstance(values, Mapping) else None


def column(item: GraderInput, name: str) -> Any:
    """Return a field of the record's metadata, else of the record; a list or an object that was written as text is read."""
    value = metadata(item, name)
    value = field_of(item, name) if value is None else value
    read = json_of(value) if isinstance(value, str) and value.lstrip()[:1] in ("[", "{") else None
    return value if read is None else read


def final_answer(item: GraderInput, *, or_completion: bool = False) -> str | None:
    """Return the final answer, None when it is missing or white space; ``or_completion``: then the whole completion."""
    return item.answer if item.answer and not item.answer.isspace() else item.completion if or_completion else None


def program(
    item: GraderInput,
    languages: Sequence[str],
    claims: Callable[[str], object],
    fits: Callable[[str], object],
    within: Callable[[str], Iterable[str]],
) -> str | None:
    """Return the code of an output: its last fenced block, else all of it; None for reasoning without an end.

    Blocks in one of the languages count before those without a language, these before others. Of several the last one counts
    that ``claims`` to be what is asked for. One that does not ``fits`` is read with the blocks before it, up to another end,
    and as if the prompt had opened a block; an output without blocks as what is ``within`` it.
    """
    text = without_reasoning(item.completion)
    if text is None:
        return None
    first = _BLOCKS[0].search(text)
    readings = [(each, text) for each in _BLOCKS]
    if first and not first["language"] and fits(text[: first.start()]):
        readings.append((_BLOCKS[0], f"```{languages[0]}\n{text}"))
    programs: list[str] = []
    for pattern, read in readings:
        blocks = [
            (block["language"].lower(), re.sub(f"^{block['indent']}", "", block["code"], flags=re.MULTILINE))
            for block in pattern.finditer(read)
        ]
        codes = [code for language, code in blocks if language in languages]
        codes = codes or [code for language, code in blocks if not language] or [code for _, code in blocks]
        right = [at for at, code in enumerate(codes) if claims(code)] or [at for at, code in enumerate(codes) if fits(code)]
        last = right[-1] if right else len(codes) - 1
        programs += [codes[last], "\n".join(codes[: last + 1])] if codes else []
    whole = text.strip("`\n")
    return next(filter(fits, programs or within(whole)), programs[0] if programs else whole)
