"""``tfgrpo experiences review``: the lessons in force and the known ones, with what counts for and against each."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tfgrpo.flows.commands.lessons.experiences import TaskExperiences, open_experiences
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.run.champion import promoted_library, verified
from tfgrpo.flows.run.effects import effect_text, measured_json, task_effects
from tfgrpo.flows.run.loop.knowledge import History
from tfgrpo.rewarders.statistics.effects import Effect
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.experiences.accounts import Account, accounts_of, contradictions
from tfgrpo.stores.experiences.library import Library, Promotion, fold, in_force, nights_before, promotions
from tfgrpo.stores.experiences.record import ExperienceRecord
from tfgrpo.stores.text import pluralize


@dataclass(frozen=True, slots=True)
class Known:
    """A lesson with its account."""

    record: ExperienceRecord
    first: ExperienceRecord
    """The oldest record that it carries on."""
    account: Account
    in_force: bool
    has_events: bool
    """False for a lesson in force from before there were accounts."""

    def as_json(self, effect: Effect | None, opposites: Sequence[str] = ()) -> dict[str, Any]:
        """Return the lesson as JSON, with its measured effect and the known lessons that contradict it."""
        record, account = self.record, self.account
        return {
            "experience_id": record.experience_id,
            "in_force": self.in_force,
            "polarity": record.polarity,
            "text": record.summary32,
            **account.as_json(),
            "opposites": list(opposites),
            **measured_json(record, effect),
            "cause": record.cause,
            "families": list(account.families),
            "group_id": record.group_id,
            "first_run": self.first.run_id,
        }

    def text(self, effect: Effect | None, opposites: Iterable[Known] = ()) -> str:
        """Return the lesson for people, with its measured effect and the known lessons that contradict it."""
        record, account = self.record, self.account
        state = "in force" if self.in_force else f"retired ({account.retired})" if account.retired else "known"
        counted = f"net {account.net:.2f} ({account.in_favour:g} for, {account.against:g} against)"
        counted += f", effect {effect_text(effect)}" if effect else ""
        families = f", seen in {', '.join(account.families)}" if account.families else ""
        origin = f"first learned in {self.first.run_id}, from {record.group_id or 'no group'}{families}"
        head = f"{record.experience_id}  {state}, {counted}, {pluralize(account.age, 'night')} old"
        because = [f"because {record.cause}"] if record.cause else []
        against = [
            f"contradicts {each.record.experience_id}, {'in force' if each.in_force else 'not in force'}, which has "
            f"{'less' if each.account.net < account.net else 'more'} net support: {each.account.net:.2f}"
            for each in opposites
        ]
        return "\n    ".join((head, f"{record.polarity}: {record.summary32}", *because, *against, origin))


def known_lessons(experiences: TaskExperiences, decisions: Sequence[Promotion], *, simulated: bool) -> list[Known]:
    """Return the lessons in force after these decisions, in their order, then the other known ones; only ones that verify."""
    store, night = experiences.store, nights_before(decisions)
    champion = verified(promoted_library(store, in_force(decisions, simulated=simulated)), store)
    path = experiences.paths.accounts
    history = History.read(store, path, champion, night=night, simulated=simulated, now=utc_now())
    accounts = accounts_of(history.records, [*history.events, *history.opening], night)
    records = {record.experience_id: record for record in history.records}
    begun = {event.experience_id for event in history.events}
    forced = {entry.experience_id for entry in champion.entries}
    known = fold(Library(()), history.records).entries
    others = (each for each in known if each.experience_id not in forced and accounts[each.experience_id].living)
    return [
        Known(
            record=entry,
            first=min((records[name] for name in account.ids if name in records), key=lambda each: each.created_at),
            account=account,
            in_force=entry.experience_id in forced,
            has_events=entry.experience_id in begun,
        )
        for entry in (*champion.entries, *others)
        for account in (accounts[entry.experience_id],)
    ]


def review(options: argparse.Namespace, console: Console) -> None:
    """Print every lesson in force, then every known one, and the commands that act on them."""
    experiences = open_experiences(options)
    decisions = list(promotions(experiences.paths.promotions))
    known = known_lessons(experiences, decisions, simulated=experiences.simulated)
    effects = task_effects(experiences.paths, simulated=experiences.simulated)
    by_id = {each.record.experience_id: each for each in known}
    opposites = contradictions({name: each.account for name, each in by_id.items()})
    if console.as_json:
        lessons = [each.as_json(effects.get(name), opposites.get(name, ())) for name, each in by_id.items()]
        console.result({"simulated": experiences.simulated, "lessons": lessons})
        return
    for name, each in by_id.items():
        console.text(each.text(effects.get(name), (by_id[other] for other in opposites.get(name, ()))))
    if not known:
        console.say("No lesson is known yet.")
        return
    console.say(
        "`tfgrpo experiences retire ID --why TEXT` takes a lesson out, `measure ID` measures it, `blame ID` shows its "
        "attempts, `rollback TO` puts an earlier library into force (`tfgrpo history`)."
    )
