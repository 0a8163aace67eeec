"""Build scorers from options: pydantic dataclasses, which report everything invalid at once, with what is accepted instead."""

from __future__ import annotations

from dataclasses import fields
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Final, Self

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
from pydantic_core import PydanticCustomError

from tfgrpo.stores.errors import PipelineError, Problem

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
LIST_OF_TEXTS: Final = "a list of texts; quote what YAML would read as a number or a truth value"
Texts = Annotated[tuple[Annotated[str, Strict()], ...], accepts(LIST_OF_TEXTS)]
Name = Annotated[str, StringConstraints(pattern=r"\S", strict=True), accepts("a name")]


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid", arbitrary_types_allowed=True))
class Options:
    """Base of dataclasses whose constructor raises ``PipelineError`` with a problem of every invalid option."""

    names_problems: ClassVar[bool] = True
    """Every unfit option is named by the constructor."""
    shows_unknown: ClassVar[bool] = True
    """Whether an unknown option is reported with its value, which may be a secret under a wrong name."""

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, values: Any, build: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return build(values)
        except ValidationError as error:
            names = [each.name for each in fields(cls) if each.init]
            problems: list[Problem] = []
            # Unknown options first: one may be the misspelling of another that is missing.
            for each in sorted(error.errors(include_url=False), key=lambda each: each["type"] != _UNKNOWN):
                option, accepted = each["loc"][0], each["msg"]
                shown = each.get("ctx", {}).get("given", f"{each['input']!r:.200}")
                if each["type"] == "missing":
                    shown, accepted = "nothing", "a value: this option has no default"
                elif each["type"] == _UNKNOWN:
                    shown = shown if cls.shows_unknown else "an unknown option"
                    accepted = f"only {', '.join(names)}" if names else "no options"
                problems.append(Problem(names[option] if isinstance(option, int) else option, shown, accepted))
            raise PipelineError(problems) from None


def require(module: str, package: str, extra: str) -> None:
    """Raise ``PipelineError`` when a library is not installed: it names the extra to install."""
    if find_spec(module) is None:
        raise PipelineError.one("", f"no {package}", f'it with its library installed: pip install "tfgrpo[{extra}]"')
