"""Compare what the files of a run and of a task say of each other; refuse a run that would pay or decide by damaged ones."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tfgrpo.flows.run.lessons import missing
from tfgrpo.stores.canonical import sha256_hex
from tfgrpo.stores.errors import CorruptFile, SettingsError, TfgrpoError
from tfgrpo.stores.experiences.credit import read_credit
from tfgrpo.stores.experiences.decisions import (
    WAY_OUT,
    chain_problems,
    decided_damage,
    newest_line,
    read_decisions,
    read_state,
    sealed_tests,
)
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.atomic import is_signed_file
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.files.lines import extent_of, lines_of, read_objects, whole_extent
from tfgrpo.stores.frozen_json import mapping_of
from tfgrpo.stores.ledger import NANO, Totals, totals_in
from tfgrpo.stores.numeric import is_cost
from tfgrpo.stores.runs import Journal, ManifestFile, attempt_and_role
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.models.wire import usage_of

if TYPE_CHECKING:
    from tfgrpo.flows.run.prepare import Prepared
    from tfgrpo.tasks.runtime.runtime import RunContext

_ATTEMPTED: Final = frozenset({"scored", "ungraded"})
"""Outcomes of attempts that have an answer in the journal."""
_KEPT: Final = frozenset({".jsonl", ".json", ".html"})
"""Endings of the files of a run; what was moved away, and locks, have others."""
_ROLLOUTS: Final = "runs/*/rollouts.jsonl"


class Journalled(NamedTuple):
    """What a journal accounts for."""

    spent: Totals
    """Answered calls with their tokens and money, and the number of all entries."""
    attempts: int
    """Attempts with an answer."""
    warnings: Sequence[str] = ()
    """What a run that goes on with this journal says of it."""


def read_journal(path: Path) -> Journalled:
    """Sum a journal up, without damaged lines; nothing without one. Raises ``CorruptFile`` for a file of zeros."""
    entries = calls = tokens = nano = 0
    attempts: set[str] = set()
    for line in lines_of(path):
        entry = mapping_of(json.loads(line.body)) if line.length else {}
        entries += "key" in entry  # a line without one is set aside when the journal is opened
        if entry.get("kind") != "reply":
            continue
        with suppress(ValueError):
            attempt, role = attempt_and_role(str(entry.get("key")))
            attempts |= {attempt} if role in {"rollout", "agent"} else set()
        payload = mapping_of(entry.get("payload"))
        if "usage" in payload:  # of a model's answer; tools cost the ledger nothing
            usage, cost = usage_of(payload["usage"]), payload.get("cost_usd")
            calls, tokens = calls + 1, tokens + (0 if usage is None else usage.total)
            nano += round(cost * NANO) if is_cost(cost) and cost else 0
    return Journalled(Totals(calls=calls, tokens=tokens, nano_usd=nano, journalled=entries), len(attempts))


def refuse_damage(context: RunContext, prepared: Prepared) -> Journalled:
    """Raise ``SettingsError`` for a run whose files do not allow what is asked; return what its journal accounts for.

    A replay answers from the journal alone. A run whose answers are paid for continues only with all of them, and under a cap
    only if it knows what its calls cost.
    """
    request, run, run_id = prepared.request, context.paths, context.run_id
    if request.replay is None and (damage := decided_damage(prepared.plan.paths.promotions)):
        raise SettingsError.one("the task", damage, WAY_OUT)
    if request.replay is not None:
        with Journal(run.journal, repair=False) as journal:
            damaged = journal.damaged
        if damaged:
            accepted = f"a whole journal; `--resume {run_id} --pay-again` asks those calls again"
            raise SettingsError.one("--replay", f"{run_id} with {pluralize(damaged, 'damaged line')}", accepted)
    if request.resume is None:
        return Journalled(Totals(), 0)
    closed = int(mapping_of((prepared.earlier or {}).get("ledger")).get("journalled", 0))
    return refuse_lost(context, "--resume", "restore the file, or begin a new run", closed, pay_again=request.pay_again)


def refuse_lost(
    context: RunContext, option: str, remedy: str, closed: int = 0, *, pay_again: bool | None = None
) -> Journalled:
    """Raise ``SettingsError`` for lost answers, a damaged ledger, or under a cap a lost one; return what the journal has.

    ``closed``: answers by the manifest. ``pay_again``: whether lost answers may be paid for again; None: never.
    """
    run, run_id = context.paths, context.run_id
    try:
        spent = totals_in(run.ledger) if run.ledger.is_file() else None
        attempted = _attempted(run)
    except CorruptFile as error:
        raise SettingsError.one(option, f"{run_id}: {error}", f"one with a whole ledger: {remedy}") from error
    journalled = Journalled(Totals(), 0)
    with suppress(CorruptFile):  # zeros
        journalled = read_journal(run.journal)
    lost = None if pay_again else _lost_answers(run, journalled, attempted, spent, closed)
    if lost is not None:
        again = "" if pay_again is None else ", or go on and pay for them with --pay-again"
        raise SettingsError.one(option, lost, f"one with its journal: {remedy}{again}")
    if not journalled.spent.journalled or spent not in {None, Totals()}:
        return journalled
    budget = context.settings.budget
    caps = [name for name in ("max_usd", "max_tokens", "max_calls") if getattr(budget, name) is not None]
    unknown = f"what it has spent is unknown: {run.ledger} is missing or empty"
    if caps:
        without = " ".join(f"--set budget.{name}=none" for name in caps)
        accepted = f"one with its ledger, or without caps ({without}): {remedy}"
        raise SettingsError.one(option, f"{run_id} under a cap, and {unknown}", accepted)
    answers = pluralize(journalled.spent.calls, "answered call")
    warning = f"of {run_id} before it was resumed, {unknown}; it counts the {answers} of the journal"
    return journalled._replace(warnings=(warning,))


def _lost_answers(run: RunPaths, known: Journalled, attempted: int, spent: Totals | None, closed: int) -> str | None:
    """Return which answers the journal lacks of those that ledger, manifest or rollouts know of; None for none."""
    answers = max(spent.journalled if spent else 0, closed)
    lost = max(answers - known.spent.journalled, attempted - known.attempts, 0)
    # Opening a run makes both files, so that only one that was lost is missing.
    unknown = not known.spent.journalled and (
        spent is None or (spent.calls > spent.lost_calls and not run.journal.exists())
    )
    if not lost and not unknown:
        return None
    what = f"{pluralize(lost, 'answered call')} of {max(answers, attempted, lost)}" if lost else "its answered calls"
    again = f"{'it' if lost == 1 else 'they'} would be paid again"
    return f"{run.root.name}, whose journal {run.journal} is missing, damaged or cut: it lacks {what}, and {again}"


def _attempted(run: RunPaths) -> int:
    """Return how many attempts have an answer by ``rollouts.jsonl``, without its damaged lines."""
    rows = (mapping_of(json.loads(line.body)) for line in lines_of(run.rollouts) if line.length)
    return sum(mapping_of(row.get("outcome")).get("name") in _ATTEMPTED for row in rows)


def record_files(run: RunPaths) -> None:
    """Write into the manifest how many lines each file has at the end of a run, and their SHA-256."""
    manifest, task = ManifestFile(run.manifest), TaskPaths(run.root.parent.parent)
    if manifest.read().get("status", "running") != "running":
        paths = (task.experiences, task.batches, task.credit, task.promotions, task.tests)
        of_task = {path.name: extent_of(path)._asdict() for path in paths if path.exists()}
        manifest.update(files=extents(run), task_files=of_task)


def record_file(run: RunPaths, path: Path) -> None:
    """Write one file that was made again into the manifest of an ended run."""
    manifest = ManifestFile(run.manifest)
    if files := manifest.read().get("files"):
        manifest.update(files={**mapping_of(files), path.name: whole_extent(path)._asdict()})


def extents(run: RunPaths) -> dict[str, dict[str, int | str]]:
    """Return the files of a run as its manifest records them."""
    return {path.name: whole_extent(path)._asdict() for path in _files(run)}


def _files(run: RunPaths) -> list[Path]:
    return [each for each in sorted(run.root.iterdir()) if each.suffix in _KEPT and each != run.manifest]


def refuse_changed(run: RunPaths) -> None:
    """Raise ``CorruptFile`` for a manifest, or a file of lines, that changed since the end of its run."""
    for problem in _changed(run, {".jsonl"}):
        raise CorruptFile(f"{run.root / problem}; `tfgrpo verify {run.root.name}` lists all that differs")


def _changed(run: RunPaths, endings: Collection[str] = _KEPT) -> Iterator[str]:
    """Yield what differs from the record of an ended run. Raises ``CorruptFile``, ``StoreError``."""
    manifest = ManifestFile(run.manifest).read()
    if not manifest:
        yield f"{run.manifest.name}: is missing"
    elif not is_signed_file(run.manifest, manifest) or manifest.get("run_id") != run.root.name:
        yield f"{run.manifest.name}: was changed, or is that of another run"
    for name, recorded in mapping_of(manifest.get("files")).items():
        path = run.root / name
        if path.suffix not in endings:
            continue
        if not path.exists():
            yield f"{name}: is missing"
        elif (found := whole_extent(path)._asdict()) != recorded:
            lines = f"{found['lines']} lines, {mapping_of(recorded).get('lines')} at the end of its run"
            yield f"{name}: was changed since its run ended ({lines})"


def run_problems(run: RunPaths) -> list[str]:
    """Return what is damaged, missing or changed of a run, each with its file."""
    problems, where = list[str](), f"runs/{run.root.name}/"
    for check in (_changed(run), _damaged_lines(run), _disagreements(run)):
        with _noted(problems):
            problems += () if problems else check
    return [each if str(run.root) in each else where + each for each in problems]


def _damaged_lines(run: RunPaths) -> Iterator[str]:
    closed = bool(ManifestFile(run.manifest).read().get("files"))
    for path in _files(run):
        yield from _line_problems(path, torn=closed)


@contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except (TfgrpoError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        problems.append(str(error) if isinstance(error, TfgrpoError) else f"{type(error).__name__}: {error}")


def _line_problems(path: Path, *, torn: bool = True) -> Iterator[str]:
    """Yield the damaged lines of an append-only file, and with ``torn`` an incomplete last one."""
    end = 0
    for line in lines_of(path) if path.suffix == ".jsonl" else ():
        if line.damaged:
            yield f"{path.name}: line {line.number} is damaged"
        end = line.offset + len(line.data) + 1
    if torn and path.suffix == ".jsonl" and path.exists() and path.stat().st_size > end:
        yield f"{path.name}: the last line is incomplete and does not count"


def _disagreements(run: RunPaths) -> Iterator[str]:
    """Yield what rollouts and ledger of a run have that its journal lacks; a replay has none, nor has a pruned run."""
    if run.ledger.is_file() and "pruned_at" not in ManifestFile(run.manifest).read():
        lost = _lost_answers(run, read_journal(run.journal), _attempted(run), totals_in(run.ledger), 0)
        yield from filter(None, [lost])


def task_problems(store: ExperienceStore, task: TaskPaths) -> list[str]:
    """Return what is damaged, missing or changed of the files that all runs of a task share, and was not accepted."""
    problems: list[str] = []
    of_runs = (task.ledger(simulated=False), task.ledger(simulated=True))
    for path in (*(each for each in task.own_files() if each != task.promotions), *of_runs):
        with _noted(problems):
            problems += _line_problems(path)
    with _noted(problems):
        problems += chain_problems(task.promotions)
    for check in (_shared(store, task), _view(task), _vouched_for(task), _shapes(store, task)):
        with _noted(problems):
            problems += check
    accepted: set[str] = set()
    with _noted([]):
        accepted = {each for one in read_decisions(task.promotions) for each in one.accepted}
    return [each for each in dict.fromkeys(problems) if each not in accepted]


def _shared(store: ExperienceStore, task: TaskPaths) -> Iterator[str]:
    """Yield what decisions, records and rollouts of a task lack of each other."""
    if damage := decided_damage(task.promotions):
        yield damage.removeprefix(f"{task.root}/")
        return
    named = [pair for one in read_decisions(task.promotions) for pair in one.signatures.items()]
    yield from missing(store, named)
    made = {path.parent.name: {row["rollout_id"] for row in read_objects(path)} for path in task.root.glob(_ROLLOUTS)}
    for one in store.records():  # of a merged lesson, attempts may be of a run that was removed
        if one.operation == "add" and not set(one.evidence) <= made.get(one.run_id, set(one.evidence)):
            yield f"runs/{one.run_id}/rollouts.jsonl: lacks attempts that lesson {one.experience_id} was learned from"


def _view(task: TaskPaths) -> Iterator[str]:
    """Yield how ``state.json`` differs from what the decisions say."""
    newest, state = newest_line(task.promotions), read_state(task.state)
    if state is None and (newest or task.state.exists()):
        yield f"{task.state.name}: is {'damaged' if task.state.exists() else 'missing'}; the next command writes it again"
    elif state is not None and state["task_id"] != task.root.name:
        yield f"{task.state.name}: is that of task {state['task_id']}"


def _vouched_for(task: TaskPaths) -> Iterator[str]:
    """Yield the files whose first lines are not those at the end of the run that saw most of them."""
    seen: dict[str, tuple[int, str, str]] = {}
    for path in task.root.glob("runs/*/manifest.json"):
        with suppress(CorruptFile):  # which is a problem of that run
            for name, extent in mapping_of(ManifestFile(path).read().get("task_files")).items():
                seen[name] = max(seen.get(name, (0, "", "")), (extent["lines"], extent["sha256"], path.parent.name))
    for name, (lines, digest, run) in seen.items():
        if extent_of(task.root / name, lines) != (lines, digest):
            yield f"{name}: its first {lines} lines are not those with which run {run} ended"


def _shapes(store: ExperienceStore, task: TaskPaths) -> Iterator[str]:
    """Yield files of another shape than theirs, and items that are not those of their name."""
    for read in (read_decisions(task.promotions), read_credit(task.credit), sealed_tests(task.tests)):
        deque(read, maxlen=0)
    yield from store.problems()
    for path in task.root.glob("items/*.jsonl"):
        if sha256_hex(path.read_bytes())[:16] != path.stem:
            yield f"items/{path.name}: was changed"
