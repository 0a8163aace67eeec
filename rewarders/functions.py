"""Call a Python function as a scorer, its parameters bound by name; build what a class or factory makes of options.

Names are those of the frameworks that people bring functions from; one that is unknown or unclear is refused.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar

from tfgrpo.rewarders.calling import described, is_async
from tfgrpo.rewarders.scorer import GraderInput, Scope
from tfgrpo.stores.errors import OptionError, PipelineError, Problem
from tfgrpo.stores.text import bare_name

_T = TypeVar("_T")
ParameterRole: TypeAlias = Literal[
    "output", "reference", "prompt", "metadata", "item", "context", "source", "tokens", "nothing"
]
_Role: TypeAlias = ParameterRole | Literal["either"]

NAMES: Final[Mapping[ParameterRole, str]] = MappingProxyType(
    json.loads(Path(__file__).with_name("parameters.json").read_text("utf-8"))
)
"""Names of parameters by what they are bound to; case and underscores do not matter."""
# The reference where another parameter is the output, the output where another one is the reference
EITHER: Final = ("answer", "solution")
_ROLES: Final[Mapping[str, ParameterRole]] = {bare_name(name): role for role, names in NAMES.items() for name in names.split()}
# Names under which DSPy passes objects with attributes
_VIEWED: Final = frozenset({"gold", "example", "pred", "prediction"})
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
SIGNATURES: Final = (
    "(output, answer); parameters are bound by name: one for the output (output, pred, completion, response, solution_str, "
    "text, actual, …), the reference (answer, gold, ground_truth, reference, expected, target, label, …), and prompt, metadata "
    "or item; (context) for the group, or one parameter for a GraderInput; further parameters need a default"
)
_ABSENT: Final = object()


class Columns(str):  # noqa: SLOT000 - its attributes are the columns
    """A text with the columns of its item as attributes and keys, as DSPy passes them: ``gold.answer``, ``gold["unit"]``."""

    def __new__(cls, text: str, columns: Mapping[str, Any] = MappingProxyType({}), **roles: Any) -> Self:
        """Return the text with its columns and the values of roles."""
        made = super().__new__(cls, text)
        # In the dictionary of the instance, so that a column called ``title`` or ``count`` hides the method of str.
        vars(made).update({key: value for key, value in columns.items() if isinstance(key, str)}, _roles=roles)
        return made

    def __getattr__(self, name: str) -> Any:
        value = self.get(name, _ABSENT)
        if value is _ABSENT:
            raise AttributeError(f"no {name!r}; there are {', '.join(sorted({*vars(self), 'answer'} - {'_roles'}))}")
        return value

    def __getitem__(self, key: Any) -> Any:
        try:
            return self.__getattr__(key) if isinstance(key, str) else super().__getitem__(key)
        except AttributeError as error:
            raise KeyError(key) from error

    def get(self, name: str, default: Any = None) -> Any:
        """Return a column, or what the name means."""
        columns = vars(self)
        if name in columns or name.startswith("_"):
            return columns.get(name, default)
        role = "reference" if bare_name(name) in EITHER else _ROLES.get(bare_name(name), "")
        return columns["_roles"].get(role, default)


def _arguments(item: GraderInput, roles: Mapping[str, ParameterRole], own: Collection[str] | None) -> dict[str, Any]:
    # Unless ``own`` is None, the columns of the item that it does not list are arguments as well.
    record = item.record if isinstance(item.record, Mapping) else {}
    prompt, answer, held = str(record.get("prompt") or ""), record.get("answer"), record.get("metadata")
    reference, metadata = "" if answer is None else answer, dict(held) if isinstance(held, Mapping) else {}

    def value(name: str, role: ParameterRole) -> Any:
        if role == "output":
            output = item.completion
            return Columns(output, output=output, reference=output) if name in _VIEWED else output
        if role == "item" or name in _VIEWED:
            columns = {**record, **metadata, "id": item.sample_id, "metadata": metadata}
            columns.pop("prompt", None)
            return Columns(prompt if role == "item" else str(reference), columns, prompt=prompt, reference=reference)
        named = metadata.get(name)
        values: dict[ParameterRole, Any] = {
            "reference": reference,
            "prompt": prompt,
            "metadata": dict(named) if isinstance(named, Mapping) else metadata,
            "source": metadata.get(name, item.sample_id),
            "tokens": item.completion_tokens,
        }
        return values.get(role)

    columns = {} if own is None else {**metadata, "prompt": prompt, "answer": reference}
    keywords = {name: each for name, each in columns.items() if name not in (own or ())}
    return keywords | {name: value(name, role) for name, role in roles.items()}


def bound(
    function: Callable[..., Any], options: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Callable[[Any], Any], Scope]:
    """Return a call of the function with parameters bound by name, and its scope. Raises ``OptionError`` if unclear."""
    signature = inspect.signature(function)
    filled = partial(function, **options) if options else function
    every = signature.parameters.values()
    declared = [each for each in every if each.kind not in _VARIADIC and each.name not in options]
    required = [each for each in declared if each.default is each.empty]
    by_context = [each.name for each in required] == ["context"]
    for call in (function, getattr(function, "__call__", None)):  # noqa: B004 - looked at, not called
        if inspect.isasyncgenfunction(call) or (inspect.isgeneratorfunction(call) and not by_context):
            raise OptionError("a function that yields", "one that returns the score of an attempt")
    if len(required) == 1 and (by_context or _role(required[0].name) in (None, "item", "nothing")):
        by_name = required[0].kind is inspect.Parameter.KEYWORD_ONLY
        call_one = (lambda value: filled(**{required[0].name: value})) if by_name else filled
        return call_one, "group" if by_context else "item"
    roles = _roles(signature, declared)
    by_position = [each.name for each in declared if each.kind is each.POSITIONAL_ONLY and each.name in roles]
    # Further keywords are the columns of the item, as TRL and verifiers pass them.
    more = any(each.kind is each.VAR_KEYWORD for each in every)
    filled_names = {*options, *(each.name for each in declared if each.default is not each.empty and each.default is not None)}

    def call_plain(item: GraderInput) -> Any:
        keywords = _arguments(item, roles, filled_names if more else None)
        return filled(*[keywords.pop(name) for name in by_position], **keywords)

    async def call_async(item: GraderInput) -> Any:
        return await call_plain(item)

    return (call_async if is_async(function) else call_plain), "item"


def _roles(signature: inspect.Signature, declared: list[inspect.Parameter]) -> dict[str, ParameterRole]:
    required = [each for each in declared if each.default is each.empty]
    named = {each.name: _role(each.name) for each in required}
    unknown = [name for name, role in named.items() if role is None]
    if len(unknown) == len(required) == 2 and all(each.kind is each.POSITIONAL_ONLY for each in required):
        # Such names cannot be used by a caller and mean little, as in ``operator.eq``.
        named, unknown = dict(zip(named, ("output", "reference"), strict=True)), []
    if unknown:
        names = " and ".join(unknown)
        raise OptionError(f"a function of {signature}, where {names} may be anything", SIGNATURES)
    roles = {name: role for name, role in named.items() if role is not None}
    for name in (each.name for each in declared if each.default is None and each.kind is not each.POSITIONAL_ONLY):
        # Any other default belongs to an option of the function, whatever its name.
        role = _role(name)
        if role is not None and role not in ("nothing", *roles.values()):
            roles[name] = role
    # Now ``answer`` and ``solution`` are decided.
    taken = set(roles.values())
    other: ParameterRole = "reference" if "output" in taken else "output"
    chosen = {name: other if role == "either" else role for name, role in roles.items()}
    outputs, references = ([name for name, each in chosen.items() if each == role] for role in ("output", "reference"))
    is_open = "either" in taken and not taken & {"output", "reference"}
    if is_open or len(outputs) != 1 or len(references) > 1 or "context" in taken:
        readings = [" or ".join(names) or "nothing" for names in (outputs, references)]
        fault = f"where the output may be {readings[0]} and the reference {readings[1]}"
        raise OptionError(f"a function of {signature}, {fault}", SIGNATURES)
    if [*map(bare_name, chosen)] == ["text"] and len(declared) == len(signature.parameters):
        # Any function of one text, such as ``textwrap.dedent``, would pass for a scorer.
        raise OptionError(f"a function of {signature}, which takes nothing but a text", SIGNATURES)
    return {each.name: chosen[each.name] for each in declared if each.name in chosen}


def _role(name: str) -> _Role | None:
    bare = bare_name(name)
    return "either" if bare in EITHER else _ROLES.get(bare) or ("nothing" if name.startswith("_") else None)


def call_fits(build: Callable[..., Any], options: Mapping[str, Any], *, unknown: bool = False) -> bool:
    """Return whether a call with the options alone fits; ``unknown`` for a callable without a signature."""
    try:
        signature = inspect.signature(build)
    except (TypeError, ValueError):
        return unknown
    try:
        signature.bind(**options)
    except TypeError:
        return False
    return True


def constructed(build: Callable[..., _T], options: Mapping[str, Any], where: str, key: str = ": options") -> _T:
    """Return what a class or factory makes of options. Raise ``PipelineError``; ``key`` within ``where`` has the options."""
    if not (getattr(build, "names_problems", False) or call_fits(build, options, unknown=True)):
        names = ", ".join(sorted(options)) or "none"
        raise PipelineError.one(where + key, names, f"the options of {_name(build)}{inspect.signature(build)}")
    try:
        return build(**options)
    except PipelineError as error:
        paths = [f"{where}{key}.{each.source}" if each.source else where for each in error.problems]
        problems = [Problem(path, each.given, each.accepted) for path, each in zip(paths, error.problems, strict=True)]
        raise PipelineError(problems) from error
    except OptionError as error:
        raise PipelineError.one(where + key, error.given, error.accepted) from error
    except (Exception, SystemExit) as error:  # a user's class may do anything
        raise PipelineError.one(where + key, described(error), f"values that {_name(build)} takes") from error


def refuse_unknown(function: Callable[..., Any], options: Mapping[str, Any], where: str) -> None:
    """Raise ``PipelineError`` for options that a function has no parameter for, or one that gets something else."""
    parameters = inspect.signature(function).parameters.values()
    unknown = options.keys() - {each.name for each in parameters}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    if (unknown and not takes_any) or any(
        each.name in options for each in parameters if each.default is each.empty and _role(each.name)
    ):
        accepted = f"the options of {_name(function)}{inspect.signature(function)}"
        raise PipelineError.one(where, ", ".join(sorted(options)), accepted)


def named_problems(name: object, path: str) -> list[Problem]:
    """Return the problem of a ``rewarder_id`` that is no name."""
    is_name = isinstance(name, str) and name.strip()
    return [] if is_name else [Problem(f"{path}.rewarder_id", repr(name), "a name")]


def _name(build: object) -> str:
    return str(getattr(build, "__name__", type(build).__name__))
