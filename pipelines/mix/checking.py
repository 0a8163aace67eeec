"""How is a YAML document of the mix form taken apart without stopping at its first mistake? Values out, problems noted.

Numbers are read as the form has always read them: text that Python's ``int`` or ``float`` takes is a number too.
What keys there are is known to ``tfgrpo.pipelines.mix.config``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tfgrpo.pipelines.problems import did_you_mean, shown
from tfgrpo.stores.errors import ConfigError, PipelineError, Problem


class Checker:
    """Collects what is wrong with one file. Every value that is wrong comes out as None, or left out of a collection."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.problems: list[Problem] = []

    def refuse(self, key: str, given: str, accepted: str) -> None:
        """Note a problem with the value at a dotted key."""
        self.problems.append(Problem(f"{self.label}: {key}" if key else self.label, given, accepted))

    def take(self, error: ConfigError) -> None:
        """Note what another part refused."""
        self.problems.extend(error.problems)

    def raise_found(self) -> None:
        """Raise everything noted, each once, if anything was."""
        if self.problems:
            raise PipelineError(tuple(dict.fromkeys(self.problems)))

    def mapping(self, value: object, key: str, known: Iterable[str] | None = None) -> Mapping[str, Any] | None:
        """A mapping whose keys are text; keys that are not ``known`` are refused one by one, and the rest is read."""
        if not isinstance(value, dict):
            self.refuse(key, said(value), "a mapping")
            return None
        names = None if known is None else frozenset(known)
        for name in value:
            if not isinstance(name, str) or not name:
                self.refuse(
                    _below(key, name), f"{shown(name)} as a key", "text, in quotes where it looks like a number"
                )
            elif names is not None and name not in names:
                self.refuse(_below(key, name), "an unknown key", did_you_mean(name, names))
        return {name: part for name, part in value.items() if isinstance(name, str) and name}

    def sequence(self, value: object, key: str) -> Sequence[Any]:
        """A list; nothing at all counts as an empty one."""
        if value is None:
            return ()
        if not isinstance(value, list):
            self.refuse(key, said(value), "a list")
            return ()
        return value

    def text(self, value: object, key: str) -> str | None:
        """Text that is not blank."""
        if isinstance(value, str) and value.strip():
            return value
        self.refuse(key, said(value), "text that is not empty")
        return None

    def number(self, value: object, key: str, *, positive: bool = False) -> float | None:
        """A finite number of at least 0, or above 0."""
        try:
            number = float(value) if isinstance(value, str | int | float) else math.nan
        except (ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number) and (number > 0.0 or (number == 0.0 and not positive)):
            return number
        self.refuse(key, said(value), f"a finite number {'above' if positive else 'of at least'} 0")
        return None

    def whole(self, value: object, key: str) -> int | None:
        """A whole number; a fraction is cut off, as ``int`` does."""
        try:
            if isinstance(value, str | int | float):
                return int(value)
        except (ValueError, OverflowError):
            pass
        self.refuse(key, said(value), "a whole number")
        return None


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML file as read."""

    content: object
    digest: str
    """SHA-256 of its bytes."""
    twice: tuple[Problem, ...]
    """Keys that stand more than once in a mapping, of which YAML would keep the last without a word."""


def read_document(path: Path) -> Document:
    """Read a YAML file as ``yaml.safe_load`` does. Raises ``PipelineError`` naming the line that is no YAML."""
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise PipelineError.one(str(path), error.strerror or type(error).__name__, "a file that can be read") from None
    except UnicodeDecodeError as error:
        raise PipelineError.one(str(path), f"no UTF-8 at byte {error.start}", "a file in UTF-8") from None
    try:
        loader = _Loader(text)
        content: object = loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        raise PipelineError.one(where, error.problem or "no YAML", error.note or "YAML") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise PipelineError.one(str(path), str(error).split("\n", maxsplit=1)[0], "YAML") from None
    twice = (Problem(f"{path}:{line}", f"a second {name!r}", "every key once") for line, name in loader.twice)
    return Document(content, hashlib.sha256(raw).hexdigest(), tuple(twice))


class _Loader(yaml.SafeLoader):
    """A SafeLoader that remembers which keys stand twice in a mapping, and on which line."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.twice: list[tuple[int, str]] = []
        self._seen: set[int] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Look at the keys as written, before merge keys are resolved into more of them, and only once."""
        if id(node) not in self._seen:
            self._seen.add(id(node))
            keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            names = [key.value for key in keys]
            self.twice += [
                (key.start_mark.line + 1, key.value) for at, key in enumerate(keys) if key.value in names[:at]
            ]
        super().flatten_mapping(node)


def said(value: object) -> str:
    """A value as a message may repeat it; what is missing is nothing."""
    return "nothing" if value is None else shown(value)


def _below(key: str, name: object) -> str:
    return f"{key}.{name}" if key else str(name)
