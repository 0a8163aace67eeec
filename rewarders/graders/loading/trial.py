"""Call a user's grader once with a made-up item, to refuse what is no grader when it is loaded.

A grader that raises on this item, or is slow, may grade others and is accepted. Asynchronous graders are not called: what they
open would belong to an event loop that has ended when they are used.
"""

from __future__ import annotations

import inspect
from typing import Final

from tfgrpo.rewarders.faults import described
from tfgrpo.rewarders.graders.base import Grader, GraderInput
from tfgrpo.rewarders.graders.calling import is_async, is_built_in, isolated_inputs, item_function
from tfgrpo.rewarders.graders.grades import NotGraded, matched
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.errors import PipelineError, Problem, RewardError

_LIMIT_S: Final = 5.0
_RECORD: Final[dict[str, object]] = {"prompt": "What is 6 * 7?", "answer": "42", "system_prompt": None, "metadata": {}}
ITEM: Final = GraderInput.of(
    "trial:0", _RECORD, "<think>\n6 * 7 = 42\n</think>\n42", completion_tokens=16, completion_index=0
)
"""The made-up item."""
_ACCEPTED: Final = "a grader: called with a GraderInput, or grade_batch with a list of them, it returns numbers"


def refuse_no_grader(grader: Grader, where: str) -> None:
    """Raise ``PipelineError`` when a grader rejects an input as such, ends the process, or returns what is no reward."""
    if is_async(grader) or is_built_in(grader):
        return
    with RewarderThreads(1) as threads:
        future = threads.submit(_fault, grader)
        try:
            fault = future.result(_LIMIT_S)
        except TimeoutError:
            return
    if fault:
        raise PipelineError([Problem(where, f"{fault} (a call with a made-up item)", _ACCEPTED)])


def _fault(grader: Grader) -> str:
    """Why this is no grader; empty when it may be one."""
    inputs = isolated_inputs(grader, [ITEM])
    one = item_function(grader)
    try:
        said = [one(inputs[0])] if one is not None else grader.grade_batch(inputs)
    except BaseException as error:  # noqa: BLE001 - a user's code: what it raises decides
        return described(error) if _rejects(error) else ""
    if inspect.isawaitable(said):
        if inspect.iscoroutine(said):
            said.close()
        return ""
    try:
        (grade,) = matched(inputs, said)
    except RewardError as error:
        return str(error)
    if isinstance(grade, NotGraded) and grade.error_type == "NotANumber":
        return "" if grade.reason.endswith("no finite number") else grade.reason
    return ""


def _rejects(error: BaseException) -> bool:
    """Return whether an error means that the callable takes no inputs, rather than that it cannot grade this one."""
    if not isinstance(error, TypeError | AttributeError):
        return isinstance(error, SystemExit)
    raised_by_call = error.__traceback__ is not None and error.__traceback__.tb_next is None
    return raised_by_call or GraderInput.__name__ in str(error)
