"""Take a YAML document of the mix form apart, and collect all its problems instead of stopping at the first.

Numbers are read as the form has always read them: text that Python's ``int`` or ``float`` takes is a number too.
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
from tfgrpo.pipelines.settings.pipeline_file import read_yaml
from tfgrpo.stores.errors import PipelineError, Problem


class Checker:
    """Collects the problems of one file. An invalid value is returned as None, or omitted from its collection."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.problems: list[Problem] = []

    def refuse(self, key: str, given: str, accepted: str) -> None:
        """Record a problem of the value at a dotted key."""
        self.problems.append(Problem(f"{self.label}: {key}" if key else self.label, given, accepted))

    def raise_problems(self) -> None:
        """Raise all problems, each once, if there are any."""
        if self.problems:
            raise PipelineError(tuple(dict.fromkeys(self.problems)))

    def mapping(self, value: object, key: str, known: Iterable[str] | None = None) -> Mapping[str, Any] | None:
        """Return a mapping with text keys. Unknown keys are refused, and the rest is read."""
        if not isinstance(value, dict):
            self.refuse(key, shown_or_nothing(value), "a mapping")
            return None
        names = None if known is None else frozenset(known)
        for name in value:
            below = f"{key}.{name}" if key else str(name)
            if not isinstance(name, str) or not name:
                self.refuse(below, f"{shown(name)} as a key", "text, in quotes where it looks like a number")
            elif names is not None and name not in names:
                self.refuse(below, "an unknown key", did_you_mean(name, names))
        return {name: part for name, part in value.items() if isinstance(name, str) and name}

    def sequence(self, value: object, key: str) -> Sequence[Any]:
        """Return a list; an empty one for None."""
        if value is None:
            return ()
        if not isinstance(value, list):
            self.refuse(key, shown_or_nothing(value), "a list")
            return ()
        return value

    def text(self, value: object, key: str) -> str | None:
        """Return text that is not blank."""
        if isinstance(value, str) and value.strip():
            return value
        self.refuse(key, shown_or_nothing(value), "text that is not empty")
        return None

    def number(self, value: object, key: str, *, positive: bool = False) -> float | None:
        """Return a finite number of at least 0, or above 0."""
        try:
            number = float(value) if isinstance(value, str | int | float) else math.nan
        except (ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number) and (number > 0.0 or (number == 0.0 and not positive)):
            return number
        self.refuse(key, shown_or_nothing(value), f"a finite number {'above' if positive else 'of at least'} 0")
        return None

    def whole(self, value: object, key: str) -> int | None:
        """Return a whole number; a fraction is cut off, as ``int`` does."""
        try:
            if isinstance(value, str | int | float):
                return int(value)
        except (ValueError, OverflowError):
            pass
        self.refuse(key, shown_or_nothing(value), "a whole number")
        return None


@dataclass(frozen=True, slots=True)
class Document:
    """Content of a YAML file."""

    content: object
    digest: str
    """SHA-256 of its bytes."""
    repeated_keys: tuple[Problem, ...]
    """Keys that a mapping has more than once: YAML would silently keep the last."""


def read_document(path: Path) -> Document:
    """Read a YAML file as ``yaml.safe_load`` does. Raise ``PipelineError`` with the line of bad YAML."""
    raw, loader = read_yaml(path, _load, label=str(path), line=":", accepted="YAML")
    problems = (Problem(f"{path}:{line}", f"a second {name!r}", "every key once") for line, name in loader.repeated)
    return Document(loader.content, hashlib.sha256(raw).hexdigest(), tuple(problems))


def _load(text: str) -> _Loader:
    loader = _Loader(text)
    loader.content = loader.get_single_data()
    return loader


class _Loader(yaml.SafeLoader):
    """A SafeLoader that records repeated keys of mappings with their lines."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.content: object = None
        self.repeated: list[tuple[int, str]] = []
        self._seen: set[int] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Check the keys as written, once, before merge keys add more."""
        if id(node) not in self._seen:
            self._seen.add(id(node))
            keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            names = [key.value for key in keys]
            self.repeated += [
                (key.start_mark.line + 1, key.value) for at, key in enumerate(keys) if key.value in names[:at]
            ]
        super().flatten_mapping(node)


def shown_or_nothing(value: object) -> str:
    """Return a value for a message; None is ``nothing``."""
    return "nothing" if value is None else shown(value)
