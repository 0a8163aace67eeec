"""Build the actor's system prompt: the text of the pack, then the lessons that are signed under it.

Only this module adds lessons to a prompt. It skips unsigned, outdated, too long and suspicious ones, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tfgrpo.prompt_packs.models import LEADS, LoadedPack
from tfgrpo.prompt_packs.safety import Rejection, screen_lesson
from tfgrpo.prompt_packs.stamps import is_approved, pack_stamp
from tfgrpo.stores.experiences.store import ExperienceRecord, PackStamp, signature_holds

STALE_STAMP = "stamp of another pack version"
OTHER_PACK = "record of another pack"
UNSTAMPED = "no stamp"
REPEATED = "already in the prompt"
NO_SLOT = "no slot left"

_OPENING, _CLOSING = "<lessons>\n", "</lessons>"
_TAG = re.compile(rb"lessons(?:>|\\u003[eE])")
"""JSON writers escape the end of a line, and may escape the brackets."""
_LINE = re.compile(rf"(?:\n|\\n)(?:{'|'.join(LEADS.values())})".encode())
_FILLER = "Read the task as it stands and answer it in the form that it asks for. "


class MergedPrompt(NamedTuple):
    """The system text of one prompt and its lessons."""

    text: str
    experience_ids: tuple[str, ...]
    """Lessons in the text, in order."""
    skipped: tuple[tuple[str, str], ...]
    """(experience id, reason) of every skipped lesson."""


def merge_experiences(pack: LoadedPack, experiences: Sequence[ExperienceRecord] = ()) -> MergedPrompt:
    """Add the first ``experience_slots`` usable lessons, in the given order, below the pack's text.

    Every call verifies the pack again: raise ``PackError`` if its loaded texts do not match its stamp; use no lesson if
    its directory has another version by now. Every record's signature is checked against the pack in force. The same
    arguments give the same text, and each further lesson only adds a line before the closing tag.
    """
    return merge_each(pack, [experiences])[0]


def merge_each(pack: LoadedPack, prompts: Sequence[Sequence[ExperienceRecord]]) -> list[MergedPrompt]:
    """Merge the lessons of each prompt as ``merge_experiences`` does; pack and lessons are verified once for all."""
    stamp = pack_stamp(pack) if is_approved(pack) else None
    # By identity: what two records have in common says nothing of the signature of the other.
    records = {id(record): record for experiences in prompts for record in experiences}
    checked = {
        key: _lesson_line(record, pack, stamp) if stamp else ("", STALE_STAMP) for key, record in records.items()
    }
    return [_merged(pack, experiences, checked) for experiences in prompts]


def _merged(
    pack: LoadedPack, experiences: Sequence[ExperienceRecord], checked: Mapping[int, tuple[str, str]]
) -> MergedPrompt:
    lines: list[str] = []
    used: list[str] = []
    skipped: list[tuple[str, str]] = []
    for record in experiences:
        line, reason = checked[id(record)]
        if not reason and line in lines:
            reason = REPEATED
        if not reason and len(lines) >= pack.manifest.experience_slots:
            reason = NO_SLOT
        if reason:
            skipped.append((record.experience_id, reason))
            continue
        lines.append(line)
        used.append(record.experience_id)
    parts = [pack.system_text, *pack.inject_texts]
    if lines:
        parts.append(_OPENING + "\n".join([pack.templates["lessons"], *lines, _CLOSING]))
    return MergedPrompt("\n\n".join(parts), tuple(used), tuple(skipped))


def lessons_block(text: str) -> str:
    """Return the lessons of a system text of ``merge_experiences``, tags included; empty without any."""
    start = text.rfind(_OPENING)
    return text[start : text.rfind(_CLOSING) + len(_CLOSING)] if start >= 0 else ""


def lessons_in(text: str) -> list[str]:
    """Return the lessons of a system text of ``merge_experiences``, each as ``Do: …`` or ``Avoid: …``, in order."""
    leads = tuple(LEADS.values())
    return [line.removeprefix("- ") for line in lessons_block(text).split("\n") if line.startswith(leads)]


def holds_lessons(text: str | bytes) -> bool:
    """Return whether a text, or the JSON of a request, has a block of lessons, whatever introduces them."""
    data = text.encode(errors="replace") if isinstance(text, str) else text
    opening = _TAG.search(data)
    return opening is not None and _LINE.search(data, opening.end()) is not None


def with_sample_lesson(text: str) -> str:
    """Return a pack's text with one lesson about nothing, to see where lessons arrive."""
    return f"{text}\n\n{_OPENING}{LEADS['do']}{_FILLER.strip()}\n{_CLOSING}"


def without_meaning(text: str) -> str:
    """Return a system text with neutral words of equal length in place of each lesson: a placebo."""
    block, lead = lessons_block(text), LEADS["do"]
    lines = (
        lead + (_FILLER * len(line))[: max(1, len(line) - len(lead))].rstrip()
        if line.startswith(tuple(LEADS.values()))
        else line
        for line in block.split("\n")
    )
    return text.removesuffix(block) + "\n".join(lines)


def _lesson_line(record: ExperienceRecord, pack: LoadedPack, stamp: PackStamp) -> tuple[str, str]:
    """Return the line of a lesson and the reason to skip it; one of the two is empty."""
    if (record.pack_id, record.domain) != (pack.manifest.id, pack.manifest.domain):
        return "", OTHER_PACK
    if not record.stamp_signature:
        return "", UNSTAMPED
    if not signature_holds(record, stamp):
        return "", STALE_STAMP
    screened = screen_lesson(record.summary32, max_words=pack.max_words)
    if isinstance(screened, Rejection):
        return "", screened.reason
    return LEADS[record.polarity] + screened.text, ""
