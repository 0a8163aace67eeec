"""What is a section of the settings? Frozen, strict, with the doors of each leaf beside it; and what a secret looks like.

Every room ``tfgrpo.pipelines.settings.tree*`` builds on this one. It knows no setting by name.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Temperature = Annotated[float, Field(ge=0.0, le=2.0)]
Text = Annotated[str, Field(min_length=1)]
OptionValue: TypeAlias = str | int | float | bool

SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:api[_-]?key|key|secret|password|passwd|token|credentials?|sig|signature)$", re.IGNORECASE
)
"""Names of options and query parameters that hold secrets."""
_BARE_ADDRESS = re.compile(
    r"(?:localhost|\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-f:]+\]|[a-z][a-z0-9-]*(?=:\d+/)|(?P<name>(?:[a-z0-9-]{1,40}\.){1,6}[a-z]{2,12}))"
    r"(?P<port>:\d{1,5})?(?:/[a-z0-9./-]{0,60})?"
)


class Section(BaseModel):
    """Frozen, strict, unknown keys refused, no NaN or infinity. The text below an attribute is its help."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


def option(default: Any, *, flag: str | None = None, env: str | None = None, **kwargs: Any) -> Any:
    """A settings leaf with its command-line option and its environment variable."""
    extra: dict[str, JsonValue] = {key: value for key, value in (("flag", flag), ("env", env)) if value is not None}
    return Field(default=default, json_schema_extra=extra or None, **kwargs)


def looks_like_a_key(text: str) -> bool:
    """Settings go into manifests and tables, and a key that stands where its name should would go with them."""
    # Here, because most commands read no setting that names a key, and the patterns cost a tenth of a second.
    from tfgrpo.prompt_packs.attacks import attack_in  # noqa: PLC0415

    found = attack_in(text)
    return found is not None and found.rule == "secret"


def meant_address(text: str) -> str | None:
    """The address that is probably meant by one without scheme; None for what looks like no address.

    A key, or a name with a password, never looks like one.
    """
    found = _BARE_ADDRESS.fullmatch(text.strip())
    if found is None or looks_like_a_key(text):
        return None
    scheme = "https" if found["name"] and not found["port"] else "http"
    return f"{scheme}://{text.strip()}{'' if '/' in text else '/v1'}"


def checked_address(text: str, example: str) -> str:
    """Return the address. Raises ``ValueError`` saying what is accepted, and what is probably meant."""
    if is_address(text):
        return text
    meant = meant_address(text)
    probably = f"; probably {meant} is meant" if meant else ""
    raise ValueError(f"an address like {example}, without user name, password or key in it{probably}")


def is_address(text: str) -> bool:
    """An http or https address without user name, password or anything secret in its query."""
    try:
        url = urlsplit(text.strip())
        host, port_is_fine = url.hostname, url.port is None or url.port > 0
    except ValueError:
        return False
    if url.scheme not in {"http", "https"} or not host or not port_is_fine or url.username or url.password:
        return False
    return not any(SECRET_NAME.search(name) for name, _ in parse_qsl(url.query, keep_blank_values=True))
