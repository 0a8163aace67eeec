"""Decide what is in force tomorrow: what is likely better than no lessons, by all rows and by held-out ones.

Both conditions are about the same library against no lessons, and are asked anew every night, so that what no longer likely
helps is out the next night; a sweep far below what the nights before promise begins the held-out ones anew. What a person
put into force stays until either speaks against it. *Proven* is a label, not a condition: the e-value of all sweeps has
reached 20, which under "no library is better than none" ever happens in at most one task of twenty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from statistics import NormalDist
from typing import Final

from tfgrpo.rewarders.statistics.credit import RULES, Effect, comes_into_force
from tfgrpo.stores.experiences.decisions import Alarm, Decision, DecisionVerdict, Gain
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.learning.credit import Credit

# Of every interval that a person sees, and of the proof.
CONFIDENCE: Final = 0.95
ENTER: Final = NormalDist().cdf(RULES.enter)

ALARM: Final = "kept out for what replies do with it, whatever the reward"
OVERRULED: Final = "let in all the same, as a person has approved"
_REPLIES: Final = "replies to {1} of {2} items {0} with lessons, to {3} of {4} without"
BROKE: Final = "the sweep is far below those of earlier nights, which count no more: has library, model or agent changed?"


def overruled_by_person(decisions: Iterable[Decision], *, simulated: bool) -> frozenset[str]:
    """Return the signs that keep nothing out any more: a person approved a suspect before the next night, and it stays in."""
    alarms, accepted = tuple[Alarm, ...](), set[tuple[str, str]]()
    for one in decisions:
        if one.simulated == simulated:
            if one.ends_night:
                alarms = one.alarms
            if one.decision == "approve":
                accepted |= {(name, each.sign) for each in alarms for name in one.reasons.keys() & each.suspects}
            if one.decision == "retire":
                accepted = {(name, sign) for name, sign in accepted if name not in one.reasons}
    return frozenset(sign for _, sign in accepted)


def gain_of(effect: Effect) -> Gain:
    """Return an effect with its interval, as decisions record it."""
    interval = effect.interval(0, CONFIDENCE)
    return Gain(mean=effect.mean, sd=effect.sd, low=interval.low, high=interval.high, likely=effect.likely)


def verdict_of(credit: Credit, *, served: bool, by_person: bool = False) -> DecisionVerdict:
    """Return what becomes of the library that would follow, if one is in force (``served``), and a person put it there."""
    if credit.follows and comes_into_force(credit.total, credit.held_out.gain, by_person=by_person):
        return "in force"
    return "taken back" if served else "not yet"


def sentence_of(decision: Decision) -> str:
    """Return the decision of a night with its figures, as every page says it."""
    # In force: +6.2 points over no lessons (95 %: +2.9 … +9.5), 99 % likely to help; held-out tasks agree (+5.1).
    verdict, total, held_out = decision.decision, decision.total, decision.held_out
    if decision.overtaken:
        return f"{'In force' if decision.experience_ids else 'Nothing in force'}: this night decided nothing"
    if total is None:
        nothing = "no lesson is likely to help"
        return f"Taken back: {nothing} any more" if verdict == "taken back" else f"Not yet: {nothing} so far"
    gain = f"{signed(total.mean)} points over no lessons (95 %: {signed(total.low)} … {signed(total.high)})"
    likely = f"{chance(total.likely)} likely to help"
    held = "no held-out task was compared" if held_out is None else f"({signed(held_out.mean)})"
    if verdict == "in force":
        agree = held if held_out is None else f"held-out tasks agree {held}"
        return f"In force: {gain}, {likely}; {agree}{'; proven' if decision.proven else ''}"
    needed = f"; over {chance(ENTER)} are needed" if total.likely < ENTER else ""
    if needed and verdict == "not yet":
        return f"Not yet: {signed(total.mean)} points so far, {likely}{needed}"
    if any(each.suspects for each in decision.alarms):
        doubt = ALARM
    else:
        disagree = "" if verdict == "taken back" else "do not agree yet "
        doubt = held if held_out is None else f"held-out tasks {disagree}{held}"
    return f"{verdict.capitalize()}: {gain}, {likely}{needed}; {doubt}"


def explanation_of(decision: Decision) -> str:
    """Return the sentence of a night's decision, with what else the night found."""
    return "; ".join((sentence_of(decision), *decision.notes, *alarm_notes(decision.alarms)))


def alarm_notes(alarms: Collection[Alarm]) -> Iterator[str]:
    """Yield a sentence of the alarms that a person has overruled, and of those that keep lessons out."""
    for ids in sorted({each.suspects for each in alarms}):
        replies = "; ".join(_REPLIES.format(each.sign, *each.items) for each in alarms if each.suspects == ids)
        suspects = f"; by one of {pluralize(len(ids), 'lesson')}: {', '.join(ids)}"
        yield f"{ALARM}: {replies}{suspects}" if ids else f"{OVERRULED}: {replies}"


def signed(points: float) -> str:
    """Return points with their sign and one digit; what rounds to zero is not below it."""
    return f"{round(points, 1) + 0.0:+.1f}"


def chance(probability: float) -> str:
    """Return a probability in percent; never 100 % or 0 % for what is not certain."""
    for digits in (0, 1, 2):
        text = f"{100 * probability:.{digits}f}"
        if 0.0 < float(text) < 100.0:
            return f"{text} %"
    return "over 99.99 %" if probability > 0.5 else "under 0.01 %"
