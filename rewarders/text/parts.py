"""The parts of an output that may state its answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import takewhile
from typing import Final

from tfgrpo.rewarders.text.answers import Stated, any_of
from tfgrpo.rewarders.text.rules import shown
from tfgrpo.rewarders.text.spelling import MARKUP
from tfgrpo.stores.errors import RewardError

LONGEST_PART: Final = 2_000
"""Characters of an answer, or of a line, that are searched for a text, a label or an option."""
OPTION_MARK: Final = re.compile(r"[(\[]?([A-Ja-j])[).:\]]\s+(?=\S)")


def parts_of(stated: Stated, states: Callable[[str], object] = lambda _: None) -> list[str]:
    """Return the parts of an output that may state its answer, the likeliest first, without what follows very long ones.

    Without a mark that is the last line, then the first; the first alone where only it ``states`` an answer as a whole, as
    in an answer with a remark below. Of a list of short entries, or of options, it is the list. Raise ``RewardError`` where
    the first line and the last state answers that differ.
    """
    if stated.is_marked:
        return [stated.text[:LONGEST_PART]]
    lines = [MARKUP.sub("", each).strip() for each in stated.whole[-LONGEST_PART:].split("\n") if each.strip()]
    ticked = [_TICK.sub("", each) for each in lines if _TICK.search(each)]
    if len(ticked) == 1 and (any(map(_CROSS.search, lines)) or sum(map(bool, map(_LETTERED.match, lines))) > 2):
        return ticked  # the entry with a tick, of those with a cross
    for mark, is_entry in ((_LISTED, is_bare), (_LETTERED, bool)):
        listed = [*takewhile(mark.match, reversed(lines))][::-1]
        alone = len(listed) == len(lines) or not (is_bare(lines[0]) or states(lines[0]))
        if len(listed) > 1 and alone and all(is_entry(mark.sub("", each)) for each in listed):
            return [", ".join(mark.sub("", each) if mark is _LISTED else each for each in listed)]
    last, first = (part[:LONGEST_PART] for part in (stated.text, stated.whole.partition("\n")[0].strip()))
    if first == last or _LISTED.match(first):
        return [last]
    one, other = states(first), None if _LISTED.match(last) else states(last)
    if one is not None and other is not None and one != other:
        raise RewardError(f"the first line, {shown(first)}, and the last, {shown(last)}, state different answers")
    return [first] if one is not None and other is None else [last, first]


_TICK, _CROSS = (
    re.compile(rf"\s*(?:[{signs}]\ufe0f?|\[{box}\])\s*", re.IGNORECASE)
    for signs, box in (("\u2705\u2713\u2714\u2611", "x"), ("\u274c\u2717\u2718\u2716", " "))
)
_LETTERED: Final = re.compile(rf"[-*> ]*{OPTION_MARK.pattern}")
_LISTED: Final = re.compile(r"\s*(?:[-*\u2022]|(?:step )?\d+[.):])\s", re.IGNORECASE)
_OPENING: Final = re.compile(rf"(?:{any_of('openings')})\b", re.IGNORECASE)
MOST_BARE: Final = 5
"""Words of a line that is an answer as a whole."""


def is_bare(line: str) -> bool:
    """Return whether a line may be an answer and nothing else: a few words that open no sentence."""
    statement = line.strip(' *_`"')
    words = len(statement.split())
    return 0 < words <= MOST_BARE and statement[-1] not in ":,?!\u2026" and not _OPENING.match(statement)
