"""Graders as rewarders: the item becomes a record, a missing grade an abstention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import InstanceOf
from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.base import Abstained, RewardContext, Rewarder, Verdict, abstain_on_all
from tfgrpo.rewarders.graders.base import CLOSE, OPEN, Grader, GraderInput, parse_completion
from tfgrpo.rewarders.graders.combine import GraderSet, ItemGrade, NamedGrader, grade_items, grade_items_here
from tfgrpo.rewarders.graders.loading import BUILT_IN, as_grader
from tfgrpo.rewarders.graders.remote import RemoteGrader
from tfgrpo.rewarders.graders.running import TIMEOUT_S, GraderRunner
from tfgrpo.rewarders.options import Name, Options, accepts, constructed, placed
from tfgrpo.rewarders.running import QUICK_CHARS
from tfgrpo.stores.errors import PipelineError, Problem
from tfgrpo.stores.frozen_json import FrozenDict
from tfgrpo.stores.outcomes import RewardScore

Parse: TypeAlias = Literal["auto", "think", "whole"]

NO_REFERENCE: Final = "the item has no reference answer"
_REMOTE: Final = "remote"
"""Name of the grader that calls a grading service."""
_SLOW: Final = frozenset({_REMOTE, "math_verify", "math-verify"})
"""Graders that are too slow for the event loop."""
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class GraderRewarder(Options):
    """Scores each attempt with a set of graders, and abstains on ungraded attempts.

    A grader's record has ``prompt``, ``answer`` and ``metadata`` of the item. Errors of graders become abstentions; after
    the time limit, ungraded attempts are abstained on. Raises ``PipelineError`` when built with an unknown ``parse`` or
    without a name.
    """

    graders: InstanceOf[GraderSet]
    rewarder_id: Name
    parse: Annotated[Parse, accepts("auto, think, whole")] = "auto"
    """Which part of an output is the answer. ``think``: the text after a ``<think>…</think>`` block. ``whole``: all of
    it. ``auto``: the text after the block, or after a lone ``</think>`` whose opening was part of the prompt; none after
    an unclosed block; all of an output without tags."""
    needs_answer: bool = False
    """Abstain on items without a reference answer."""
    quick: bool = False
    """The graders are cheap enough for the event loop; long groups are graded off it all the same."""
    _runner: GraderRunner = field(default_factory=GraderRunner, init=False, compare=False, repr=False)

    limits_itself: ClassVar[bool] = True

    async def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Score every attempt."""
        if self.needs_answer and not context.answer.strip():
            return abstain_on_all(self, context, NO_REFERENCE)
        inputs = graded_inputs(context, self.parse)
        if self.quick and sum(len(item.completion) for item in inputs) <= QUICK_CHARS:
            graded = grade_items_here(self.graders, inputs)
        else:
            graded = await grade_items(self._runner, self.graders, inputs, context.time_limit_s or TIMEOUT_S)
        return tuple(map(self._verdict, inputs, graded))

    def _verdict(self, item: GraderInput, grade: ItemGrade) -> Verdict:
        if grade.reward is None:
            return Abstained(self.rewarder_id, grade.reasons, grade.broke)
        details = FrozenDict({"parts": FrozenDict(grade.parts)}) if len(grade.parts) > 1 else None
        return RewardScore(self.rewarder_id, grade.reward, _evidence(item, grade, compared=self.needs_answer), details)


def build_grader_rewarder(name: str, options: Mapping[str, Any], where: str, *, comparing: bool) -> Rewarder:
    """Build the rewarder of a built-in grader, or of ``remote``. Raises ``PipelineError`` with all problems at once.

    ``where`` is the location in messages; ``comparing``: it needs a reference answer.
    """
    build = partial(constructed, RemoteGrader if name == _REMOTE else BUILT_IN[name])
    return _built(name, options, where, build, needs_answer=comparing, quick=name not in _SLOW)


def rewarder_of_grader(name: str, found: object, options: Mapping[str, Any], where: str) -> Rewarder:
    """Build the rewarder of a user's grader, or of a class of graders. Raises ``PipelineError``."""
    return _built(name, options, where, partial(as_grader, found))


def _built(
    name: str,
    options: Mapping[str, Any],
    where: str,
    build: Callable[[Mapping[str, Any], str, str], Grader],
    **traits: bool,
) -> Rewarder:
    """Return the rewarder; its options are those of the grader, and ``parse`` and ``rewarder_id``."""
    own = {key: options[key] for key in ("parse", "rewarder_id") if key in options}
    problems: list[Problem] = []
    try:
        # Without its grader yet, so that problems of both are reported at once.
        rewarder = GraderRewarder(GraderSet(), **{"rewarder_id": name, **own, **traits})
    except PipelineError as error:
        problems += placed(error.problems, where, ": options")
    try:
        grader = build({key: value for key, value in options.items() if key not in own}, where, ": options")
    except PipelineError as error:
        problems += error.problems
    if problems:
        raise PipelineError(problems)
    return replace(rewarder, graders=GraderSet((NamedGrader(name, grader),), format_weight=0.0))


def graded_inputs(context: RewardContext, parse: Parse) -> list[GraderInput]:
    """Return the inputs of graders for the attempts of a group."""
    record = {"prompt": context.prompt, "answer": context.answer or None, "metadata": dict(context.metadata)}
    return [
        GraderInput(
            context.item_id, record, attempt.output, *_split(attempt.output, parse), attempt.tokens, attempt.index
        )
        for attempt in context.outputs
    ]


def _split(output: str, parse: Parse) -> tuple[str | None, str | None]:
    """Return reasoning and answer of an output."""
    if parse == "think" or (parse == "auto" and OPEN in output):
        return parse_completion(output)
    reasoning, close, answer = output.partition(CLOSE) if parse == "auto" else ("", "", "")
    return (reasoning.strip() or None, answer.strip() or None) if close else (None, output.strip() or None)


def _evidence(item: GraderInput, grade: ItemGrade, *, compared: bool) -> str:
    """Return every part, the end of the answer, and the reference if it was compared."""
    parts = ", ".join(f"{name} {reward:g}" for name, reward in grade.parts.items())
    answer = "no final answer" if item.answer is None else f"answer {_end(item.answer)}"
    reference = f", reference {_end(str(item.record['answer']))}" if compared else ""
    return f"{parts}; {answer}{reference}"


def _end(text: str) -> str:
    """Quote the end of a text in one line: answers state their result there."""
    return repr(text if len(text) <= _SHOWN else f"…{text[-_SHOWN + 1 :]}")
