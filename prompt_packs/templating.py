"""How do values get into a template? Strict ``{{ name }}`` placeholders and nothing else: no logic, no defaults.

A value is put in once and never read again as a template, so nothing that a model wrote can become a placeholder.
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
"""What each learning role is given. A template uses all of it, so that no limit goes unsaid."""


def placeholders(text: str) -> frozenset[str]:
    """Names of the placeholders in a template."""
    return frozenset(_PLACEHOLDER.findall(text))


def template_problems(text: str, fields: frozenset[str], source: str) -> tuple[Problem, ...]:
    """Say what keeps a template from being rendered with exactly these fields."""
    used = placeholders(text)
    accepted = (
        "placeholders " + ", ".join(f"{{{{ {name} }}}}" for name in sorted(fields)) if fields else "no placeholder"
    )
    found = [Problem(source, f"unknown placeholder {name}", accepted) for name in sorted(used - fields)]
    found += [Problem(source, f"no placeholder {name}", accepted) for name in sorted(fields - used)]
    if stray := _STRAY.search(_PLACEHOLDER.sub("", text)):
        found.append(Problem(source, f"stray {stray.group()}", accepted))
    return tuple(found)


def render_template(text: str, **fields: str | int) -> str:
    """Put the values in. Raises ``PackError`` when the placeholders are not exactly the fields given."""
    if problems := template_problems(text, frozenset(fields), "template"):
        raise PackError(problems)
    return _PLACEHOLDER.sub(lambda match: str(fields[match.group(1)]), text)
