"""Read YAML files with the line of a syntax error; find and read pipeline files: strict YAML with one mapping.

Duplicate keys, keys that are not text, aliases, tags and several documents are refused. Scalars follow YAML 1.2, so
that ``1e-6`` is a number and ``no`` is a word. Unknown keys are refused by ``tfgrpo.pipelines.settings.layers``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tfgrpo.stores.errors import PipelineError
from tfgrpo.stores.text import did_you_mean

SHIPPED = Path(__file__).parent.parent
_SUFFIXES = (".yaml", ".yml")
_KEY_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")
_EXPONENT = r"[eE][-+]?[0-9]+"
_FLOAT = rf"[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:{_EXPONENT})?|[0-9]+{_EXPONENT}|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"


def read_yaml(path: Path, loader: type[yaml.SafeLoader], *, label: str, line: str, accepted: str) -> tuple[bytes, Any]:
    """Return the bytes of a UTF-8 file and its content. Raise ``PipelineError`` for an unreadable file or bad YAML.

    ``label`` names the file in messages; ``line`` is between it and a line number.
    """
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise PipelineError.one(label, error.strerror or type(error).__name__, "a file that can be read") from None
    except UnicodeDecodeError as error:
        raise PipelineError.one(label, f"no UTF-8 at byte {error.start}", "a file in UTF-8") from None
    try:
        return raw, yaml.load(text, Loader=loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{label}{line}{mark.line + 1}" if mark is not None else label
        raise PipelineError.one(where, error.problem or "no YAML", error.note or accepted) from None
    except yaml.YAMLError as error:
        raise PipelineError.one(label, str(error).split("\n", maxsplit=1)[0], accepted) from None
    except RecursionError:
        raise PipelineError.one(label, "nesting without end", f"{accepted}, nested a few levels deep") from None
    except ValueError as error:
        raise PipelineError.one(label, str(error), "numbers of a readable length") from None


def label_of(path: Path) -> str:
    """Return the name of a pipeline file in messages and sources of settings."""
    return f"pipeline file {path}"


def shipped_pipelines() -> tuple[str, ...]:
    """Return the names of the pipelines in the package."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.yaml")))


def find_pipeline(name_or_path: str | Path) -> Path:
    """Return the path of a shipped pipeline by name, or of a file. Raise ``PipelineError`` if there is neither."""
    name = str(name_or_path)
    if name in shipped_pipelines():
        return SHIPPED / f"{name}.yaml"
    path = Path(name)
    if path.is_file():
        return path
    if path.suffix.lower() in _SUFFIXES or len(path.parts) > 1:
        raise PipelineError.one("--pipeline", f"{name!r}, where no file is", "the path of a pipeline file")
    accepted = f"{did_you_mean(name, shipped_pipelines())}, or the path of a pipeline file"
    raise PipelineError.one("--pipeline", repr(name), accepted)


def load_pipeline(path: Path) -> Mapping[str, Any]:
    """Return nested mappings, lists and scalars. Raise ``PipelineError`` for anything but one plain mapping."""
    label = label_of(path)
    _, document = read_yaml(path, _StrictLoader, label=label, line=": line ", accepted="plain YAML")
    if not isinstance(document, dict):
        raise PipelineError.one(label, "no mapping" if document else "nothing", "settings, as `key: value` lines")
    return document


class UniqueKeysLoader(yaml.SafeLoader):
    """A SafeLoader that refuses keys that are no text, and repeated ones, of which YAML silently keeps the last."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._checked: set[int] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Check the keys as written, once, before merge keys add more."""
        seen = set[str]()
        for key, _ in node.value if id(node) not in self._checked else ():
            if key.tag not in _KEY_TAGS:
                problem, accepted = "a key that is no text", "text, in quotes where it looks like a number"
            elif key.value in seen:
                problem, accepted = f"a second {key.value!r}", "every key once"
            else:
                seen.add(key.value)
                continue
            raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark, accepted)
        self._checked.add(id(node))
        super().flatten_mapping(node)


class _StrictLoader(UniqueKeysLoader):
    """YAML 1.2 core scalars, no aliases."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as PyYAML declares it

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "an alias", mark, "every value written out")
        return super().compose_node(parent, index)


for _tag, _pattern, _first in (
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)", "tTfF"),
    ("null", r"(?:~|null|Null|NULL|)", ["~", "n", "N", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", _FLOAT, "-+.0123456789"),
):
    _StrictLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first))
