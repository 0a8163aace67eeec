"""Read the YAML of a mix file, with the lines of its syntax errors and of the keys that it repeats."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import yaml

from tfgrpo.pipelines.settings.pipeline_file import read_yaml
from tfgrpo.stores.errors import Problem


class Document(NamedTuple):
    """Content of a YAML file."""

    content: object
    digest: str
    """SHA-256 of its bytes."""
    repeated_keys: tuple[Problem, ...]
    """Keys that a mapping has more than once: YAML would silently keep the last."""


def read_document(path: Path) -> Document:
    """Read a YAML file as ``yaml.safe_load`` does. Raise ``PipelineError`` with the line of bad YAML."""
    raw, (content, repeated) = read_yaml(path, _load, label=str(path), line=":", accepted="YAML")
    problems = (Problem(f"{path}:{line}", f"a second {name!r}", "every key once") for line, name in repeated)
    return Document(content, hashlib.sha256(raw).hexdigest(), tuple(problems))


def _load(text: str) -> tuple[object, list[tuple[int, str]]]:
    loader = _Loader(text)
    return loader.get_single_data(), loader.repeated


class _Loader(yaml.SafeLoader):
    """A SafeLoader that records repeated keys of mappings with their lines."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
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
