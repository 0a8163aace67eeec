"""The lessons of a task: the library in force and the prompt with it, what serves them to others, and what is known of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from math import hypot
from pathlib import Path
from typing import Any, Final, NamedTuple

from tfgrpo.flows.run.index import nights_begun, runs_of
from tfgrpo.pipelines.plan.plan import Plan
from tfgrpo.prompt_packs import merge_experiences
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.prompt_packs.safety import Rejection, screen_lesson
from tfgrpo.prompt_packs.stamps import approved_stamps, lessons_block, load_prompt_pack, merge_each
from tfgrpo.rewarders.statistics.credit import RULES
from tfgrpo.rewarders.statistics.summary import mean_and_error
from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.errors import CorruptFile, StoreError, TfgrpoError
from tfgrpo.stores.experiences import decisions
from tfgrpo.stores.experiences.credit import CreditLine, Row, read_credit
from tfgrpo.stores.experiences.decisions import WAY_OUT, Decision, Library
from tfgrpo.stores.experiences.store import ExperienceRecord, ExperienceStore
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.files.lines import read_objects
from tfgrpo.stores.json_values import EMPTY, canonical_json, sha256_hex
from tfgrpo.stores.text import count_words, pluralize
from tfgrpo.tasks.decision import CONFIDENCE, signed
from tfgrpo.tasks.learning.credit import Credit, KnownLesson, Memory, credit_of
from tfgrpo.tasks.learning.tally import Tally
from tfgrpo.tasks.shapes import PackText, estimated_tokens

_ID_DIGITS: Final = 16
STATES: Final = ("in force", "on trial", "known", "kept out")
"""States of a lesson, in the order in which people see them."""


def library_in_force(store: ExperienceStore, paths: TaskPaths, *, simulated: bool | None = None) -> Library:
    """Return the library in force, from the store's records; empty before any, and where the newest decisions are lost.

    ``simulated`` selects the decisions on simulated or on real models; None: on real ones, else on simulated ones.
    """
    return decided_library(store, decision_in_force(paths, simulated=simulated))


def decision_in_force(paths: TaskPaths, *, simulated: bool | None = None) -> Decision | None:
    """Return the decision that says what is in force; None where it may be lost: it may have taken all lessons back."""
    if decisions.lost_decision(paths.promotions):
        return None
    return decisions.in_force(decisions.read_decisions(paths.promotions), simulated=simulated)


def decided_library(store: ExperienceStore, decision: Decision | None) -> Library:
    """Return the library that a decision names; empty for None."""
    return Library(()) if decision is None else library_of(store, decision.experience_ids, decision.signatures)


def library_of(store: ExperienceStore, ids: Sequence[str], signatures: Mapping[str, str] = EMPTY) -> Library:
    """Return the library of these experiences, in their order, without those that the task's store lacks.

    Of several records with one id, the one with the given signature counts; without a given one, the first whose stamp
    verifies, so that a line added by hand replaces no lesson; else the first.
    """
    own = filter(store.owns, store.find(ids))
    fitting = [one for one in own if signatures.get(one.experience_id, one.stamp_signature) == one.stamp_signature]
    # The sort is stable: among those that verify, the first line of the file stays the first.
    return Library.of_ids(sorted(fitting, key=lambda record: not store.verify_stamp(record)), ids)


def signatures_in(store: ExperienceStore, library: Library) -> dict[str, str]:
    """Return the signatures of a library's records as stored: a resumed run has signed them again, at another time."""
    stored = library_of(store, [entry.experience_id for entry in library.entries])
    return {entry.experience_id: entry.stamp_signature for entry in (*library.entries, *stored.entries)}


def in_force_problems(store: ExperienceStore, paths: TaskPaths, *, simulated: bool | None = None) -> list[str]:
    """Return a warning for each reason why less is in force than was decided; write a damaged view again."""
    view = list[str]()
    if paths.state.is_file() and decisions.read_state(paths.state) is None:  # it is made of other files
        view = [f"{paths.state.name} is damaged"]
        with suppress(StoreError):  # a directory that is only readable, or decisions that are damaged, too
            write_view(store, paths, paths.root.name, last_run=next((one.run_id for one in runs_of(paths)), None))
            view = [f"{paths.state.name} was damaged, and is written again"]
    if lost := decisions.lost_decision(paths.promotions):
        return [*view, f"nothing is in force: {lost}; accepted: {WAY_OUT}"]
    return [*view, *decisions.chain_problems(paths.promotions), *lost_in_force(store, paths, simulated=simulated)]


def lost_in_force(store: ExperienceStore, paths: TaskPaths, *, simulated: bool | None = None) -> list[str]:
    """Return a warning that names the records in force that the task's store lacks."""
    latest = decisions.in_force(decisions.read_decisions(paths.promotions), simulated=simulated)
    return [] if latest is None else missing(store, [(name, latest.signatures.get(name)) for name in latest.experience_ids])


def missing(store: ExperienceStore, named: Collection[tuple[str, str | None]]) -> list[str]:
    """Return a warning that names the records (id and signature, if known) that the task's store lacks."""
    own = [record for record in store.find(name for name, _ in named) if store.owns(record)]
    held = {pair for one in own for pair in ((one.experience_id, one.stamp_signature), (one.experience_id, None))}
    lost = list(dict.fromkeys(name for name, signature in named if (name, signature) not in held))
    what = f"{pluralize(len(lost), 'lesson')} in force left out, not among the task's records as decided"
    return [f"{what}: {', '.join(lost)}"] if lost else []


def store_of(plan: Plan, task: TaskPaths | None = None, *, clock: Clock = utc_now) -> ExperienceStore:
    """Return the store of a plan's task; of another ``task``, such as that of a replay, where one is given."""
    return ExperienceStore(
        (task or plan.paths).experiences,
        approved=approved_stamps([plan.pack]),
        task_id=plan.settings.task_id,
        max_words=plan.pack.max_words,
        epochs=plan.settings.tfgrpo.epochs,
        clock=clock,
    )


def starting_library(plan: Plan, ids: Sequence[str] | None = None) -> tuple[Library, list[str]]:
    """Return the library that a run starts from, and warnings for its lost and outdated lessons.

    ``ids`` are those that a run to be continued began with; None: the library in force.
    """
    store = store_of(plan)
    if ids is None:
        return sound_library(store, plan.paths, simulated=plan.simulated)
    # What the run itself appends repairs the file of decisions, so that no later run could tell.
    lost = [*decisions.chain_problems(plan.paths.promotions), *missing(store, [(name, None) for name in ids])]
    return _verifying(store, library_of(store, ids), lost)


def sound_library(store: ExperienceStore, paths: TaskPaths, *, simulated: bool) -> tuple[Library, list[str]]:
    """Return the lessons in force that verify, and warnings for the others."""
    lost = in_force_problems(store, paths, simulated=simulated)
    return _verifying(store, library_in_force(store, paths, simulated=simulated), lost)


def _verifying(store: ExperienceStore, library: Library, warnings: list[str]) -> tuple[Library, list[str]]:
    sound = verified(library, store)
    if outdated := [entry.experience_id for entry in library.entries if entry not in sound.entries]:
        what = f"{pluralize(len(outdated), 'lesson')} kept out, not stamped for the pack in force"
        again = "restore the files of the pack and stamp it to have them back, else the nights learn anew"
        warnings = [*warnings, f"{what}: {again}: {', '.join(outdated)}"]
    return sound, warnings


def write_view(
    store: ExperienceStore, paths: TaskPaths, task_id: str, last_run: str | None = None, *, clock: Clock = utc_now
) -> None:
    """Write the library in force into ``state.json``, whichever run decided it. Raises ``StoreError``.

    ``last_run`` None: as it was.
    """
    newest, decision = decisions.newest_line(paths.promotions), decisions.in_force(decisions.read_decisions(paths.promotions))
    library, simulated = decided_library(store, decision), decision is not None and decision.simulated
    last_run = last_run or (decisions.read_state(paths.state) or {}).get("last_run")
    decisions.write_state(paths.state, task_id, library, last_run=last_run, newest=newest, simulated=simulated, clock=clock)


def verified(library: Library, store: ExperienceStore) -> Library:
    """Return the library without lessons that are not stamped for an approved pack."""
    return Library(tuple(entry for entry in library.entries if store.verify_stamp(entry)))


def screened(library: Library) -> tuple[Library, list[str]]:
    """Return the library without lessons that the screening refuses by now, and a warning for each of those.

    No prompt carries them; the screening may have been less strict when they were stored.
    """
    results = {entry.experience_id: screen_lesson(entry.summary32) for entry in library.entries}
    refused = {name: result.reason for name, result in results.items() if isinstance(result, Rejection)}
    kept = Library(tuple(entry for entry in library.entries if entry.experience_id not in refused))
    return kept, [f"lesson {name} kept out by the screening: {reason}" for name, reason in refused.items()]


def short_enough(lessons: Sequence[ExperienceRecord], pack: LoadedPack) -> list[ExperienceRecord]:
    """Return the lessons without those longer than pack and run allow, so that these take no slot."""
    return [entry for entry in lessons if count_words(entry.summary32) <= pack.max_words]


def rendered(
    pack: LoadedPack, chosen: Sequence[Sequence[ExperienceRecord]]
) -> Iterator[tuple[PackText, Sequence[tuple[str, str]]]]:
    """Yield a prompt for each choice of lessons, and those it has no place for, with the reason. Verify the pack once."""
    for lessons, merged in zip(chosen, merge_each(pack, chosen), strict=True):
        entries = {entry.experience_id: entry for entry in lessons}
        text = PackText(
            system=merged.text,
            digest=sha256_hex(merged.text),
            pack_id=pack.manifest.id,
            stamp=pack.manifest.stamp,
            experience_ids=merged.experience_ids,
            experiences=tuple(entries[name] for name in merged.experience_ids),
        )
        yield text, merged.skipped


def pack_of_lessons(task: TaskPaths | None, *, simulated: bool) -> str | None:
    """Return the id of the pack of a task's lessons in force; None without any."""
    if task is None:
        return None
    store = ExperienceStore(task.experiences, approved={})
    library = library_in_force(store, task, simulated=simulated)
    return library.entries[0].pack_id if library.entries else None


def lessons_of(task: TaskPaths | None, pack: LoadedPack, *, simulated: bool) -> tuple[PackText, tuple[str, ...]]:
    """Return the pack's text with the lessons in force of its task, and a warning for each that may not be used.

    Lessons learned on the SIMULATED model are for that model only, and those of real models for these.
    """
    if task is None:
        return next(rendered(pack, [()]))[0], ()
    store = ExperienceStore(task.experiences, approved=approved_stamps([pack]), task_id=task.root.name)
    library, warnings = sound_library(store, task, simulated=simulated)
    return next(rendered(pack, [short_enough(library.entries, pack)]))[0], tuple(warnings)


class ServedLessons:
    """The lessons in force of a task, read again when a decision changes them."""

    def __init__(self, task: TaskPaths, packs_root: Path | None, say: Callable[[str], None], *, simulated: bool) -> None:
        """``simulated``: whether the lessons of simulated models count, or those of real ones. ``say`` gets warnings."""
        self._task = task
        self._packs_root = packs_root
        self._say = say
        self._simulated = simulated
        self._read_at: object = ()
        self._pack: LoadedPack | None = None
        self._library = Library(())
        self._block = ""
        self.problem = ""

    def block(self) -> str:
        """Return the block of lessons; empty without any.

        What cannot be read is reported, and the lessons before it stay in force.
        """
        try:
            if (state := self._state()) != self._read_at:
                # First: what cannot be read is tried again only when it has changed.
                self._read_at, self.problem = state, ""
                self._read()
                self._read_at = self._state()  # with the pack of these lessons
        except (TfgrpoError, OSError, ValueError) as error:
            self.problem = str(error)
            self._say(f"the lessons of {self._task.root} cannot be read; those before stay in force: {error}")
        return self._block

    def facts(self) -> dict[str, Any]:
        """Return what is in force, as JSON."""
        self.block()
        ids = [entry.experience_id for entry in self._library.entries]
        pack = None if self._pack is None else self._pack.manifest.id
        library = self._library.library_id if ids else None
        return {"pack": pack, "library": library, "lessons": ids, "problem": self.problem}

    def why_none(self) -> str:
        """Return why no lessons are in force."""
        with suppress(TfgrpoError, OSError, ValueError):  # reported when they were read
            if not self._simulated and pack_of_lessons(self._task, simulated=True) is not None:
                return f"those of {self._task.root} were learned on the simulated model, for --model simulated alone"
        return f"none is in force in {self._task.root} yet"

    def _state(self) -> tuple[tuple[int, ...], ...]:
        """Return what changes with the decisions, and with the pack, whose new version ends its lessons."""
        files = [self._task.promotions, *([] if self._pack is None else [self._pack.root / "manifest.json"])]
        stats = (file.stat() if file.exists() else None for file in files)
        return tuple(() if one is None else (one.st_ino, one.st_size, one.st_mtime_ns) for one in stats)

    def _read(self) -> None:
        if lost := decisions.lost_decision(self._task.promotions):
            self._say(f"warning: no lesson is in force: {lost}; accepted: {WAY_OUT}")
        elif self._pack is not None and not self._task.promotions.exists():
            raise StoreError(f"{self._task.promotions} is no longer there")
        name = pack_of_lessons(self._task, simulated=self._simulated)
        pack, library, block = None, Library(()), ""
        if name is not None:
            pack = load_prompt_pack(name, self._packs_root)
            store = ExperienceStore(self._task.experiences, approved=approved_stamps([pack]), task_id=self._task.root.name)
            library, warnings = sound_library(store, self._task, simulated=self._simulated)
            library, refused = screened(library)
            for warning in (*warnings, *refused):
                self._say(f"warning: {warning}")
            block = lessons_block(merge_experiences(pack, short_enough(library.entries, pack)).text)
        self._pack, self._library, self._block = pack, library, block


def conditions_of(plan: Plan) -> str:
    """Return the digest of what differences are measured under: model, kind of actor, pack, rewarders with their models.

    Sweeps under another pack were of lessons that its stamp has ended: they say nothing about those that come after.
    """
    names = ("name", "weight", "options", "score_range")
    under = {
        "model": plan.models.name,
        "actor": plan.settings.actor.kind,
        "pack": plan.pack.manifest.stamp,
        "rewarders": [each.model_dump(mode="json", include=set(names)) for each in plan.settings.rewarders],
        "judges": plan.models.judges,
    }
    return sha256_hex(canonical_json(under))[:_ID_DIGITS]


def memory_of(
    store: ExperienceStore,
    lines: Sequence[CreditLine],
    earlier: Sequence[Decision],
    *,
    simulated: bool,
    night: int,
    slots: int,
    conditions: str | None = None,
    in_force_ids: Sequence[str] | None = None,
) -> Memory:
    """Return what a task knows about one kind of model, with only the lessons whose stamps verify.

    ``conditions`` None: those of the newest row. ``in_force_ids`` None: what the decisions say is in force.
    """
    lines = [line for line in lines if line.simulated == simulated]
    if in_force_ids is None:
        last = decisions.in_force(earlier, simulated=simulated)
        in_force_ids = last.experience_ids if last else ()
    if conditions is None:
        conditions = next((line.conditions for line in reversed(lines) if isinstance(line, Row)), "")
    named = {name for line in lines for name in ((*line.one, *line.other) if isinstance(line, Row) else (line.experience_id,))}
    records: dict[str, ExperienceRecord] = {}
    for record in filter(store.verify_stamp, store.find([*named, *in_force_ids])):
        records.setdefault(record.experience_id, record)
    return Memory(
        records=tuple(records.values()),
        tally=Tally().plus(lines),
        night=night,
        conditions=conditions,
        slots=slots,
        in_force=tuple(in_force_ids),
        kept_out=decisions.kept_out(earlier, simulated=simulated),
    )


def credit_lines(paths: TaskPaths) -> list[CreditLine]:
    """Return all credit of a task. Raises ``CorruptFile``, too if some is lost: the figures would be others."""
    if lost := decisions.lost_credit(paths.promotions):
        raise CorruptFile(f"{lost}; accepted: {WAY_OUT}")
    return read_credit(paths.credit)


def task_credit(paths: TaskPaths, store: ExperienceStore, *, simulated: bool) -> Credit:
    """Return what a task knows of its lessons as of now, for commands and pages. Raises ``CorruptFile``."""
    earlier, lines = list(decisions.read_decisions(paths.promotions)), credit_lines(paths)
    # ``tfgrpo.night`` may be set, to a later one than there are.
    night = max((line.night for line in lines if line.simulated == simulated), default=0)
    night = max(night, nights_begun(paths, simulated=simulated) - 1)
    slots = (run.slots for run in runs_of(paths) if run.simulated == simulated and isinstance(run.slots, int))
    room = next(slots, RULES.most_on_trial)
    return credit_of(memory_of(store, lines, earlier, simulated=simulated, night=night, slots=room))


def effect_text(effect: Mapping[str, Any] | None) -> str:
    """Return an effect of ``lesson_json`` in words; a dash for none."""
    if effect is None:
        return "–"
    mean, low, high = (signed(effect[name]) for name in ("mean", "low", "high"))
    return f"{mean} points ({low} … {high}), {pluralize(effect['attempts'], 'attempt')}"


def lesson_json(lesson: KnownLesson, credit: Credit, in_force_ids: Sequence[str]) -> dict[str, Any]:
    """Return what is known of a lesson besides its record: its state of ``STATES``, words, tokens, and effect.

    That is in points, with its interval of 95 % and the attempts behind it.
    """
    state = "on trial" if lesson.record in credit.on_trial else "known"
    if not lesson.ids.isdisjoint(in_force_ids):
        state = "in force"
    elif lesson.kept_out:
        state = "kept out"
    effect, interval = lesson.effect, lesson.effect.interval(lesson.attempts, CONFIDENCE)
    likely = {"likely": effect.likely, "attempts": lesson.attempts}
    return {
        "state": state,
        "effect": {"mean": effect.mean, "low": interval.low, "high": interval.high, **likely},
        "support": lesson.net,
        "groups_for": lesson.groups_for,
        "groups_against": lesson.groups_against,
        "nights": lesson.nights,
        "opposites": list(lesson.opposites),
        "kept_out": lesson.kept_out,
        "tokens": estimated_tokens(f"- {lesson.record.polarity}: {lesson.record.summary32}\n"),
    }


class ProductionGain(NamedTuple):
    """Scores of conversations in production while one library was in force, with its lessons and without, by lot."""

    library: str
    lessons: int
    held_out: int
    mean_lessons: float | None
    mean_held_out: float | None
    gain: float | None
    low: float | None
    """Interval of 95 %, of the normal approximation; None with fewer than two conversations of a kind."""
    high: float | None

    def __str__(self) -> str:
        if self.gain is None:
            return f"library {self.library}: {self.lessons} with lessons, {self.held_out} without; both kinds are needed"
        interval = "" if self.low is None or self.high is None else f" (95 %: {self.low:+.3f} … {self.high:+.3f})"
        return f"library {self.library}: {self.gain:+.3f}{interval}, {self.lessons} with lessons, {self.held_out} without"


def production_gains(paths: TaskPaths) -> Iterator[ProductionGain]:
    """Yield the gain of each library that has outcomes. Raises ``CorruptFile``."""
    for library, (one, other) in _outcomes(paths).items():
        first, second = (mean_and_error(side) if side else None for side in (one, other))
        gain = first.mean - second.mean if first and second else None
        error = None if not first or not second or first.se is None or second.se is None else hypot(first.se, second.se)
        bounds = (None, None) if gain is None or error is None else (gain - 1.96 * error, gain + 1.96 * error)
        means = (first.mean if first else None, second.mean if second else None)
        yield ProductionGain(library, len(one), len(other), *means, gain, *bounds)


def production_rows(paths: TaskPaths) -> Iterator[Row]:
    """Yield a row for each library: of its outcomes that are in no row yet, once there are some with lessons and without.

    Its conditions are those of the newest row: the outcomes join what decides. Raises ``CorruptFile``.
    """
    by_library = {each.library_id: each for each in decisions.read_decisions(paths.promotions)}
    rows = [line for line in read_credit(paths.credit) if isinstance(line, Row)]
    for library, sides in _outcomes(paths).items():
        if (decision := by_library.get(library)) is None:
            continue
        used = [row for row in rows if row.source == "outcome" and row.item_id == library]
        one = sides[0][sum(len(row.rewards_one) for row in used) :]
        other = sides[1][sum(len(row.rewards_other) for row in used) :]
        alike = [row.conditions for row in rows if row.simulated == decision.simulated]
        if one and other and alike:
            yield Row(
                line_id=f"production/{library}/{len(used)}",
                run_id="production",
                night=max(0, nights_begun(paths, simulated=decision.simulated) - 1),
                source="outcome",
                item_id=library,
                one=decision.experience_ids,
                other=(),
                rewards_one=tuple(one),
                rewards_other=tuple(other),
                conditions=alike[-1],
                simulated=decision.simulated,
                created_at=utc_now(),
            )


def _outcomes(paths: TaskPaths) -> dict[str, tuple[list[float], list[float]]]:
    scores: dict[str, tuple[list[float], list[float]]] = {}
    for line in read_objects(paths.outcomes):
        if (library := str(line["library"])) != "none":
            scores.setdefault(library, ([], []))[line["arm"] != "lessons"].append(float(line["score"]))
    return scores
