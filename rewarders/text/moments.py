"""Read dates, times of day and durations, and compare an output with one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import ClassVar, Final, Literal, TypeAlias

from tfgrpo.rewarders.text.answers import VOCABULARY, Stated
from tfgrpo.rewarders.text.base import parts_of
from tfgrpo.rewarders.text.lexer import TO_BASE, UNITS, written
from tfgrpo.rewarders.text.numbers import in_digits
from tfgrpo.rewarders.text.rules import RELATED, Compared, ReadAnswer, denies, first_of, shown
from tfgrpo.rewarders.text.rules import AnswerRule as Rule
from tfgrpo.rewarders.text.spelling import BOLD, NAMES_OF_DAYS, plain
from tfgrpo.rewarders.text.words import TextReference
from tfgrpo.stores.errors import RewardError

DateOrder: TypeAlias = Literal["", "day", "month"]
Readings: TypeAlias = set[tuple[Fraction | int, ...]]
"""What a moment may be: dates of year, month and day, times of hour, minute and second, or seconds."""
_MONTHS: Final = {name: at for at, names in enumerate(VOCABULARY["months"], start=1) for name in names.split()}
_MONTH: Final = rf"(?P<month>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})(?![^\W\d_])\.?"
_ERA: Final = r"\s?(?:a\.?d|c\.?e|(?P<before>b\.?c(?:\.?e)?))\b\.?"
_Y: Final = rf"(?P<y>\d{{4}}|\d{{3}}(?={_ERA.replace('?P<before>', '?:')}|\W*$|[.,;!)]\W))(?:{_ERA})?"
_D: Final = r"(?P<d>\d{1,2})"
_TH: Final = r"(?:st|nd|rd|th)?"
_OF: Final = r"(?:st|nd|rd|th|er|\.|º)?(?:\s+(?:of|de))?[\s-]+"
_DATES: Final = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        r"(?<!\d)(?P<y>(?:19|20)\d\d)(?P<m>0\d|1[0-2])(?P<d>[0-3]\d)(?!\d)",  # 20240103
        rf"(?<![\d-]){_Y}[-/.年년]\s?(?P<m>\d{{1,2}})[-/.月월]\s?{_D}(?:[日일]|(?![\d-]))",  # 2024-01-03
        rf"{_MONTH}\s+{_D}{_TH},?\s+{_Y}",  # January 3rd, 2024
        rf"{_D}{_OF}{_MONTH}(?:,?|\s+del?)[\s-]+{_Y}",  # 3 de enero de 2024
        r"(?<![\d/])(?P<one>\d{1,2})[/.-](?P<two>\d{1,2})(?:[/.-](?P<y>\d{4})|/(?P<yy>\d\d))(?![\d/])",  # 03/01/2024
    )
)
SLASHED: Final = _DATES[-1]
_DAYS: Final = re.compile(rf"(?<!\w)(?:{'|'.join(name for names in VOCABULARY['days'] for name in names.split())})(?!\w)")
_DAY_NAME: Final = rf"{_DAYS.pattern}\.?,? (?=.*\d|$)"
_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\d[t ]\d\d:\d\d(?::\d\d)?")
_FORMAT: Final = re.compile(r"(?P<month>\bMM?[/-]DD?\b)|\bDD?[/-]MM?\b")
_PARTS: Final = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"(?<!\d[ .])(?<!\w){_MONTH}(?:,?|\s+(?:of|de))\s+{_Y}(?!\d)",  # January 2024
        rf"(?<!\w){_MONTH}\s+{_D}{_TH}(?![\d:%])(?!,?\s+\d)",  # January 3
        rf"(?<![\d.,]){_D}{_OF}{_MONTH}(?!,?(?:\s+del?)?\s+\d)",  # 3rd of January
        rf"(?<![\d/.-]){_Y}-(?P<m>\d\d)(?![\d/-])",  # 2024-01
        rf"(?<![\d/.-])(?P<m>\d\d?)/{_Y}(?![\d/-])",  # 1/2024
    )
)
_CLOCK: Final = re.compile(
    r"(?<![\d:.])(?P<h>\d{1,2})(?:[:.h](?P<m>\d\d)(?::(?P<s>\d\d))?(?![\dm]|:\d)|(?=\s*[ap]\.?m\b))\s*(?P<half>[ap]\.?m\b)?",
    re.IGNORECASE,
)
_ZONES: Final = {name: offset for names, offset in VOCABULARY["zones"].items() for name in names.split()}
_ZONED: Final = re.compile(rf"(?i){_CLOCK.pattern}\.?\s*\(?(?P<zone>{'|'.join(_ZONES)})(?!\w)\)?")
_SENTENCES: Final = re.compile(r"(?<=\w{2}[.!?])\s+")
_TIME_UNITS: Final = "|".join(
    name for name, unit in UNITS.items() if unit in TO_BASE and TO_BASE[unit][0] in ("second", "inch")
)
_TIME: Final = rf"(\d+(?:\.\d+)?)\s*({_TIME_UNITS}|m)(?![^\W\d_])"
_NO_BOUND: Final = r"(?<![\d.])(?<!\d-)(?<!\d to )(?<!\d or )(?<!\d and )(?<!over )(?<!under )(?<!than )(?<!least )(?<!most )"
_DURATION: Final = re.compile(rf"{_NO_BOUND}{_TIME}(?:[,\s]*(?:and\s+)?{_TIME})*")
# The plain form of a text has ½ as 1, a fraction slash and 2.
_HALVES: Final = re.compile(r"\b(\d+)(?:\u00bd|1\u20442| 1[/\u2044]2| and a half)(?= \w)")


def dates(text: str, forms: Sequence[re.Pattern[str]] = _DATES, order: DateOrder = "") -> list[Readings]:
    """Return the dates of a plain text; 0 for the year or the day that one does not have."""
    readings: list[Readings] = []
    for each in (match for form in forms for match in form.finditer(text)):
        part = each.groupdict()
        if "one" in part:
            one, two = int(each["one"]), int(each["two"])
            day_first = "." in each[0] or order == "day"  # with points it is
            orders = ((two, one),) if day_first else ((one, two), (two, one))[: 1 if order else 2]
            years = [int(each["y"])] if each["y"] else [1900 + int(each["yy"]), 2000 + int(each["yy"])]
            readings.append({(year, month, day) for year in years for month, day in orders if 1 <= month <= 12})
        else:
            month = _MONTHS[part["month"].lower()] if "month" in part else int(part["m"])
            year = int(part.get("y") or 0) * (-1 if part.get("before") else 1)
            readings.append({(year, month, int(part.get("d") or 0))})
    return _distinct(readings)


def _times(text: str) -> list[Readings]:
    readings: list[Readings] = []
    for each in _CLOCK.finditer(written(text, "times")):
        hour, minute, second = _hands(each)
        if each["half"]:
            hour = hour % 12 + 12 * (each["half"][0] in "pP")
        if hour < 25 and minute < 60:
            readings.append({(hour, minute, second)})
    return _distinct(readings)


def _stamps(text: str) -> list[Readings]:
    days, hours = dates(text), _times(re.sub(r"\d{4}-\d\d-\d\d[t ]?|\d+\.\d+\.\d{4}", " ", text))
    return [{(*day, *hour) for day in days[0] for hour in hours[0]}] if len(days) == len(hours) == 1 else []


def _zoned_times(text: str) -> list[Readings]:
    zoned = [(each, moment) for each in _ZONED.finditer(text) for readings in _times(each[0]) for moment in readings]
    # In minutes of a day of UTC.
    return _distinct(
        [{((60 * hour + minute - _ZONES[each["zone"].lower()]) % 1440, second)} for each, (hour, minute, second) in zoned]
    )


def durations(text: str) -> list[Readings]:
    """Return the durations of a plain text in seconds, and its lengths of feet in inches."""
    text = written(_HALVES.sub(r"\1.5", in_digits(text, "")), "spans")
    spans = (re.findall(_TIME, each[0]) for each in _DURATION.finditer(text))
    return [
        {(sum(Fraction(number) * TO_BASE[UNITS["min" if unit == "m" else unit]][1] for number, unit in each),)}
        for each in spans
    ]


def _spans(text: str) -> list[Readings]:
    """Return durations in seconds, also those with colons: ``2:03:59``, and ``1:45`` with two readings."""
    bare = plain(text)
    clocks = [(_hands(each), each["s"]) for each in _CLOCK.finditer(bare)]
    return durations(bare) or [
        {(3600 * hour + 60 * minute + second,), *(() if exact else [(60 * hour + minute,)])}
        for (hour, minute, second), exact in clocks
    ]


def _hands(clock: re.Match[str]) -> tuple[int, int, int]:
    return int(clock["h"]), int(clock["m"] or 0), int(clock["s"] or 0)


def _distinct(readings: list[Readings]) -> list[Readings]:
    return [each for index, each in enumerate(readings) if each not in readings[:index]]


@dataclass(frozen=True)
class _Moment(ReadAnswer["MomentReference"]):
    @cached_property
    def wanted(self) -> Readings:
        is_asked = self.reference.reading is not self.reference.read
        read = self.reference.reading(plain(self.reference.text)) if is_asked else []
        return read[0] if read else set(self.reference.moments)

    @cached_property
    def readings(self) -> list[Readings]:
        """The moments of the part: of several the only one that is not in the question, if there is one."""
        bold = [each for span in BOLD.findall(self.text) for each in self.reference.reading(plain(span))]
        moments = bold if len(bold) == 1 else self.reference.reading(plain(self.text))
        of_question = self.reference.reading(plain(self.reference.prompt)) if len(moments) > 1 else []
        fresh = [each for each in moments if each not in of_question]
        return fresh if len(fresh) == 1 else moments

    @property
    def only(self) -> Readings | None:
        return self.readings[0] if len(self.readings) == 1 else None

    def names_other_day(self) -> bool:
        days = [{NAMES_OF_DAYS[each] for each in _DAYS.findall(plain(text))} for text in (self.text, self.reference.text)]
        return all(days) and days[0].isdisjoint(days[1]) and self.only == self.wanted

    def lacks_day(self) -> bool:
        months = {(*each[:2], 0) for each in self.wanted if len(each) == 3 and each[0] > 31}
        return not self.readings and any(each <= months for each in dates(plain(self.text), _PARTS))

    def has_day(self) -> bool:
        days = dates(plain(self.text))
        return len(days) == 1 and {(*each[:2], 0) for each in days[0]} == self.wanted

    def is_related(self) -> bool:
        before = re.split(rf"\d(?!\d* (?:{_TIME_UNITS})\b)", plain(self.text))[0]
        is_moment = self.only is not None and self.reference.read is not durations
        before = re.sub(rf"{_MONTH} |{_DAY_NAME}", "", before)
        return is_moment and bool(RELATED.of(before, len(before), len(before)) or re.search("[之以][前后後]", self.text))

    def may_be(self) -> bool:
        if self.only is None or self.only == self.wanted:
            return False
        # A time without "am" or "pm" may be half a day from one that has it.
        ours, theirs = ({(each[0] % 12, *each[1:]) for each in readings} for readings in (self.only, self.wanted))
        clocks = [*_CLOCK.finditer(plain(self.text)), *_CLOCK.finditer(plain(self.reference.text))]
        halves = {each["half"] is None and int(each["h"]) <= 12 for each in clocks}
        is_half = self.reference.read is _times and len(halves) > 1 and ours == theirs
        return bool(self.only & self.wanted) or is_half

    @cached_property
    def spans(self) -> tuple[list[Readings], list[Readings]]:
        return ([], []) if self.readings else (_spans(self.text), _spans(self.reference.text))

    def lasts_as_long(self) -> bool:
        return self.spans[0] == self.spans[1] != [] and len({*self.spans[0][0]}) == 1

    def is_among(self) -> bool:
        return self.wanted in self.readings and not self.reference.equals(self.text)

    def may_last(self) -> bool:
        ours, theirs = self.spans
        return any(one & other for one in ours for other in theirs)


@dataclass(frozen=True, slots=True)
class MomentReference(TextReference):
    """A date such as ``2024-01-03``, a time of day such as ``12:05``, or a duration such as ``1 h 5 min``.

    Two readings where day and month, or morning and evening, may be either.
    """

    moments: frozenset[tuple[Fraction | int, ...]]
    read: Callable[[str], list[Readings]]
    moment_rules: ClassVar[tuple[Rule[_Moment], ...]] = (
        Rule("unclear", "is related to a moment", "12:05", "before 12:05", _Moment.is_related),
        Rule("unclear", "may be this or another moment", "2024-04-03", "3/4/2024", _Moment.may_be),
        Rule("unclear", "names another day", "Monday, 3 June 2024", "Tuesday, 3 June 2024", _Moment.names_other_day),
        Rule("right", "is this moment", "2024-01-03", "January 3rd, 2024", lambda it: it.only == it.wanted),
        Rule("right", "is a day of this month", "January 2024", "January 3rd, 2024", _Moment.has_day),
        Rule("wrong", "is another moment", "2024-01-03", "May 3, 2024", lambda it: it.only is not None),
        Rule("wrong", "lacks the day", "2024-01-03", "January 2024", _Moment.lacks_day),
        Rule("right", "is as long", "2:03:59", "2 h 3 min 59 s", _Moment.lasts_as_long),
        Rule("unclear", "may be as long", "1:45", "105 min", _Moment.may_last),
        Rule("unclear", "has several moments", "2024-01-03", "from 2024-01-03 to 2024-01-05", _Moment.is_among),
    )

    @property
    def reading(self) -> Callable[[str], list[Readings]]:
        """How a text is read, in the format that the question asks for."""
        is_date = isinstance(self.read, partial) and "order" in self.read.keywords
        form = _FORMAT.search(self.prompt) if is_date else None
        return self.read if form is None else partial(dates, order="month" if form["month"] else "day")

    @classmethod
    def of(cls, text: str, order: DateOrder = "") -> MomentReference | None:
        """Return the date or time that a text is as a whole; ``order`` says what comes first in ``03/04/2024``."""
        bare = re.sub(f"^{_DAY_NAME}", "", written(written(plain(text), "times"), "spans"))
        for read, patterns in (
            (partial(dates, order=order), _DATES),
            (partial(dates, forms=_PARTS), _PARTS[:3]),
            (_stamps, (_STAMP,)),
            (_times, (_CLOCK,)),
            (_zoned_times, (_ZONED,)),
            (durations, (_DURATION,)),
        ):
            if any(pattern.fullmatch(bare) for pattern in patterns) and (moments := read(bare)):
                return cls(text, frozenset(moments[0]), read)
        return None

    def _compare(self, stated: Stated) -> Compared:
        dated = " ".join(each for each in _SENTENCES.split(stated.text) if re.search(r"\d", each)) or stated.text
        for part in () if denies(dated) else parts_of(stated, lambda line: (read := MomentReference.of(line)) and read.moments):
            if compared := first_of(self.moment_rules, _Moment(self, part)):
                return compared
        return Compared(self.states(stated), shown(stated.text))


@dataclass(frozen=True, slots=True)
class PeriodReference(TextReference):
    """A period from one moment to another: ``9am-5pm``, ``2024-03-01 to 2024-03-15``."""

    ends: tuple[Readings, ...]
    read: Callable[[str], list[Readings]]

    @classmethod
    def of(cls, text: str, order: DateOrder = "") -> PeriodReference | None:
        """Return the period that a text is as a whole."""
        parts = [MomentReference.of(each, order) for each in _TO.split(re.sub(r"^from ", "", plain(text)))]
        read = parts[0].read if parts[0] is not None else None
        if len(parts) != 2 or read is None or read is durations or any(each is None for each in parts):
            return None
        ends = tuple(set(each.moments) for each in parts if each is not None)
        return cls(text, ends, read) if [*read(plain(text))] == [*ends] else None

    def _compare(self, stated: Stated) -> Compared:
        if self.states(stated):
            return Compared(True, shown(stated.text))
        for part in () if denies(stated.text) else filter(re.compile(r"\d").search, parts_of(stated)):
            ends = self.read(_TO.sub(" to ", plain(part)))
            if len(ends) == 2:
                return Compared(ends == [*self.ends], shown(part))
            raise RewardError(f"{shown(part)} may be the period in another form")
        return Compared(False, shown(stated.text))


# A hyphen within a date is none between two ends.
_TO: Final = re.compile(
    r"\s*(?:[\u2012-\u2015]|-(?=\d{1,2}(?::\d\d|\s?[ap]\.?m))|(?<=\.\d{4})-(?=\d\d?\.)|\s-\s|\b(?:to|until|till|through|bis)\b)\s*"
)
