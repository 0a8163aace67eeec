"""Find prompt injections in a lesson: instructions to the reader, markup, secrets and addresses.

Patterns are in ``screening.yaml``. They are matched on a folded copy (compatibility forms, look-alike letters, case,
spelled-out letters), so that disguised text is found too.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Literal, NamedTuple, TypeAlias

from tfgrpo.stores.packaged import packaged_yaml

AttackRule: TypeAlias = Literal["markup", "order", "secret", "address", "answer"]


class Attack(NamedTuple):
    """The reason for people and the rule for code."""

    reason: str
    rule: AttackRule


SCREENING: dict[str, Any] = packaged_yaml(__file__, "screening.yaml")
"""Word lists and patterns of the screening."""


_PART = re.compile(r"\{([a-z_]+)\}")  # unlike a number of repetitions, ``{2,3}``


def _filled(pattern: str) -> str:
    """Return a pattern with every ``{name}`` replaced by the part of that name."""
    return _PART.sub(lambda match: _filled(SCREENING["parts"][match[1]]), pattern)


_ATTACKS = {
    rule: [re.compile(_filled(pattern)) for pattern in attack["patterns"]]
    for rule, attack in SCREENING["attacks"].items()
}
_HARMLESS = re.compile("|".join(map(_filled, SCREENING["harmless"])))
_LOOK_ALIKES = {ord(shown): meant for meant, group in SCREENING["look_alikes"].items() for shown in group}
_LEET = str.maketrans("0134578@$", "oieastbas")
_MIXED_WORD = re.compile(r"(?=\w*[a-z])(?=[\w@$]*[\d@$])[\w@$]{4,}")
_SPELLED_OUT = re.compile(r"(?<![^\W_])(?:[^\W\d_][ .\-_*]){3,}[^\W\d_](?![^\W_])")


def fold(text: str) -> str:
    """Return the text as a reader sees it: case, accents and look-alikes folded, s p e l l e d out letters joined."""
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    plain = "".join(character for character in decomposed if not unicodedata.combining(character))
    joined = _SPELLED_OUT.sub(lambda match: re.sub(r"[ .\-_*]", "", match.group()), plain.translate(_LOOK_ALIKES))
    return " ".join(joined.split())


def attack_in(text: str) -> Attack | None:
    """Return the first attack in a lesson, or None."""
    folded = fold(text)
    unleeted = _MIXED_WORD.sub(lambda match: match.group().translate(_LEET), folded)
    remaining = _HARMLESS.sub(" ", folded)
    subjects: tuple[tuple[AttackRule, str], ...] = (
        ("secret", unicodedata.normalize("NFKC", text)),
        ("markup", folded),
        ("address", folded),
        ("order", remaining),
        ("answer", remaining),
        ("order", _HARMLESS.sub(" ", unleeted)),
    )
    for rule, subject in subjects:
        if any(pattern.search(subject) for pattern in _ATTACKS[rule]):
            return Attack(SCREENING["attacks"][rule]["reason"], rule)
    return None
