"""The spec guard finds every broken promise in a run's files, and nothing in a run that kept them."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.records.line_files import seal
from tfgrpo.flows.run.damage import check_spec
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.stores.experiences.store import ExperienceRecord, PackStamp, Reward, stamp_record
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.json_values import canonical_json
from tfgrpo.stores.ledger import LEDGER_SCHEMA, Totals
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.runs import CallKey

STAMP = PackStamp("test-pack", "a" * 64, "2026-01-01T00:00:00+00:00")


def lesson(run_id: str = "r1", text: str = "Count both ends of a range.") -> dict[str, Any]:
    record = ExperienceRecord(
        experience_id=f"e-{run_id}", run_id=run_id, task_id="task", domain="testing", pack_id="test-pack", epoch=1, batch=0,
        group_id="g", operation="add", summary32=text, polarity="do", reward=Reward(gt_score=1.0, relative_rank=1.0),
        stamp_signature="", created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    return stamp_record(record, STAMP).model_dump(mode="json")


def rollout(index: int, name: str = "scored", **outcome: Any) -> dict[str, Any]:
    reward = {"reward": 1.0} if name == "scored" else {"reason": "x"}
    return {
        "rollout_id": f"g-{index}", "group_id": "g", "item_id": "a/b#c", "epoch": 1, "arm": "group", "index": index,
        "outcome": {"name": name, **reward, **outcome}, "calls": 2,
    }  # fmt: skip


def group_line(name: str = "g", **fields: Any) -> dict[str, Any]:
    key = {"epoch": 1, "phase": "train", "arm": "group", "batch": 0, "item_id": "a/b#c", "draw": 0}
    return {"group_id": name, **key, **fields}


def key(index: int, turn: int, role: str = "rollout", *, item: str = "a/b#c", batch: int = 0) -> dict[str, Any]:
    call = CallKey(GroupKey(1, "train", "group", batch, item), index, turn, role)
    return {"schema": 1, "key": call.text("0" * 64), "kind": "reply", "payload": {}}


class Run:
    """A kept run whose files a test may spoil."""

    def __init__(self, root: Path, parent: str = "task") -> None:
        self.dir = root / parent / "runs" / "r1"
        self.dir.mkdir(parents=True)
        self.store = root / parent / "experiences.jsonl"
        self.manifest: dict[str, Any] = {
            "schema_version": 1,
            "run_id": "r1", "task_id": "task", "status": "running", "settings": Settings().model_dump(mode="json"),
            "sources": {}, "seeds": {}, "cohorts": {}, "ledger": {"calls": 4, "tokens": 100, "nano_usd": 10**9},
            "pack": {"id": STAMP.pack_id, "stamp": STAMP.stamp, "stamped_at": STAMP.stamped_at},
            "tfgrpo": {"epochs": [], "experiences_written": 1, "reward_scores": {}, "per_tool_metrics": []},
        }  # fmt: skip
        self.rollouts = [rollout(0), rollout(1), rollout(2, "failed"), rollout(3, "ungraded"), rollout(4, "refused")]
        self.metrics = [{"run_id": "r1", "tfgrpo_epoch": 1, "group_id": "g", "status": "ok"}]
        self.journal = [key(0, 0), key(0, 1), key(1, 0), key(1, 1), key(3, 0), key(0, 0, "reflect"), key(0, 0, "tool")]
        self.groups = [group_line()]
        self.lessons = [lesson(), lesson("another-run")]
        self.ledger: list[dict[str, Any]] = [
            {"schema": LEDGER_SCHEMA, "totals": Totals(calls=4, journalled=7).to_json(), "in_flight": {}}
        ]

    def guard(self) -> list[dict[str, Any]]:
        (self.dir / "manifest.json").write_text(json.dumps(self.manifest), encoding="utf-8")
        for path, rows in (
            (self.dir / "rollouts.jsonl", self.rollouts),
            (self.dir / "groups.jsonl", self.groups),
            (self.dir / "metrics.jsonl", self.metrics),
            (self.dir / "journal.jsonl", self.journal),
            (RunPaths(self.dir).ledger, self.ledger),
            (self.store, self.lessons),
        ):
            if rows or path.name != RunPaths(self.dir).ledger.name:
                path.write_text("".join(f"{canonical_json(row)}\n" for row in rows), encoding="utf-8")
                seal(path)
        return check_spec(self.dir)

    def broken(self) -> dict[str, str]:
        return {check["name"]: check["evidence"] for check in self.guard() if not check["ok"]}


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def test_a_run_that_kept_its_promises_passes_with_evidence(run):
    report = run.guard()
    assert all(check["ok"] for check in report), report
    assert [check["name"] for check in report] == [
        "manifest complete", "outcomes legal", "lessons short and stamped", "metrics once per group", "calls journalled",
        "budget respected",
    ]  # fmt: skip
    assert all(check["evidence"] for check in report)


SPOILS: list[tuple[str, Callable[[Run], object], str]] = [
    ("manifest complete", lambda run: run.manifest.pop("seeds"), "no 'seeds' in the manifest"),
    ("manifest complete", lambda run: run.manifest["tfgrpo"].pop("reward_scores"), "no 'reward_scores' in its tfgrpo block"),
    ("outcomes legal", lambda run: run.rollouts.append(rollout(5, "lost")), "g-5 ended as 'lost'"),
    ("outcomes legal", lambda run: run.rollouts.append(rollout(5, "failed", reward=0.0)), "g-5 is failed and has a reward"),
    ("outcomes legal", lambda run: run.rollouts[0]["outcome"].pop("reward"), "g-0 is scored without a finite reward"),
    ("outcomes legal", lambda run: run.rollouts[0].pop("rollout_id"), "KeyError"),
    ("lessons short and stamped", lambda run: run.lessons[0].update(summary32="word " * 33), "has 33 words"),
    ("lessons short and stamped", lambda run: run.lessons[0].update(summary32="w" * 281), "281 characters"),
    ("lessons short and stamped", lambda run: run.lessons[0].update(stamp_signature=""), "is not stamped"),
    ("lessons short and stamped", lambda run: run.manifest["settings"]["tfgrpo"].update(experience_max_words=4), "has 6 words"),
    ("lessons short and stamped", lambda run: run.lessons[0].update(polarity="avoid"), "does not hold for the pack"),
    ("lessons short and stamped", lambda run: run.lessons[0].update(domain=3), "ValidationError"),
    ("lessons short and stamped", lambda run: run.manifest["pack"].update(stamp="b" * 64), "does not hold for the pack"),
    ("metrics once per group", lambda run: run.metrics.append(run.metrics[0]), "2 metrics lines for ('r1', 1, 'g')"),
    ("metrics once per group", lambda run: run.metrics[0].update(status="odd"), "has the status 'odd'"),
    ("metrics once per group", lambda run: run.metrics.clear(), "no metrics line for the group g"),
    ("calls journalled", lambda run: run.journal.pop(0), "it lacks 1 answered call of 7"),
    ("calls journalled", lambda run: [each.update(key(1, 2)) for each in run.journal[:2]], "it lacks 1 answered call of 7"),
    ("calls journalled", lambda run: run.ledger[0]["totals"].update(journalled="x"), "is not a ledger"),
    ("budget respected", lambda run: run.manifest["settings"]["budget"].update(max_calls=3), "4 spent of max_calls 3"),
    ("budget respected", lambda run: run.manifest["settings"]["budget"].update(max_usd=0.5), "1 spent of max_usd 0.5"),
    ("budget respected", lambda run: run.manifest["ledger"].update(at_risk_tokens="x"), "TypeError"),
]


@pytest.mark.parametrize(("name", "spoil", "evidence"), SPOILS)
def test_each_broken_promise_is_found_alone(run, name, spoil, evidence):
    spoil(run)
    broken = run.broken()
    assert set(broken) == {name}
    assert evidence in broken[name]


def test_money_and_tokens_at_risk_count_against_the_caps(run):
    run.manifest["settings"]["budget"].update(max_tokens=120, max_usd=1.5)
    assert run.broken() == {}
    run.manifest["ledger"].update(at_risk_tokens=30, at_risk_nano=10**9)
    assert run.broken()["budget respected"] == "130 spent of max_tokens 120; 2 spent of max_usd 1.5"


def test_an_agent_that_is_journalled_whole_needs_one_entry(run):
    run.journal = [key(number, 0, "agent") for number in (0, 1, 3)]
    run.ledger[0]["totals"].update(calls=3, journalled=3)
    assert run.broken() == {}


def test_a_replay_has_the_journal_of_the_run_it_repeats(tmp_path):
    run = Run(tmp_path, "task/replays/r1-1")
    run.journal = run.ledger = []
    assert run.broken() == {}


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_run_without_a_readable_manifest_fails_without_an_exception(run, text):
    run.guard()
    (run.dir / "manifest.json").write_text(text, encoding="utf-8")
    report = check_spec(run.dir)
    assert {check["name"] for check in report if not check["ok"]} >= {"manifest complete", "budget respected"}
