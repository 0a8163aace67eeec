"""Propose how items and rewards are read from a dataset: columns by their names and values, rewarders by the references."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tfgrpo.pipelines.settings.tree import RewarderSettings
from tfgrpo.rewarders.gt import MATCH_OF
from tfgrpo.rewarders.text.columns import ColumnReading, read_column

_LETTERED: Final = re.compile(r"(?:(option|choice|opt|op|answer_option)_?)?([a-j]|[1-9])")
_LISTED: Final = ("choices", "options")
_OPTION_SIGN: Final = "ABCDEFGHIJ"


@dataclass(frozen=True, slots=True)
class Options:
    """The columns of the options of multiple-choice questions."""

    template: str
    """The options as the end of a prompt template."""
    count: int
    """Options of the first item."""

    def prompt(self, column: str) -> str:
        """Return the template of a prompt with its options."""
        return f"{{{column}}}\n\n{self.template}"


def option_columns(columns: Sequence[str], first_row: Mapping[str, Any]) -> Options | None:
    """Return the options that columns hold: one for each letter or number, or a list; None without any."""
    found: dict[str, dict[str, str]] = {}
    for column in columns:
        name = re.sub(r"[\W_]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z0-9])", "_", column).lower()).strip("_")
        if match := _LETTERED.fullmatch(name):
            sign = match[2] if match[2].isalpha() else chr(ord("a") + int(match[2]) - 1)
            found.setdefault(f"{match[1] or ''}{match[2].isalpha()}", {})[sign] = column
    for named in found.values():
        signs = sorted(named)
        if len(signs) > 1 and signs == [chr(ord("a") + index) for index in range(len(signs))]:
            lines = (f"{sign.upper()}) {{{named[sign]}}}" for sign in signs)
            return Options("\n".join(lines), len(signs))
    for column in columns:
        value = first_row.get(column)
        listed = value.get("text") if isinstance(value, Mapping) else value
        if column.lower() in _LISTED and isinstance(listed, list) and len(listed) > 1:
            path = f"{column}.text" if isinstance(value, Mapping) else column
            return Options(f"{{{path}}}", len(listed))
    return None


@dataclass(frozen=True, slots=True)
class Rewards:
    """Rewarders that fit the references of a dataset."""

    entries: tuple[RewarderSettings, ...]
    reason: str
    """What was seen, in one line."""


def proposed_rewards(references: Iterable[str], options: Options | None = None) -> Rewards:
    """Return the rewarders for items with these references; a judge where there is nothing to compare with.

    Long texts are judged beside their reference: nobody repeats them word for word. A reference that is the number of an
    option counts from 0 or 1, whichever the numbers show.
    """
    answers = [each for each in references if each.strip()]
    if not answers:
        reason = "no references, so that a model judges"
        return Rewards((RewarderSettings(name="judge"), *_RANKED), reason)
    column = read_column(answers)
    if options is not None:
        first = _first_number(answers, options.count)
        chosen: dict[str, Any] = {"match": "choice", **({"first": first} if first else {})}
        reason = f"{column.total} references read as one of {options.count} options"
        return Rewards((RewarderSettings(name="gt", options=chosen), *_RANKED), reason)
    if column.kind == "long texts":
        judge = RewarderSettings(name="judge", options={"reference": True})
        return Rewards((judge, *_RANKED), f"{column}, so that a model judges beside the reference")
    return Rewards((RewarderSettings(name="gt", options=gt_options(column)), *_RANKED), str(column))


_RANKED: Final = (RewarderSettings(name="relative", weight=0.0),)


def gt_options(column: ColumnReading) -> dict[str, Any]:
    """Return the options of ``gt`` that read a column."""
    match = MATCH_OF.get(column.kind, "auto")
    options: dict[str, Any] = {"match": match}
    if column.decimal == ",":
        options["decimal"] = ","
    if match == "label":
        options["labels"] = list(column.labels)
    return options


def _first_number(answers: Sequence[str], count: int) -> int:
    """Return 1 where options are numbered from 1, as far as the numbers show; else 0."""
    numbers = {int(answer) for answer in answers if re.fullmatch("[0-9]", answer.strip())}
    return 1 if numbers and 0 not in numbers and max(numbers) == count else 0
