"""Recognise addresses, loopback hosts and secrets in the values of settings."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from pydantic import JsonValue

SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:api[_-]?key|key|secret|password|passwd|token|credentials?|sig|signature)$", re.IGNORECASE
)
"""Names of options and query parameters whose values are secret."""
ENV_VALUE = "env:"
"""Starts the value of a header that is the name of an environment variable."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CREDENTIALS = ("authorization", "cookie")
_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[^\[\]:@/\\?#]+))(?::[0-9]*)?")


def is_loopback(host: str) -> bool:
    """Return whether a host name is this machine: a loopback address or ``localhost``. Resolves no names."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def names_loopback(header: str) -> bool:
    """Return whether a ``Host`` header names this machine."""
    host = _HOST.fullmatch(header.strip().lower())
    return host is not None and is_loopback(host["v6"] or host["name"].removesuffix("."))


def looks_like_a_key(text: str) -> bool:
    """Return whether a text looks like a secret, which would end up in manifests and tables."""
    from tfgrpo.prompt_packs.safety import attack_in  # noqa: PLC0415 - 40 ms for its patterns; few settings are read by them

    attack = attack_in(text)
    return attack is not None and attack.rule == "secret"


def checked_address(text: str) -> str:
    """Return the address. Raise ``ValueError`` with the accepted form."""
    if not is_address(text):
        raise ValueError("an address like https://host/v1, with http:// or https://, without user name, password or key")
    return text


def is_address(text: str) -> bool:
    """Return whether a text is an http(s) address without user name, password or secret in its query."""
    try:
        url = urlsplit(text.strip())
        host, port_is_valid = url.hostname, url.port is None or url.port > 0
    except ValueError:
        return False
    if url.scheme not in {"http", "https"} or not host or not port_is_valid or url.username or url.password:
        return False
    return not any(SECRET_NAME.search(name) for name, _ in parse_qsl(url.query, keep_blank_values=True))


def checked_variable(value: str) -> str:
    """Return the name of an environment variable. Raise ``ValueError`` for anything else."""
    if not VARIABLE.fullmatch(value) or looks_like_a_key(value):
        raise ValueError("the name of an environment variable, not the key itself")
    return value


def checked_headers(value: dict[str, str], *, ours: tuple[str, ...], instead: str = "") -> dict[str, str]:
    """Return headers of requests. Raise ``ValueError`` for names of ``ours``, and for a secret that is no ``env:NAME``."""
    for name, text in value.items():
        if not re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", name, re.ASCII) or name.lower() in ours:
            raise ValueError(f"names of headers other than {', '.join(ours)}{instead}")
        if text.startswith(ENV_VALUE):
            checked_variable(text.removeprefix(ENV_VALUE))
        elif name.lower() in _CREDENTIALS or SECRET_NAME.search(name) or looks_like_a_key(text):
            raise ValueError(f"{ENV_VALUE}NAME as the value of {name}: the name of a variable, not the secret itself")
        elif not text.isascii() or not text.isprintable():
            raise ValueError(f"printable ASCII as the value of {name}")
    return value


def refuse_secrets(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return options, nested ones included. Raise ``ValueError`` for names and addresses of secrets among them."""
    names, texts = set[str](), set[str]()
    _collect(value, names, texts)
    if any(SECRET_NAME.search(name) for name in names):
        raise ValueError("options without secrets: name the environment variable that holds one, not the secret")
    addresses = (text for text in texts if text.strip().lower().startswith(("http://", "https://")))
    if not all(map(is_address, addresses)):
        raise ValueError("options whose addresses have no user name, password or key")
    return value


def _collect(value: JsonValue, names: set[str], texts: set[str]) -> None:
    if isinstance(value, str):
        texts.add(value)
    elif isinstance(value, Mapping):
        names.update(value)
    for each in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        _collect(each, names, texts)
