"""Close a run: write state, spec checks, manifest and report, and return the summary.

All of it is computed from the files, so that a resumed run writes it again after a failure. A replay is compared with its
run, clocks aside. A webhook hears of the end, also of a run that ended before it began.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as OutOfTime
from contextlib import nullcontext, suppress
from dataclasses import replace
from html import escape
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any, Final, TypeVar

import httpx
from filelock import FileLock, Timeout

from tfgrpo.flows.console.environment import installed_version
from tfgrpo.flows.console.figures import plus_unknown, spending, used_shares
from tfgrpo.flows.orchestration.request import RunRequest, RunSummary, Status
from tfgrpo.flows.report.night import Night
from tfgrpo.flows.report.page import write_report
from tfgrpo.flows.run.damage import check_spec, record_files
from tfgrpo.flows.run.index import SATURATED, is_unclosed, new_run_id, record_unbegun, unchanged_nights
from tfgrpo.flows.run.lessons import lesson_json, store_of, write_view
from tfgrpo.flows.run.loop.books import Session
from tfgrpo.flows.run.loop.learn import SIDES
from tfgrpo.flows.run.prepare import earlier_run, task_of_request
from tfgrpo.pipelines.settings.addresses import ENV_VALUE
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.prompt_packs.safety import ATTACK_REASONS
from tfgrpo.rewarders.scorer import Range
from tfgrpo.rewarders.statistics.summary import bootstrap_interval, mean_and_error, mean_at_k, pass_at_k, pass_hat_k
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.clock import Clock
from tfgrpo.stores.errors import ConfigError, CorruptFile, StoreError, TfgrpoError
from tfgrpo.stores.experiences.decisions import read_decisions
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.files.lines import read_objects
from tfgrpo.stores.json_values import derive_seed, to_builtins
from tfgrpo.stores.ledger import Totals, totals_in
from tfgrpo.stores.outcomes import is_highest
from tfgrpo.stores.runs import ManifestFile
from tfgrpo.stores.telemetry.setup import Facts, TelemetryOptions, configure
from tfgrpo.stores.text import pluralize, replace_surrogates
from tfgrpo.tasks.decision import alarm_notes, explanation_of, sentence_of

_T = TypeVar("_T")
_OF_THE_LINE: Final = {"schema_version", "signatures", "accepted", "credit_lines", "credit_sha256", "previous"}


def close_books(session: Session, status: Status, message: str) -> RunSummary:
    """Write the last files of a run and return its summary."""
    decision = _decision(session)
    first = session.books.first_batch
    if session.replay_of is not None and (status == "finished" or (first is not None and first.stops)):
        agrees, message = compare_with_original(session, session.replay_of, message)
        status = status if agrees == "finished" else agrees
    if decision is not None:
        write_view(session.store, session.task, session.settings.task_id, session.run_id, clock=session.clock)
    journal = session.runtime.journal
    timing = session.timing()
    for warning in (journal.warning if journal is not None else None, *session.books.damage, *session.store.damage):
        if warning:
            session.books.manifest.warn(warning, lasting=True)
    totals = session.runtime.ledger.totals()
    _warn_of_models(session, totals)
    saturated = saturation(session, totals) if status == "finished" else None
    if saturated is not None:
        message = f"{message}; {saturated['explanation']}"
    session.books.manifest.update(
        status=status,
        message=message,
        ended_at=session.clock().isoformat(),
        tfgrpo=session.books.tfgrpo_block(),
        decision=decision,
        saturated=saturated,
        ledger={**dataclasses.asdict(totals), "spent": spending(totals), **_of_task(session)},
        timing=timing,
    )
    # After the results: the guard reads the manifest as it is on disk.
    session.books.manifest.update(stages=_stages(session))
    if undelivered := _report_end(session, status, timing["wall_s"]):
        session.books.manifest.warn(undelivered, lasting=True)

    def summed_up() -> RunSummary:
        where = session.task, session.paths, session.store
        report = _written(session, "report", lambda: write_report(Night.of(*where)))
        morning = _written(session, "morning page", lambda: Night.of(*where).as_json())
        details = _details(session, status, decision, report, timing)
        return RunSummary(status, session.run_id, message, {**details, "saturated": saturated, "morning": morning})

    summary = summed_up()
    try:
        if _is_news(session, status) and (warning := notify(session.settings, summary)) is not None:
            session.books.manifest.warn(warning, lasting=True)
            summary = summed_up()
    except BaseException as error:  # noqa: BLE001 - the run has ended as it may have been told, whatever comes now
        return summary.ended_by(error)
    return summary


def close_killed(run: RunPaths, message: str) -> None:
    """Close the books of a killed run that cannot be resumed, as failed if it had no end, unless a process has opened it."""
    manifest = ManifestFile(run.manifest)
    with suppress(StoreError, OSError, Timeout), FileLock(run.root / ".lock", timeout=0, mode=0o600):
        content = manifest.read()
        if content.get("status") == "running":
            manifest.update(status="failed", message=message)
        if is_unclosed(content):
            record_files(run)


def _warn_of_models(session: Session, totals: Totals) -> None:
    if totals.implausible_usage:
        session.books.manifest.warn(
            f"{pluralize(totals.implausible_usage, 'call')} reported a usage far above what the request could use: "
            "tokens and cost of each are unknown, and the ledger counts their upper bound"
        )
    counts = session.books.refused_lessons.most_common()
    if refused := {reason: count for reason, count in counts if reason in ATTACK_REASONS}:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in refused.items())
        lessons = pluralize(sum(refused.values()), "proposed lesson")
        session.books.manifest.warn(f"{lessons} refused by the screening ({reasons}); the report shows the texts")


def unclosed_books(session: Session, status: Status, message: str) -> RunSummary:
    """Return the summary of a run whose last entries are missing, which a resumed run writes; report its end."""
    with suppress(StoreError, OSError):  # the disk may be the cause
        session.books.manifest.update(status=status, message=message, ended_at=session.clock().isoformat())
    details: dict[str, Any] = {"run": str(session.paths.root)}
    summary = RunSummary(status, session.run_id, message, details)
    if session.replay_of is None:
        details["resume with"] = f"--resume {session.run_id}"
        unreported = (_report_end(session, status, session.timing()["wall_s"]), notify(session.settings, summary))
        if any(unreported):
            details["warnings"] = [*filter(None, unreported)]
    return summary


def saturation(session: Session, totals: Totals) -> dict[str, Any] | None:
    """Return nights without a change, calls of this night and a sentence about them; None for a task that may change."""
    if session.books.decision is None:
        return None
    nights = unchanged_nights(session.task, simulated=session.plan.simulated)
    if nights < SATURATED:
        return None
    calls = plus_unknown(f"{totals.calls:,}", totals)
    return {
        "nights": nights,
        "calls": None if totals.unmeasured_attempts else totals.calls,
        "explanation": f"saturated: nothing has changed in {nights} nights; a night like this one takes {calls} calls, which a "
        "pause would save; the next one sweeps half as many items",
    }


def _is_news(session: Session, status: Status) -> bool:
    # Neither the end of a replay, nor a second time that a run has finished.
    return session.replay_of is None and not (session.finished_before and status == "finished")


def _report_end(session: Session, status: Status, wall_s: float) -> str | None:
    """Send the last metrics, with the end in them. Return what was not delivered."""
    books, settings, telemetry = session.books, session.settings, session.telemetry
    if not _is_news(session, status) or not telemetry.active:
        return telemetry.shutdown()
    decision, totals, simulated = books.decision, session.runtime.ledger.totals(), session.plan.simulated
    ended: Facts = {"simulated": simulated, "workflow": settings.pipeline, "run_status": status, "duration_s": wall_s}
    ended["lost_share"] = books.attempts.lost / books.attempts.asked if books.attempts.asked else None
    ended["cost_usd"] = None if totals.unmeasured_attempts or totals.unknown_price_calls else totals.usd
    if decision is not None:
        ended["run_decision"] = decision.decision
        with suppress(CorruptFile, OSError):
            ended["nights_unchanged"] = unchanged_nights(session.task, simulated=simulated)
        if (gain := decision.total) is not None:
            ended |= {"gain": gain.mean, "gain_low": gain.low, "gain_high": gain.high}
    telemetry.record("ended", **ended)
    for cap, share in used_shares(totals, settings.budget.model_dump(), **_of_task(session)).items():
        telemetry.record("budget", simulated=simulated, cap=cap, used=share)
    return telemetry.shutdown()


def _of_task(session: Session) -> dict[str, float]:
    """Return the dollars of all runs of the task, what lost calls may have used included; empty without a cap on them."""
    path = session.runtime.context.task_ledger_path
    with suppress(StoreError):
        return {} if path is None else {"task_usd": (totals := totals_in(path)).usd + totals.at_risk_usd}
    return {}


def _written(session: Session, what: str, write: Callable[[], _T]) -> _T | None:
    """Return what is written; None with a warning if the disk refuses, or a file that it is made from is damaged."""
    try:
        return write()
    except (StoreError, OSError) as error:
        with suppress(StoreError, OSError):  # the disk may be the cause
            session.books.manifest.warn(f"no {what} was written: {error}")
        return None


def _decision(session: Session) -> dict[str, Any] | None:
    decision, swept = session.books.decision, session.books.swept
    if decision is None or swept is None:
        return None
    score_range, seed = session.plan.score_range, session.settings.tfgrpo.seed
    sides = {arm: list(swept.rewards.get(arm, {}).values()) for arm in SIDES}
    lost = {arm: sum(swept.lost.get(arm, {}).values()) for arm in SIDES}
    # Items with a reward on both sides, so that the two means are about the same ones.
    both = [pair for pair in zip(*sides.values(), strict=True) if all(pair)]
    k = min((len(rewards) for pair in both for rewards in pair), default=0)
    return {
        **decision.model_dump(mode="json", exclude=_OF_THE_LINE),
        "notes": [*decision.notes, *alarm_notes(decision.alarms)],
        "sentence": sentence_of(decision),
        "explanation": explanation_of(decision),
        "rewards": {arm: _side([pair[number] for pair in both], k, score_range, seed) for number, arm in enumerate(SIDES)},
        "swept": swept.items,
        "lost": {arm: [lost[arm], lost[arm] + sum(map(len, sides[arm]))] for arm in SIDES},
        "score_range": list(score_range),
    }


def _side(rewards: Sequence[Sequence[float]], k: int, score_range: Range, seed: int) -> dict[str, float | None] | None:
    """Return the mean reward of a side by items, with interval and error, and what k attempts reach; None without items."""
    if not rewards:
        return None
    items = [item for item, group in enumerate(rewards) for _ in group]
    interval = bootstrap_interval(rewards, seed=derive_seed(seed, "bootstrap"))
    counts = [(len(group), sum(is_highest(reward, score_range) for reward in group)) for group in rewards]
    return {
        "mean": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "n": interval.n,
        "error": mean_and_error([reward for group in rewards for reward in group], items).se,
        "k": k,
        "mean_at_k": mean_at_k(rewards, k),
        "pass_at_k": fmean(pass_at_k(made, passed, k) for made, passed in counts),
        "pass_hat_k": fmean(pass_hat_k(made, passed, k) for made, passed in counts),
    }


def _stages(session: Session) -> list[dict[str, Any]]:
    stages: list[dict[str, Any]] = []
    for stage in session.settings.stages:
        if stage.name == "learn":
            stages.append({"name": "learn", "epochs": len(session.books.epochs)})
            continue
        try:
            checks = check_spec(session.paths.root)
        except (StoreError, OSError) as error:
            stages.append({"name": stage.name, "ok": False, "problems": [str(error)]})
            continue
        failed = [check for check in checks if not check["ok"]]
        stages.append({"name": stage.name, "ok": not failed, "checks": checks})
        for check in failed:
            session.books.manifest.warn(f"spec guard: {check['name']}: {check['evidence']}")
    return stages


def _details(
    session: Session, status: Status, decision: dict[str, Any] | None, report: Path | None, timing: dict[str, float]
) -> dict[str, Any]:
    books, totals, credit = session.books, session.runtime.ledger.totals(), session.books.state.credit
    resume = f"--resume {session.run_id}" if status in {"stopped", "failed"} and session.replay_of is None else None
    if resume is not None and books.first_batch is not None and books.first_batch.stops:
        resume += " --allow-zero"
    return {
        "task_id": session.settings.task_id,
        "simulated": session.plan.simulated,
        "decision": decision,
        "epochs": [dataclasses.asdict(end) for end in books.epochs],
        "lessons": [
            {
                "id": entry.experience_id,
                "polarity": entry.polarity,
                "text": entry.summary32,
                **lesson_json(credit.known[entry.experience_id], credit, books.in_force),
            }
            for entry in credit.on_trial
        ],
        "ledger": dataclasses.asdict(totals),
        "spent": spending(totals),
        "lost": {"rollouts": books.attempts.lost, "of": books.attempts.asked},
        "learning_lost": {
            "steps": sum(end.learning_lost for end in books.epochs),
            "of": sum(end.learning_asked for end in books.epochs),
        },
        "first_batch": None if books.first_batch is None else to_builtins(books.first_batch),
        "timing": timing,
        "store": str(session.task.experiences),
        "run": str(session.paths.root),
        "report": str(report) if report is not None else None,
        "resume with": resume,
        "warnings": list(books.manifest.read().get("warnings", ())),
    }


# Times, and values computed from times or from all lines of the task.
_IGNORED: Final = frozenset(
    {
        *("latency_s", "latency_ms", "duration_s", "created_at", "decided_at"),
        *("stamp_signature", "signatures", "previous", "credit_lines", "credit_sha256"),
    }
)


def compare_with_original(session: Session, original: TaskPaths, message: str) -> tuple[Status, str]:
    """Return status and message of a finished replay: ``failed`` with the first difference, if there is one."""
    try:
        then = _rows(session, original, store_of(session.plan, original))
        pairs = zip(then, _rows(session, session.task, session.store), strict=True)
        differences = (each for (noun, name, old), (_, _, new) in pairs for each in _differences(noun, name, old, new))
        difference = next(differences, None)
    except CorruptFile as error:
        difference = str(error)
    if difference is not None:
        return "failed", f"the replay differs from its run: {replace_surrogates(difference)}"
    count = sum(record.run_id == session.run_id for record in session.store.records())
    return "finished", f"the replay came to the same store, {count} records; {message}"


def _rows(session: Session, task: TaskPaths, store: ExperienceStore) -> Iterator[tuple[str, str, Iterable[dict[str, Any]]]]:
    """Yield what a task has of the run: what each row is, the field that names it, and the rows."""
    run, run_id = task.run(session.run_id), session.run_id
    yield "rollout", "rollout_id", read_objects(run.rollouts)
    yield "group", "group_id", read_objects(run.groups)
    records = (record for record in store.records() if record.run_id == run_id)
    stamped = ({**record.model_dump(mode="json"), "stamp holds": store.verify_stamp(record)} for record in records)
    yield "record", "experience_id", stamped
    yield "line of credit", "line_id", (row for row in read_objects(task.credit) if row.get("run_id") == run_id)
    decisions = (one.model_dump(mode="json") for one in read_decisions(task.promotions) if one.run_id == run_id)
    yield "decision", "decision", decisions


def _differences(noun: str, name: str, then: Iterable[Mapping[str, Any]], now: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    lost, more = 0, 0
    for number, (old, new) in enumerate(zip_longest(map(_timeless, then), map(_timeless, now)), start=1):
        lost, more = lost + (new is None), more + (old is None)
        if old and new and (changed := [key for key in {**old, **new} if old.get(key) != new.get(key)]):
            yield f"{noun} {number} differs: {old.get(name)}: {', '.join(changed)}"
    if lost or more:
        yield f"{number - more} {noun}s then, {number - lost} now"


def _timeless(value: Any) -> Any:
    """Return a JSON value without what may differ, at any depth."""
    if isinstance(value, Mapping):
        return {key: _timeless(each) for key, each in value.items() if key not in _IGNORED}
    return [*map(_timeless, value)] if isinstance(value, list) else value


# Before each of the three attempts.
_PAUSES_S: Final = (0.0, 0.5, 2.0)
_ATTEMPT_S: Final = 3.0
# Longest wait in all: Prefect gives a cancelled run 30 s to close its books.
_LIMIT_S: Final = 10.0
_MOST_LINES: Final = 10


def notify(settings: Settings, summary: RunSummary) -> str | None:
    """Report an end that ``notify.on`` names. Return a warning if the webhook did not take it."""
    events = events_of(summary)
    if settings.notify.url is None or not events & {*settings.notify.on}:
        return None
    begun = "" if "run" in summary.details else " before it began"
    lines = (summary.details.get("morning") or {}).get("lines") or [
        {"label": "night", "text": f"{summary.status}{begun} (task {settings.task_id})"},
        *({"label": summary.status, "text": text} for text in summary.message.splitlines()[: _MOST_LINES - 1]),
    ]
    body = {
        # Slack reads <!channel> in a text as an order, and lessons are a model's words.
        "text": escape("\n".join(f"{line['label']}: {line['text']}" for line in lines), quote=False),
        "events": sorted(events),
        "task_id": settings.task_id,
        **{name: summary.as_json()[name] for name in ("run_id", "status", "message")},
        "exit_code": summary.exit_code,
        "simulated": choose_models(settings).simulated,
        "decision": (summary.details.get("decision") or {}).get("decision"),
        "lines": lines,
    }
    variable = settings.notify.url.removeprefix(ENV_VALUE)
    url = os.environ.get(variable, "").strip()
    why = f"{variable} is not set"
    if url:
        try:
            why = RewarderThreads(1, "tfgrpo-notify").submit(_post, url, body).result(_LIMIT_S)
        except OutOfTime:
            why = f"no answer within {_LIMIT_S:g} s"
    if not why:
        return None
    return f"the end of the run was not reported to the webhook of notify.url ({variable}): {why}"


def events_of(summary: RunSummary) -> set[str]:
    """Return what happened in a run, in the words of ``notify.on``: its status, what became of lessons, saturation."""
    details, events = summary.details, {"failed" if summary.status == "refused" else summary.status}
    page, decision = details.get("morning") or {}, (details.get("decision") or {}).get("decision")
    if decision == "taken back" or (decision == "in force" and (page.get("added") or page.get("removed"))):
        events.add(decision)
    return events | ({"saturated"} if details.get("saturated") else set())


def _post(url: str, body: Mapping[str, Any]) -> str:
    """Post until it is taken, at most three times. Return why it was not; empty when it was. The address is secret."""
    why = ""
    for pause_s in _PAUSES_S:
        time.sleep(pause_s)
        try:
            # Streamed: the answer is not read.
            with httpx.Client(timeout=_ATTEMPT_S) as client, client.stream("POST", url, json=body) as reply:
                status = reply.status_code
        except httpx.TransportError as error:
            why = type(error).__name__
            continue
        except Exception as error:  # noqa: BLE001 - an address that is none; whatever it is, the run goes on
            return type(error).__name__
        if status < httpx.codes.MULTIPLE_CHOICES:
            return ""
        why = f"HTTP {status}"
        if status < httpx.codes.INTERNAL_SERVER_ERROR and status != httpx.codes.TOO_MANY_REQUESTS:
            break  # refused: asking again changes nothing
    return why


def report_unbegun(
    request: RunRequest, error: TfgrpoError | OSError, env: Mapping[str, str], *, listed_at: Clock | None = None
) -> RunSummary:
    """Return the summary of a run that ended before it began; count and report it, if its settings can be read.

    With a clock, it is a line of `tfgrpo runs` where its task is known.
    """
    run_id = request.earlier or request.run_id
    if isinstance(error, ConfigError):
        summary = RunSummary.refused(run_id, error)
    else:
        summary = RunSummary("failed", run_id, f"the run could not be opened: {type(error).__name__}: {error}", {})
    if listed_at is not None:
        list_unbegun(request, env, summary, listed_at)
    try:
        resolved = request.resolved(env)
        with suppress(ConfigError) if request.as_begun else nullcontext():  # of a night that is resumed by another one
            resolved = resolved if request.earlier is None else earlier_run(request, env)[2]
    except (TfgrpoError, OSError):
        return summary
    settings, warnings = resolved.settings, list[str | None]()
    with suppress(ConfigError):  # of an endpoint of telemetry, which may be why it was refused
        telemetry = configure(TelemetryOptions(installed_version(), task_id=settings.task_id), os.environ)
        simulated = choose_models(settings).simulated
        telemetry.record("ended", simulated=simulated, run_status=summary.status)
        warnings.append(telemetry.shutdown())
    warnings.append(notify(settings, summary))
    details = {"warnings": [*filter(None, warnings)]} if any(warnings) else {}
    return replace(summary, details={**summary.details, **details})


def list_unbegun(request: RunRequest, env: Mapping[str, str], ended: RunSummary, clock: Clock) -> None:
    """Record a run that did not start, where its task is known."""
    if request.earlier is None:
        with suppress(ValueError):
            run = task_of_request(request, env).run(request.run_id or new_run_id(clock))
            about = {"flow_run_id": request.flow_run_id, "pipeline": Path(request.pipeline).stem}
            record_unbegun(run, ended.status, ended.message, clock=clock, **about)
