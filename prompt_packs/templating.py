"""Render templates with strict ``{{ name }}`` placeholders, without logic or defaults.

Values are not parsed again, so that a model's text can never become a placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tfgrpo.prompt_packs.models import TemplateRole
from tfgrpo.stores.errors import PackError, Problem

_PLACEHOLDER = re.compile(r"\{\{ *([a-z][a-z0-9_]*) *\}\}")
_STRAY = re.compile(r"\{\{|\}\}|\{%|%\}|\{#|#\}")

TEMPLATE_FIELDS: Mapping[TemplateRole, frozenset[str]] = {
    "reflect": frozenset({"max_lessons", "max_words"}),
    "curate": frozenset({"capacity", "edit_budget", "max_words"}),
    "shorten": frozenset({"max_chars", "max_words"}),
    "repair": frozenset({"max_words"}),
}
"""Fields of each learning role. A template must use all of them, so that no limit is missing."""


def template_problems(text: str, fields: frozenset[str], source: str) -> tuple[Problem, ...]:
    """Return why a template cannot be rendered with exactly these fields."""
    used = frozenset(_PLACEHOLDER.findall(text))
    accepted = (
        "placeholders " + ", ".join(f"{{{{ {name} }}}}" for name in sorted(fields)) if fields else "no placeholder"
    )
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
