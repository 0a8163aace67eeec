"""Check the files of a run against the promises of the specification: the pipeline stage ``spec-guard``.

Reads the files of a run and its task's store. A broken promise or an unreadable file is a failed check with evidence,
never an exception (requirement 60).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, get_args

from tfgrpo.stores.canonical import key_digest
from tfgrpo.stores.errors import CorruptFile, StoreError
from tfgrpo.stores.experiences.store import ExperienceRecord, PackStamp, signature_holds
from tfgrpo.stores.files.atomic import read_json
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.files.lines import read_bodies, read_keys, read_objects
from tfgrpo.stores.ledger import NANO
from tfgrpo.stores.numeric import is_number
from tfgrpo.stores.outcomes import GroupKey, OutcomeName
from tfgrpo.stores.runs import attempt_and_role, attempt_name
from tfgrpo.stores.text import MAX_CHARS, MAX_WORDS, count_words

_FIELDS = ("run_id", "task_id", "status", "settings", "sources", "seeds", "pack", "cohorts", "tfgrpo", "ledger")
_TFGRPO = ("epochs", "experiences_written", "reward_scores", "per_tool_metrics")
_METRIC_STATUS = {"ok", "failed"}
_NO_ROLLOUT_CALLS = {"digest", "reflect", "curate", "shorten", "judge", "tool"}
_WHOLE_ATTEMPT = "agent"
"""Role of a user's own agent, which is journalled as a whole, however many calls it made."""
_SHOWN = 3

_Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SpecCheck:
    """Result of one check."""

    name: str
    ok: bool
    evidence: str


@dataclass(frozen=True, slots=True)
class SpecReport:
    """Results of all checks of one run."""

    checks: tuple[SpecCheck, ...]

    @property
    def ok(self) -> bool:
        """Whether all checks passed."""
        return all(check.ok for check in self.checks)

    def as_json(self) -> dict[str, object]:
        """Return the evidence for the manifest."""
        return {"ok": self.ok, "checks": [asdict(check) for check in self.checks]}


def check_spec(run_dir: Path) -> SpecReport:
    """Check a run after its epochs, when its manifest has all results."""
    run, task = RunPaths(run_dir), TaskPaths(run_dir.parent.parent)
    manifest: _Json = {}
    with suppress(OSError, CorruptFile):  # an unreadable manifest lacks every field
        manifest = read_json(run.manifest, "a manifest") or {}
    outcomes = "one of four for every rollout; a reward for scored ones only"
    lacking = chain(
        (f"no {name!r} in the manifest" for name in _FIELDS if name not in manifest),
        (f"no {name!r} in its tfgrpo block" for name in _TFGRPO if name not in manifest.get("tfgrpo", {})),
    )
    checks: tuple[tuple[str, Iterator[str], str], ...] = (
        ("manifest complete", lacking, f"{len(_FIELDS)} fields and the tfgrpo block"),
        ("outcomes legal", _outcome_faults(run), outcomes),
        ("lessons short and stamped", _lesson_faults(task, run_dir.name, manifest), "every lesson of the run"),
        ("metrics once per group", _metric_faults(run), "one line per run, epoch and group"),
        ("calls journalled", _journal_faults(run), "an entry for every call of every scored rollout"),
        ("budget respected", _budget_faults(manifest), "calls, tokens and money within their caps"),
    )
    return SpecReport(tuple(_check(name, faults, passed) for name, faults, passed in checks))


def _check(name: str, faults: Iterator[str], passed: str) -> SpecCheck:
    try:
        evidence = list(faults)
    except (OSError, StoreError, KeyError, TypeError, ValueError, AttributeError) as error:
        # These files may have any shape: an exception while reading them is evidence too.
        evidence = [f"{type(error).__name__}: {error}"]
    if not evidence:
        return SpecCheck(name, True, passed)
    more = f"; and {len(evidence) - _SHOWN} more" if len(evidence) > _SHOWN else ""
    return SpecCheck(name, False, "; ".join(evidence[:_SHOWN]) + more)


def _outcome_faults(run: RunPaths) -> Iterator[str]:
    for row in read_objects(run.rollouts):
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
    for body in read_bodies(task.experiences):
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
    seen: Counter[tuple[str, int, str]] = Counter()
    for row in read_objects(run.metrics):
        if row["status"] not in _METRIC_STATUS:
            yield f"a metrics line has the status {row['status']!r}"
        seen[row["run_id"], row["tfgrpo_epoch"], row.get("group_id") or ""] += 1
    yield from (f"{count} metrics lines for {key}" for key, count in seen.items() if count > 1)
    measured = {group for _, _, group in seen}
    yield from (
        f"no metrics line for the group {group}" for group in sorted({*read_keys(run.groups, "group_id")} - measured)
    )


def _journal_faults(run: RunPaths) -> Iterator[str]:
    if run.root.parent.parent.parent.name == "replays":
        return  # a replay reads the journal of the run that it repeats
    answered: Counter[int] = Counter()  # by digests of attempts, of which there may be very many
    whole: set[int] = set()
    for key in read_keys(run.journal, "key"):
        name, role = attempt_and_role(key)
        if role == _WHOLE_ATTEMPT:
            whole.add(key_digest(name))
        elif role not in _NO_ROLLOUT_CALLS:
            answered[key_digest(name)] += 1
    groups = {row["group_id"]: GroupKey.of_row(row) for row in read_objects(run.groups)}
    for row in read_objects(run.rollouts):
        if row["outcome"]["name"] != "scored":
            continue
        group = groups.get(row["group_id"])
        if group is None:
            yield f"{row['rollout_id']} is of a group that has no line in {run.groups.name}"
            continue
        attempt = key_digest(attempt_name(replace(group, arm=row["arm"]), row["index"]))
        if attempt not in whole and answered[attempt] < row["calls"]:
            yield f"{row['rollout_id']} made {row['calls']} calls, the journal holds {answered[attempt]}"


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
