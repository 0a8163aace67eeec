"""Check the files of a run and of a task, by each other and by the promises of the specification.

A run that would pay or decide by damaged ones is refused. At its end the pipeline stage ``spec-guard`` reads the files
of the run and its task's store: a broken promise or an unreadable file is a failed check with evidence, never an
exception (requirement 60).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

from tfgrpo.flows.run.lessons import lost_in_force, missing, store_of
from tfgrpo.stores.errors import CorruptFile, SettingsError, TfgrpoError
from tfgrpo.stores.experiences import decisions
from tfgrpo.stores.experiences.credit import read_credit
from tfgrpo.stores.experiences.decisions import WAY_OUT
from tfgrpo.stores.experiences.store import ExperienceRecord, ExperienceStore, PackStamp, signature_holds
from tfgrpo.stores.files import lines
from tfgrpo.stores.files.atomic import is_signed_file, read_json
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.json_values import canonical_json, key_digest, mapping_of, sha256_hex
from tfgrpo.stores.ledger import NANO, Totals, totals_in
from tfgrpo.stores.numeric import is_cost, is_number
from tfgrpo.stores.outcomes import OutcomeName
from tfgrpo.stores.runs import TFGRPO_KEYS, ManifestFile, attempt_and_role
from tfgrpo.stores.text import MAX_CHARS, MAX_WORDS, count_words, pluralize
from tfgrpo.tasks.models.wire import usage_of

if TYPE_CHECKING:
    from tfgrpo.flows.run.prepare import Prepared
    from tfgrpo.tasks.runtime.runtime import RunContext


# Outcomes of attempts that have an answer in the journal.
_ATTEMPTED: Final = frozenset({"scored", "ungraded"})
# Endings of the files of a run; what was moved away, and locks, have others.
_KEPT: Final = frozenset({".jsonl", ".json", ".html"})
_ROLLOUTS: Final = "runs/*/rollouts.jsonl"
_FIELDS = ("run_id", "task_id", "status", "settings", "sources", "seeds", "pack", "cohorts", "tfgrpo", "ledger")
_METRIC_STATUS = {"ok", "failed"}
_SHOWN = 3
_Json = dict[str, Any]


class Journalled(NamedTuple):
    """What a journal accounts for."""

    spent: Totals = Totals()
    """Answered calls with their tokens and money, and the number of all entries."""
    attempts: int = 0
    warnings: Sequence[str] = ()
    """What a run that goes on with this journal says of it."""


def read_journal(path: Path) -> Journalled:
    """Sum a journal up, without damaged lines; nothing without one. Raises ``CorruptFile`` for a file of zeros."""
    entries = calls = tokens = nano = 0
    attempts: set[str] = set()
    for line in lines.lines_of(path):
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
    if request.replay is not None:
        damaged = list[str]()
        with _noted(damaged):
            damaged += _line_problems(run.journal)
        if damaged:
            accepted = f"a whole journal; `--resume {run_id} --pay-again` asks those calls again"
            raise SettingsError.one("--replay", f"{run_id} with {pluralize(len(damaged), 'damaged line')}", accepted)
        return Journalled()
    plan, task = prepared.plan, prepared.plan.paths
    damage = decisions.decided_damage(task.promotions)
    if damage or (lost := lost_in_force(store_of(plan), task, simulated=plan.simulated)):
        raise SettingsError.one("the task", damage or f"{task.experiences}: {lost[0]}", WAY_OUT)
    if request.resume is None:
        return Journalled()
    closed = int(mapping_of((prepared.earlier or {}).get("ledger")).get("journalled", 0))
    return refuse_lost(context, "--resume", "restore the file, or begin a new run", closed, pay_again=request.pay_again)


def refuse_lost(context: RunContext, option: str, remedy: str, closed: int = 0, *, pay_again: bool | None = None) -> Journalled:
    """Raise ``SettingsError`` for lost answers, a damaged ledger, or under a cap a lost one; return what the journal has.

    ``closed``: answers by the manifest. ``pay_again``: whether lost answers may be paid for again; None: never.
    """
    run, run_id = context.paths, context.run_id
    try:
        spent = totals_in(run.ledger) if run.ledger.is_file() else None
        attempted = _attempted(run)
    except CorruptFile as error:
        raise SettingsError.one(option, f"{run_id}: {error}", f"one with a whole ledger: {remedy}") from error
    journalled = Journalled()
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


def _lost_answers(run: RunPaths, journal: Journalled, attempted: int, spent: Totals | None, closed: int) -> str | None:
    answers = max(spent.journalled if spent else 0, closed)
    lost = max(answers - journal.spent.journalled, attempted - journal.attempts, 0)
    # Opening a run makes both files, so that only one that was lost is missing.
    unknown = not journal.spent.journalled and (spent is None or (spent.calls > spent.lost_calls and not run.journal.exists()))
    if not lost and not unknown:
        return None
    what = f"{pluralize(lost, 'answered call')} of {max(answers, attempted, lost)}" if lost else "its answered calls"
    again = f"{'it' if lost == 1 else 'they'} would be paid again"
    return f"{run.root.name}, whose journal {run.journal} is missing, damaged or cut: it lacks {what}, and {again}"


def _attempted(run: RunPaths) -> int:
    rows = (mapping_of(json.loads(line.body)) for line in lines.lines_of(run.rollouts) if line.length)
    return sum(mapping_of(row.get("outcome")).get("name") in _ATTEMPTED for row in rows)


def record_files(run: RunPaths) -> None:
    """Write into the manifest how many lines each file has at the end of a run, and their SHA-256."""
    manifest, task = ManifestFile(run.manifest), TaskPaths(run.root.parent.parent)
    if manifest.read().get("status", "running") != "running":
        paths = (task.experiences, task.batches, task.credit, task.promotions, task.tests)
        of_task = {path.name: lines.extent_of(path)._asdict() for path in paths if path.exists()}
        manifest.update(files=extents(run), task_files=of_task)


def record_file(run: RunPaths, path: Path) -> None:
    """Write one file that was made again into the manifest of an ended run."""
    manifest = ManifestFile(run.manifest)
    if files := manifest.read().get("files"):
        manifest.update(files={**mapping_of(files), path.name: lines.whole_extent(path)._asdict()})


def extents(run: RunPaths) -> dict[str, dict[str, int | str]]:
    """Return the files of a run as its manifest records them."""
    return {path.name: lines.whole_extent(path)._asdict() for path in _files(run)}


def _files(run: RunPaths) -> list[Path]:
    return [each for each in sorted(run.root.iterdir()) if each.suffix in _KEPT and each != run.manifest]


def refuse_changed(run: RunPaths) -> None:
    """Raise ``CorruptFile`` for a manifest, or a file of lines, that changed since the end of its run."""
    for problem in _changed(run, {".jsonl"}):
        raise CorruptFile(f"{run.root / problem}; `tfgrpo verify {run.root.name}` lists all that differs")


def _changed(run: RunPaths, endings: Collection[str] = _KEPT) -> Iterator[str]:
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
        elif (extent := lines.whole_extent(path)._asdict()) != recorded:
            counts = f"{extent['lines']} lines, {mapping_of(recorded).get('lines')} at the end of its run"
            yield f"{name}: was changed since its run ended ({counts})"


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
    end = 0
    for line in lines.lines_of(path) if path.suffix == ".jsonl" else ():
        if line.damaged:
            yield f"{path.name}: line {line.number} is damaged"
        end = line.offset + len(line.data) + 1
    if torn and path.suffix == ".jsonl" and path.exists() and path.stat().st_size > end:
        yield f"{path.name}: the last line is incomplete and does not count"


def _disagreements(run: RunPaths) -> Iterator[str]:
    """Yield what rollouts and ledger of a run have that its journal lacks; a replay has none, nor has a pruned run."""
    if run.ledger.is_file() and "pruned_at" not in ManifestFile(run.manifest).read():
        attempted, spent = _attempted(run), totals_in(run.ledger)  # before the journal, which grows first while a run goes on
        yield from filter(None, [_lost_answers(run, read_journal(run.journal), attempted, spent, 0)])


def task_problems(store: ExperienceStore, task: TaskPaths) -> list[str]:
    """Return what is damaged, missing or changed of the files that all runs of a task share, and was not accepted."""
    problems: list[str] = []
    of_runs = (task.ledger(simulated=False), task.ledger(simulated=True))
    for path in (*(each for each in task.own_files() if each != task.promotions), *of_runs):
        with _noted(problems):
            problems += _line_problems(path)
    with _noted(problems):
        problems += decisions.chain_problems(task.promotions)
    for check in (_shared(store, task), _view(task), _vouched_for(task), _shapes(store, task)):
        with _noted(problems):
            problems += check
    return _not_accepted(task, problems)


def record_problems(store: ExperienceStore, task: TaskPaths) -> list[str]:
    """Return what is damaged or missing of the records of a task, and was not accepted. Raises ``CorruptFile``."""
    return _not_accepted(task, store.problems())


def _not_accepted(task: TaskPaths, problems: Sequence[str]) -> list[str]:
    accepted: set[str] = set()
    with _noted([]):
        accepted = {each for one in decisions.read_decisions(task.promotions) for each in one.accepted}
    return [each for each in dict.fromkeys(problems) if each not in accepted]


def _shared(store: ExperienceStore, task: TaskPaths) -> Iterator[str]:
    """Yield what decisions, records and rollouts of a task lack of each other."""
    if damage := decisions.decided_damage(task.promotions):
        yield damage.removeprefix(f"{task.root}/")
        return
    named = [pair for one in decisions.read_decisions(task.promotions) for pair in one.signatures.items()]
    yield from missing(store, named)
    records = [*store.records()]  # before the attempts that they are of, as a night may be under way
    made = {path.parent.name: {row["rollout_id"] for row in lines.read_objects(path)} for path in task.root.glob(_ROLLOUTS)}
    for one in records:  # of a merged lesson, attempts may be of a run that was removed
        if one.operation == "add" and not set(one.evidence) <= made.get(one.run_id, set(one.evidence)):
            yield f"runs/{one.run_id}/rollouts.jsonl: lacks attempts that lesson {one.experience_id} was learned from"


def _view(task: TaskPaths) -> Iterator[str]:
    newest, state = decisions.newest_line(task.promotions), decisions.read_state(task.state)
    if state is None and (newest or task.state.exists()):
        yield f"{task.state.name}: is {'damaged' if task.state.exists() else 'missing'}; the next command writes it again"
    elif state is not None and state["task_id"] != task.root.name:
        yield f"{task.state.name}: is that of task {state['task_id']}"


def _vouched_for(task: TaskPaths) -> Iterator[str]:
    """Yield the files whose first lines are not those at the end of a run: a later one may have moved lines away."""
    seen = defaultdict[str, list[tuple[int, str, str]]](list)
    for path in sorted(task.root.glob("runs/*/manifest.json")):
        with suppress(CorruptFile):  # which is a problem of that run
            for name, extent in mapping_of(ManifestFile(path).read().get("task_files")).items():
                seen[name].append((extent["lines"], extent["sha256"], path.parent.name))
    last = {run: number for number, _, run in seen[task.credit.name]}
    for line in lines.lines_of(task.credit):
        run = mapping_of(json.loads(line.body)).get("run_id") if line.length else None
        if line.number > last.get(run or "", line.number):
            yield f"{task.credit.name}: line {line.number} names run {run}, which had ended before it was written"
    for name, recorded in seen.items():
        digests = lines.extents_at(task.root / name, {number for number, _, _ in recorded})
        for number, digest, run in recorded:
            if digests.get(number) != digest:
                yield f"{name}: its first {number} lines are not those with which run {run} ended"


def _shapes(store: ExperienceStore, task: TaskPaths) -> Iterator[str]:
    """Yield files of another shape than theirs, and items that are not those of their name."""
    for read in (decisions.read_decisions(task.promotions), read_credit(task.credit), decisions.sealed_tests(task.tests)):
        deque(read, maxlen=0)
    for path in (task.ledger(simulated=False), task.ledger(simulated=True)):
        if path.exists():
            totals_in(path)
    yield from store.problems()
    for path in task.root.glob("items/*.jsonl"):
        if sha256_hex(path.read_bytes())[:16] != path.stem:
            yield f"items/{path.name}: was changed"


def check_spec(run_dir: Path) -> list[_Json]:
    """Check a run after its epochs, when its manifest has all results. Return name, result and evidence of each check."""
    run, task = RunPaths(run_dir), TaskPaths(run_dir.parent.parent)
    manifest: _Json = {}
    with suppress(OSError, CorruptFile):  # an unreadable manifest lacks every field
        manifest = read_json(run.manifest, "a manifest") or {}
    outcomes = "one of four for every rollout; a reward for scored ones only"
    lacking = chain(
        (f"no {name!r} in the manifest" for name in _FIELDS if name not in manifest),
        (f"no {name!r} in its tfgrpo block" for name in TFGRPO_KEYS if name not in manifest.get("tfgrpo", {})),
    )
    checks: tuple[tuple[str, Iterator[str], str], ...] = (
        ("manifest complete", lacking, f"{len(_FIELDS)} fields and the tfgrpo block"),
        ("outcomes legal", _outcome_faults(run), outcomes),
        ("lessons short and stamped", _lesson_faults(task, run_dir.name, manifest), "every lesson of the run"),
        ("metrics once per group", _metric_faults(run), "one line per run, epoch and group"),
        ("calls journalled", _disagreements(run), "an entry for every graded attempt and every call of the ledger"),
        ("budget respected", _budget_faults(manifest), "calls, tokens and money within their caps"),
    )
    results = []
    for name, faults, passed in checks:
        evidence = list[str]()
        with _noted(evidence):  # these files may have any shape
            evidence += faults
        more = f"; and {len(evidence) - _SHOWN} more" if len(evidence) > _SHOWN else ""
        words = "; ".join(evidence[:_SHOWN]) + more if evidence else passed
        results.append({"name": name, "ok": not evidence, "evidence": words})
    return results


def _outcome_faults(run: RunPaths) -> Iterator[str]:
    for row in lines.read_objects(run.rollouts):
        outcome, rollout = row["outcome"], row["rollout_id"]
        name = outcome["name"]
        if name not in get_args(OutcomeName):
            yield f"{rollout} ended as {name!r}"
        elif name == "scored":
            if not is_number(outcome.get("reward"), allow_nan=False):
                yield f"{rollout} is scored without a finite reward"
        elif outcome.get("reward") is not None:
            yield f"{rollout} is {name} and has a reward"


def _lesson_faults(task: TaskPaths, run_id: str, manifest: _Json) -> Iterator[str]:
    learning = manifest["settings"]["tfgrpo"]
    words = min(MAX_WORDS, learning["experience_max_words"])
    pack = manifest["pack"]
    stamp = PackStamp(pack["id"], pack["stamp"], pack["stamped_at"])
    for body in lines.read_bodies(task.experiences):
        row = json.loads(body)
        if row["run_id"] != run_id:
            continue
        name, text = row["experience_id"][:12], row["summary32"]
        if count_words(text) > words or len(text) > MAX_CHARS:
            yield f"lesson {name} has {count_words(text)} words and {len(text)} characters"
        elif not row["stamp_signature"]:
            yield f"lesson {name} is not stamped"
        elif not signature_holds(ExperienceRecord.model_validate_json(body), stamp):
            yield f"the stamp of lesson {name} does not hold for the pack of the run"


def _metric_faults(run: RunPaths) -> Iterator[str]:
    # By digests, as of attempts below: there may be very many groups.
    seen, measured = set[int](), set[int]()
    repeated: Counter[tuple[str, int, str]] = Counter()
    for row in lines.read_objects(run.metrics):
        if row["status"] not in _METRIC_STATUS:
            yield f"a metrics line has the status {row['status']!r}"
        key = row["run_id"], row["tfgrpo_epoch"], row.get("group_id") or ""
        repeated.update([key] if (digest := key_digest(canonical_json(key))) in seen else ())
        seen.add(digest)
        measured.add(key_digest(key[-1]))
    yield from (f"{count + 1} metrics lines for {key}" for key, count in repeated.items())
    groups = (str(row["group_id"]) for row in lines.read_objects(run.groups))
    yield from (
        f"no metrics line for the group {group}"
        for group in sorted({each for each in groups if key_digest(each) not in measured})
    )


def _budget_faults(manifest: _Json) -> Iterator[str]:
    budget, spent = manifest["settings"]["budget"], manifest["ledger"]
    used = {
        "max_calls": spent["calls"],
        "max_tokens": spent["tokens"] + spent.get("at_risk_tokens", 0),
        "max_usd": (spent.get("nano_usd", 0) + spent.get("at_risk_nano", 0)) / NANO,
    }
    for name, amount in used.items():
        if budget[name] is not None and amount > budget[name]:
            yield f"{amount:g} spent of {name} {budget[name]:g}"
