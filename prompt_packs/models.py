"""Define prompt packs: the strict manifest, the templates, a verified pack in memory; and read the files of a directory.

Contents are verified in ``tfgrpo.prompt_packs.stamps``. Templates have strict ``{{ name }}`` placeholders, without logic
or defaults. Values are not parsed again, so that a model's text can never become a placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias, get_args

from pydantic import AfterValidator, Field, ValidationError, model_validator

from tfgrpo.stores.errors import PackError, Problem, ProblemCollector
from tfgrpo.stores.experiences.store import Identifier, Polarity, Strict
from tfgrpo.stores.json_values import UNIQUE, canonical_text, load_json
from tfgrpo.stores.text import MAX_WORDS, check_identifier

MANIFEST = "manifest.json"
MAX_SOURCE_BYTES = 256 * 1024
TemplateRole: TypeAlias = Literal["reflect", "curate", "shorten", "repair", "lessons"]
TEMPLATE_ROLES: tuple[TemplateRole, ...] = get_args(TemplateRole)
LEADS: Mapping[Polarity, str] = {"do": "- Do: ", "avoid": "- Avoid: "}
_PLACEHOLDER = re.compile(r"\{\{ *([a-z][a-z0-9_]*) *\}\}")
_STRAY = re.compile(r"\{\{|\}\}|\{%|%\}|\{#|#\}")
TEMPLATE_FIELDS: Mapping[TemplateRole, frozenset[str]] = {
    "reflect": frozenset({"max_lessons", "max_words"}),
    "curate": frozenset({"max_words"}),
    "shorten": frozenset({"max_chars", "max_words"}),
    "repair": frozenset({"max_words"}),
    "lessons": frozenset(),
}
"""Fields of each template. It must use all of them, so that no limit is missing."""


def check_source_name(value: str) -> str:
    """Return the name of a source: ``.md``, inside the pack, ``/`` between folders. Raise ``ValueError``."""
    for part in value.split("/"):
        check_identifier(part)
    if not value.endswith(".md"):
        raise ValueError(f"{value!r} does not end in .md")
    return value


def _check_stamp(value: str) -> str:
    if not re.fullmatch("([0-9A-Fa-f]{64})?", value):
        raise ValueError("the stamp must be 64 hex digits")
    return value.lower()


def _check_time(value: str) -> str:
    if value and datetime.fromisoformat(value).tzinfo is None:
        raise ValueError("stamped_at must carry a time zone")
    return value


SourceName = Annotated[str, AfterValidator(check_source_name)]


class TemplateFiles(Strict):
    """The source of each template: those of the learning roles, and what introduces the lessons in a prompt."""

    reflect: SourceName
    curate: SourceName
    shorten: SourceName
    repair: SourceName
    lessons: SourceName


class PromptPackManifest(Strict):
    """``manifest.json`` of a pack.

    The stamp covers id, domain, the sources and their roles. Slots, tags and the word limit can be changed without
    retiring the lessons that were learned under the stamp.
    """

    schema_version: Literal[1] = 1
    id: Identifier
    domain: Identifier
    stamp: Annotated[str, AfterValidator(_check_stamp)] = ""
    """Hex SHA-256, see ``tfgrpo.prompt_packs.stamps.compute_stamp``. Empty until the pack is stamped."""
    stamped_at: Annotated[str, AfterValidator(_check_time)] = ""
    """Time of the stamp, ISO 8601 with a zone; part of every signature, so another time retires the lessons."""
    system: SourceName
    inject: tuple[SourceName, ...] = ()
    templates: TemplateFiles
    experience_slots: int = Field(ge=0, le=200)
    tags: tuple[Identifier, ...] = ()
    experience_max_words: int | None = Field(default=None, ge=4, le=MAX_WORDS)
    """Longest lesson in words. None: the general limit."""

    @model_validator(mode="after")
    def _refuse_repeated_sources(self) -> Self:
        names = self.source_names
        if len({name.casefold() for name in names}) != len(names):
            raise ValueError("a source is named twice; each file has one role")
        return self

    @property
    def template_names(self) -> dict[TemplateRole, str]:
        """Source of each template."""
        return {role: getattr(self.templates, role) for role in TEMPLATE_ROLES}

    @property
    def source_names(self) -> tuple[str, ...]:
        """Every source, in the order of the manifest."""
        return (self.system, *self.inject, *self.template_names.values())

    @property
    def max_words(self) -> int:
        """Longest lesson in words that this pack allows."""
        return MAX_WORDS if self.experience_max_words is None else self.experience_max_words


@dataclass(frozen=True, slots=True)
class LoadedPack:
    """A verified pack with its texts, without headers, with LF line ends."""

    manifest: PromptPackManifest
    root: Path
    bodies: Mapping[str, str]
    """Text of each source by its name."""
    words_allowed: int = MAX_WORDS

    @property
    def max_words(self) -> int:
        """Longest lesson in words that both run and pack allow."""
        return min(self.words_allowed, self.manifest.max_words)

    @property
    def text(self) -> str:
        """The system text without lessons: that of the pack, and what it injects."""
        return "\n\n".join(self.bodies[name] for name in (self.manifest.system, *self.manifest.inject))

    @property
    def templates(self) -> dict[TemplateRole, str]:
        """By role: ``reflect``, ``curate``, ``shorten`` and ``repair``, with placeholders; ``lessons``."""
        return {role: self.bodies[name] for role, name in self.manifest.template_names.items()}


def read_manifest(directory: Path) -> PromptPackManifest:
    """Read ``manifest.json`` strictly. Raise ``PackError`` with all its problems."""
    path = directory / MANIFEST
    text = read_text(directory, MANIFEST)
    try:
        # Parsed twice: pydantic takes the last of two equal keys without a word.
        load_json(text, UNIQUE)
        manifest = PromptPackManifest.model_validate_json(text)
    except ValidationError as error:
        problems = []
        for part in error.errors():
            received = "nothing" if part["type"] == "missing" else repr(part["input"])[:80]
            problems.append(Problem(f"{path}: {'.'.join(map(str, part['loc'])) or 'manifest'}", received, part["msg"]))
        raise PackError(problems) from None
    except (ValueError, RecursionError) as error:
        raise PackError.one(str(path), str(error) or type(error).__name__, "a JSON object") from None
    # A link to a pack may have another name.
    if manifest.id != directory.resolve().name and manifest.id != directory.name:
        raise PackError.one(str(path), f"id {manifest.id!r}", f"the name of its directory, {directory.name!r}")
    return manifest


def read_text(directory: Path, name: str) -> str:
    """Read one file of a pack as UTF-8, without byte order mark, with LF line ends.

    Raise ``PackError`` if it is missing, not UTF-8, too large, no plain file, or a link to outside the directory.
    """
    path = directory / name
    try:
        if not path.resolve(strict=True).is_relative_to(directory.resolve(strict=True)):
            raise PackError.one(str(path), "a link that leaves the pack", "a file inside the pack")
        if not path.is_file():
            raise PackError.one(str(path), "no plain file", "a text file")
        with path.open("rb") as stream:
            raw = stream.read(MAX_SOURCE_BYTES + 1)
    except (OSError, RuntimeError) as error:
        # Links in a circle raise RuntimeError before Python 3.13.
        received = "no such file" if isinstance(error, FileNotFoundError) else type(error).__name__
        raise PackError.one(str(path), received, "a readable text file") from None
    if len(raw) > MAX_SOURCE_BYTES:
        raise PackError.one(str(path), "a larger file", f"at most {MAX_SOURCE_BYTES} bytes")
    try:
        return canonical_text(raw)
    except ValueError:
        raise PackError.one(str(path), "bytes that are not UTF-8", "UTF-8 text") from None


def read_pack(directory: Path) -> tuple[PromptPackManifest, dict[str, str]]:
    """Read the manifest and the text of each of its sources. Raise ``PackError`` with the problems of all."""
    manifest = read_manifest(directory)
    checks = ProblemCollector()
    texts = {name: checks.run(read_text, directory, name) for name in manifest.source_names}
    checks.raise_problems()
    return manifest, {name: text for name, (text,) in texts.items()}


def template_problems(text: str, fields: frozenset[str], source: str) -> tuple[Problem, ...]:
    """Return why a template cannot be rendered with exactly these fields."""
    used = frozenset(_PLACEHOLDER.findall(text))
    accepted = "placeholders " + ", ".join(f"{{{{ {name} }}}}" for name in sorted(fields)) if fields else "no placeholder"
    faults = [Problem(source, f"unknown placeholder {name}", accepted) for name in sorted(used - fields)]
    faults += [Problem(source, f"no placeholder {name}", accepted) for name in sorted(fields - used)]
    if stray := _STRAY.search(_PLACEHOLDER.sub("", text)):
        faults.append(Problem(source, f"stray {stray.group()}", accepted))
    return tuple(faults)


def render_template(text: str, **fields: str | int) -> str:
    """Return the template with its values. Raise ``PackError`` if the placeholders are not exactly these fields."""
    if problems := template_problems(text, frozenset(fields), "template"):
        raise PackError(problems)
    return _PLACEHOLDER.sub(lambda match: str(fields[match.group(1)]), text)
