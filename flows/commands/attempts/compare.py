"""``tfgrpo compare`` compares two runs item by item: what got worse comes first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, Final, NamedTuple

from tfgrpo.flows.commands.options import TaskChoice
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.figures import ARMS, decimal, shown_arm
from tfgrpo.flows.report.night import Night
from tfgrpo.flows.run.damage import refuse_changed
from tfgrpo.flows.run.index import refuse_pruned, runs_of
from tfgrpo.rewarders.statistics.summary import bootstrap_interval
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.files.lines import read_objects
from tfgrpo.stores.runs import expected_shape
from tfgrpo.stores.text import pluralize

_ROWS: Final = 50
_NAMED: Final = 5
# Arms in the order in which their items are listed: a sweep has the same items in every night.
_FIRST: Final = ("library", "none", "group", "control")
# Settings that say which run it is, not what it does.
_OF_A_RUN: Final = {"out", "task_id", "tfgrpo.night"}
_FORMS: Final = {"before": ".3f", "after": ".3f", "difference": "+.3f"}
_UNPAIRED: Final = {
    "only_before": "only before",
    "only_after": "only after",
    "lost": "without a reward in one of them",
    "changed": "with another question or reference, not compared",
}


class _Run(NamedTuple):
    night: Night
    rewards: Mapping[str, Mapping[str, Sequence[float]]]
    """Rewards of the scored attempts by arm and item."""
    questions: Mapping[str, tuple[str, ...]]
    settings: Mapping[str, Any]

    @classmethod
    def read(cls, run: RunPaths) -> _Run:
        """Return what is compared of a run. Raise ``CorruptFile``, too for one of which some is lost."""
        refuse_changed(run)
        rewards: dict[str, dict[str, list[float]]] = {}
        with expected_shape(run.rollouts):
            for row in read_objects(run.rollouts):
                scored = rewards.setdefault(shown_arm(row["arm"]), {}).setdefault(row["item_id"], [])
                if (reward := row["outcome"].get("reward")) is not None:
                    scored.append(float(reward))
        with expected_shape(run.items):
            rows = read_objects(run.items)
            questions = {row["item_id"]: (row["prompt"], row["answer"], row.get("system_prompt") or "") for row in rows}
        night = Night.of(TaskPaths(run.root.parent.parent), run)
        return cls(night, rewards, questions, {row["key"]: row["value"] for row in night.manifest.get("settings_table", ())})


def compare(before: str, after: str | None, choice: TaskChoice, console: Console) -> None:
    """Print the paired difference of each arm, and the items; of one run, from the one before it."""
    newer = choice.run(after or before, console)
    one, other = _Run.read(_earlier(newer) if after is None else choice.run(before, console)), _Run.read(newer)
    arms = {arm: _paired(arm, one, other) for arm in _FIRST if arm in one.rewards and arm in other.rewards}
    if not arms:
        both = f"{one.night.run_id} and {other.night.run_id}"
        raise SettingsError.one("RUN", both, "two runs with recorded attempts in the same arm")
    settings = {
        key: [one.settings.get(key), other.settings.get(key)]
        for key in sorted({*one.settings, *other.settings} - _OF_A_RUN)
        if one.settings.get(key) != other.settings.get(key)
    }
    was, now = one.night.in_force, other.night.in_force
    left, came = [name for name in was if name not in now], [name for name in now if name not in was]
    if console.as_json:
        named = {"before": one.night.run_id, "after": other.night.run_id}
        console.result({**named, "settings": settings, "added": came, "removed": left, "arms": arms})
        return
    console.line(f"{one.night.run_id} → {other.night.run_id}{' (SIMULATED)' * bool(other.night.manifest.get('simulated'))}")
    for key, values in settings.items():
        console.line(f"setting {key}: {' → '.join(map(str, values))}")
    for sign, ids, texts in (("-", left, one.night.texts), ("+", came, other.night.texts)):
        for name in ids:
            console.line(f"{sign} {name}  {texts.get(name, '')}")
    for arm, pairs in arms.items():
        console.line("; ".join(_sentences(arm, pairs)))
    listed, items = next(((arm, pairs["items"]) for arm, pairs in arms.items() if pairs["items"]), ("", []))
    if items:
        rows = ([each["item_id"], *(f"{each[name]:{of}}" for name, of in _FORMS.items())] for each in items[:_ROWS])
        console.table((f"item, {ARMS[listed]}", *_FORMS), rows)
    if (more := len(items) - _ROWS) > 0:
        console.say(f"and {pluralize(more, 'more item')}; --json lists them")


def _earlier(run: RunPaths) -> RunPaths:
    task = TaskPaths(run.root.parent.parent)
    entries = runs_of(task)
    # The newest is first.
    index = next(number for number, entry in enumerate(entries) if entry.run_id == run.root.name)
    kinds = [(bool(entry.simulated), entry.night is None) for entry in entries]  # a measuring has other arms than a night
    for entry, kind in zip(entries[index + 1 :], kinds[index + 1 :], strict=True):
        if kind == kinds[index] and task.run(entry.run_id).rollouts.is_file():
            return refuse_pruned(task.run(entry.run_id))
    accepted = "a run with an earlier one of its kind, with the same kind of model, that recorded attempts; or two runs"
    raise SettingsError.one("RUN", repr(run.root.name), accepted)


def _paired(arm: str, one: _Run, other: _Run) -> dict[str, Any]:
    """Return the means of the items that have a reward in both runs, what got worse first, and the ids of the others."""
    old, new = one.rewards[arm], other.rewards[arm]
    both = old.keys() & new.keys()
    recorded = both & one.questions.keys() & other.questions.keys()
    changed = {name for name in recorded if one.questions[name] != other.questions[name]}
    lost = {name for name in both - changed if not (old[name] and new[name])}
    means = {name: (fmean(old[name]), fmean(new[name])) for name in both - changed - lost}
    items: list[dict[str, Any]] = [
        {"item_id": name, "before": was, "after": now, "difference": now - was} for name, (was, now) in means.items()
    ]
    items.sort(key=lambda each: (each["difference"], each["item_id"]))
    # A single pair has no interval.
    interval = bootstrap_interval([[each["difference"]] for each in items], seed=0) if len(items) > 1 else None
    return {
        "before": fmean(was for was, _ in means.values()) if items else None,
        "after": fmean(now for _, now in means.values()) if items else None,
        "difference": interval and {"mean": interval.estimate, "low": interval.low, "high": interval.high},
        "items": items,
        "only_before": sorted(old.keys() - new.keys()),
        "only_after": sorted(new.keys() - old.keys()),
        "lost": sorted(lost),
        "changed": sorted(changed),
    }


def _sentences(arm: str, pairs: Mapping[str, Any]) -> Iterator[str]:
    differences = [each["difference"] for each in pairs["items"]]
    means = " → ".join(decimal(pairs[name]) for name in ("before", "after"))
    yield f"{ARMS[arm]}: {means} over {pluralize(len(differences), 'item')}"
    if gain := pairs["difference"]:
        yield f"difference {gain['mean']:+.3f} (95 %: {gain['low']:+.3f} … {gain['high']:+.3f})"
    yield f"{sum(each < 0 for each in differences)} worse, {sum(each > 0 for each in differences)} better"
    for name, what in _UNPAIRED.items():
        if ids := pairs[name]:
            yield f"{len(ids)} {what} ({', '.join(ids[:_NAMED])}{', …' if len(ids) > _NAMED else ''})"
