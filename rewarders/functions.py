"""Call a Python function as a scorer: its parameters are bound by name, in whatever order it has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from tfgrpo.rewarders.scorer import GraderInput, Scope
from tfgrpo.rewarders.threads import is_async
from tfgrpo.stores.errors import OptionError

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


_VARIABLE: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Text(str):  # noqa: SLOT000 - it holds its fields
    """A text whose attributes and keys are fields of a record: ``gold == pred`` works, and ``gold.answer == pred.answer``."""

    _fields: Mapping[str, Any]

    @classmethod
    def of(cls, text: str, fields: Mapping[str, Any]) -> Text:
        """Return the text with these fields."""
        made = cls(text)
        made._fields = fields
        return made

    def __getattr__(self, name: str) -> Any:
        try:
            return self._fields[name]
        except (AttributeError, KeyError):
            raise AttributeError(f"no field {name!r}") from None

    def __getitem__(self, key: Any) -> Any:
        return self._fields[key] if isinstance(key, str) else super().__getitem__(key)

    def __reduce__(self) -> tuple[Any, ...]:
        return Text.of, (str(self), dict(self._fields))


def _field(item: GraderInput, name: str) -> Any:
    return item.record.get(name) if isinstance(item.record, Mapping) else None


def _output(item: GraderInput) -> Text:
    names = ("answer", "output", "text", "completion", "response", "prediction")
    return Text.of(item.completion, dict.fromkeys(names, item.completion))


def _reference(item: GraderInput) -> Any:
    answer = _field(item, "answer")
    if answer is not None and not isinstance(answer, str):
        return answer
    holders = (each for each in (_field(item, "metadata"), item.record) if isinstance(each, Mapping))
    return Text.of(answer or "", {name: value for holder in holders for name, value in holder.items()})


_KNOWN: Final[Mapping[str, Callable[[GraderInput], Any]]] = {
    **dict.fromkeys(
        ("output", "pred", "prediction", "predicted", "completion", "response", "solution_str", "text", "actual",
         "generated", "candidate", "model_output", "generation", "hypothesis"),
        _output,
    ),
    **dict.fromkeys(
        ("answer", "gold", "reference", "expected", "ground_truth", "target", "label", "solution", "example", "expected_output",
         "correct_answer"),
        _reference,
    ),
    **dict.fromkeys(("prompt", "question", "input", "query", "task"), lambda item: _field(item, "prompt") or ""),
    **dict.fromkeys(("metadata", "meta", "extra_info"), lambda item: dict(_field(item, "metadata") or {})),
    **dict.fromkeys(("record", "row"), lambda item: item.record),
    **dict.fromkeys(("item", "sample", "grader_input", "inputs"), lambda item: item),
    "data_source": lambda item: item.sample_id,
    "completion_tokens": lambda item: item.completion_tokens,
}  # fmt: skip
"""Arguments by name: as DSPy, verl, TRL, autoevals and others call them."""
_EITHER: Final = frozenset({"answer", "solution"})
"""Names of the reference beside an output, and of the output beside another reference."""
_WHOLE: Final = frozenset({"item", "sample", "grader_input"})
_OPTIONAL: Final = frozenset({"metadata", "extra_info", "prompt", "question", "record"})
"""Parameters that are filled although they have a default."""
SIGNATURES: Final = (
    "(output, answer) or other known names in any order, such as (gold, pred), (solution_str, ground_truth) or "
    "(prompt, completion, answer); (item) for a GraderInput; (context) for the whole group; further parameters need a default"
)


class Bound(NamedTuple):
    """A function as the call of a scorer."""

    call: Callable[[Any], Any]
    scope: Scope


def bound(function: Callable[..., Any], options: Mapping[str, Any] | None = None) -> Bound:
    """Return a call of the function with its parameters bound by name; ``options`` fill others.

    Raises ``OptionError`` unless it asks for the output or the whole item, and every parameter without a default is known.
    """
    signature = inspect.signature(function)
    given = options or {}
    parameters = [each for each in signature.parameters.values() if each.name not in given]
    needed = [each for each in parameters if each.default is each.empty and each.kind not in _VARIABLE]
    names = [each.name for each in needed]
    _refuse_generator(function, names)
    filled = partial(function, **given) if given else function
    if names == ["context"]:
        return Bound(filled, "group")
    if len(needed) == 1 and needed[0].kind in _POSITIONAL and names[0] not in _KNOWN:
        return Bound(filled, "item")  # of one input, whatever its name
    optional = [each.name for each in parameters if each not in needed and each.name in _OPTIONAL]
    known = {name: _KNOWN[name] for name in (*names, *optional) if name in _KNOWN}
    outputs = [name for name in known if _KNOWN[name] is _output]
    references = [name for name in names if name in known and _KNOWN[name] is _reference]
    if not outputs and len(references) == 2 and set(references) & _EITHER:
        # Of ``(answer, expected)`` the answer is what is scored; beside an output it is the reference.
        known[next(name for name in references if name in _EITHER)] = _output
        outputs = references[:1]
    if set(names) - known.keys() or not (outputs or known.keys() & _WHOLE):
        raise OptionError(f"a function of {signature}", SIGNATURES)
    positional = [each.name for each in needed if each.kind is inspect.Parameter.POSITIONAL_ONLY]

    def arguments(item: GraderInput) -> tuple[list[Any], dict[str, Any]]:
        values = {name: value(item) for name, value in known.items()}
        return [values.pop(name) for name in positional], values

    if is_async(function):

        async def call_async(item: GraderInput) -> Any:
            args, kwargs = arguments(item)
            return await filled(*args, **kwargs)

        return Bound(call_async, "item")

    def call_plain(item: GraderInput) -> Any:
        args, kwargs = arguments(item)
        return filled(*args, **kwargs)

    return Bound(call_plain, "item")


def _refuse_generator(function: Callable[..., Any], names: Sequence[str]) -> None:
    for call in (function, getattr(function, "__call__", None)):  # noqa: B004 - looked at, not called
        if inspect.isasyncgenfunction(call) or (inspect.isgeneratorfunction(call) and names != ["context"]):
            raise OptionError("a function that yields", "one that returns the score of an attempt")


def makes_something(function: Callable[..., Any], options: Mapping[str, Any]) -> bool:
    """Return whether a callable needs no argument beyond the options: then it is a factory."""
    try:
        inspect.signature(function).bind(**options)
    except (TypeError, ValueError):
        return False
    return True
