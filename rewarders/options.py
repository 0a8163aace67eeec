"""Build scorers from options: our own are pydantic dataclasses, whose types say what they accept.

Everything invalid is reported at once, each value with what would have been accepted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar

from pydantic import (
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    Strict,
    StringConstraints,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic.dataclasses import dataclass
from pydantic_core import ErrorDetails, PydanticCustomError

from tfgrpo.rewarders.faults import described
from tfgrpo.stores.errors import OptionError, PipelineError, Problem

T = TypeVar("T")

_UNKNOWN: Final = "unexpected_keyword_argument"


def refusal(accepted: str, given: str | None = None) -> PydanticCustomError:
    """Return the error of an invalid value. ``given`` is shown instead of the value, which may be secret."""
    shown = {} if given is None else {"given": given}
    return PydanticCustomError("refused", "{accepted}", {"accepted": accepted, **shown})


def accepts(phrase: str, given: str | None = None) -> WrapValidator:
    """Return an annotation for a type, whose errors say that ``phrase`` is accepted, and show ``given``, as ``refusal``."""

    def check(value: Any, validated: Any) -> Any:
        try:
            return validated(value)
        except ValidationError:
            raise refusal(phrase, given) from None

    return WrapValidator(check)


Flag = Annotated[bool, Strict(), accepts("true or false")]
Whole = Annotated[int, Strict()]
FiniteNumber = Annotated[float, Strict(), Field(allow_inf_nan=False)]
NonNegative = Annotated[FiniteNumber, Field(ge=0), accepts("a finite number of at least 0")]
Texts = Annotated[
    tuple[Annotated[str, Strict()], ...],
    accepts("a list of texts; quote what YAML would read as a number or a truth value"),
]
Name = Annotated[str, StringConstraints(pattern=r"\S", strict=True), accepts("a name")]


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid", arbitrary_types_allowed=True))
class Options:
    """Base of dataclasses whose constructor raises ``PipelineError`` with a problem of every invalid option."""

    shows_unknown: ClassVar[bool] = True
    """Whether an unknown option is reported with its value, which may be a secret under a wrong name."""

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, values: Any, build: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return build(values)
        except ValidationError as error:
            found = sorted(error.errors(include_url=False), key=lambda each: each["type"] != _UNKNOWN)
            raise PipelineError([_problem(each, cls) for each in found]) from None


def placed(problems: Iterable[Problem], where: str, key: str) -> list[Problem]:
    """Return the problems of options with their place: below ``key`` within ``where``."""
    return [
        Problem(f"{where}{key}.{each.source}" if each.source else where, each.given, each.accepted) for each in problems
    ]


def _problem(error: ErrorDetails, options: type[Options]) -> Problem:
    names = [each.name for each in fields(options) if each.init]
    place, given = error["loc"][0], repr(error["input"])
    name = names[place] if isinstance(place, int) else place
    if error["type"] == "missing":
        return Problem(name, "nothing", "a value: this option has no default")
    if error["type"] == _UNKNOWN:
        shown = given if options.shows_unknown else "an unknown option"
        return Problem(name, shown, f"only {', '.join(names)}" if names else "no options")
    return Problem(name, error.get("ctx", {}).get("given", given), error["msg"])


def constructed(build: Callable[..., T], options: Mapping[str, Any], where: str, key: str = ": options") -> T:
    """Return what a class or factory makes of options. Raise ``PipelineError``; ``key`` within ``where`` has the options."""
    if not (isinstance(build, type) and issubclass(build, Options)):
        refuse_unfit(build, options, where + key)
    try:
        return build(**options)
    except PipelineError as error:
        raise PipelineError(placed(error.problems, where, key)) from error
    except OptionError as error:
        raise PipelineError.one(where + key, error.given, error.accepted) from error
    except (Exception, SystemExit) as error:  # a user's class may do anything
        raise PipelineError.one(where + key, described(error), f"values that {_name(build)} takes") from error


def refuse_unfit(
    build: Callable[..., Any], options: Mapping[str, Any], where: str, *, besides: Sequence[str] | None = None
) -> None:
    """Raise ``PipelineError`` when a call with the options does not fit.

    ``besides``: names of parameters that get something else, for a call that the options complete only in part.
    """
    whole = besides is None
    if not fits(build, options, partly=not whole) or options.keys() & set(besides or ()):
        given = ", ".join(sorted(options)) or "none"
        raise PipelineError.one(where, given, f"the options of {_name(build)}{inspect.signature(build)}")


def refuse_unknown(function: Callable[..., Any], options: Mapping[str, Any], where: str) -> None:
    """Raise ``PipelineError`` for options that a function has no parameter for."""
    parameters = inspect.signature(function).parameters.values()
    names = {each.name for each in parameters}
    if not names >= options.keys() and not any(each.kind is each.VAR_KEYWORD for each in parameters):
        raise PipelineError.one(
            where, ", ".join(sorted(options)), f"the options of {_name(function)}{inspect.signature(function)}"
        )


def fits(build: Callable[..., Any], options: Mapping[str, Any], *, arguments: int = 0, partly: bool = False) -> bool:
    """Return whether a call with these arguments fits; without arguments before the options unknown signatures do.

    ``partly``: arguments may be missing.
    """
    try:
        signature = inspect.signature(build)
    except (TypeError, ValueError):
        return not arguments
    try:
        (signature.bind_partial if partly else signature.bind)(*[None] * arguments, **options)
    except TypeError:
        return False
    return True


def pop_rewarder_id(options: Mapping[str, Any], default: str, where: str) -> tuple[dict[str, Any], str]:
    """Return the options without ``rewarder_id``, and that name. Raises ``PipelineError`` unless it is a name."""
    rest = dict(options)
    name = rest.pop("rewarder_id", default)
    if not isinstance(name, str) or not name.strip():
        raise PipelineError.one(f"{where}: options.rewarder_id", repr(name), "a name")
    return rest, name


def _name(build: object) -> str:
    return str(getattr(build, "__name__", type(build).__name__))
