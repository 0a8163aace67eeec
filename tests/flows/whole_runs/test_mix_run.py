"""Whole runs on a staged mix and with a curriculum: what is drawn, what grades, the same again on resume and replay."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runs.pages import ROOT
from tests.support.runs.running import RUN, TASK, lines, manifest, one_group_teaches, paths, run, timeless
from tfgrpo.pipelines.datasets.datasets import shipped_dataset
from tfgrpo.stores.errors import RunAborted
from tfgrpo.stores.files.layout import TaskPaths

SMALL = {"sample_size": 6, "batch_size": 3, "dry_run": True}


def make_mix(folder: Path, **changes: Any) -> Path:
    """The items of the simulated world as two datasets, numbers in the answer counting more than the format."""
    rows = [json.loads(line) for line in shipped_dataset("arithmetic").read_text("utf-8").splitlines()][:80]
    for name, part in (("easy", rows[:40]), ("hard", rows[40:])):
        records = [{"prompt": row["prompt"], "answer": str(row["answer"])} for row in part]
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records), encoding="utf-8")
    number = {"builtin": "number_match", "init_kwargs": {"require_answer": False}}
    graded = {"graders": ["number"], "grader_weights": [3]}
    content = {
        "seed": 1,
        "paths": {"data_root": "."},
        "python_graders": {"number": number},
        "datasets": {name: {"path": f"{name}.jsonl", **graded} for name in ("easy", "hard")},
        "stages": [
            {"name": "easy", "until_step": 2, "datasets": [{"id": "easy", "weight": 1}]},
            {"name": "hard", "until_step": 4, "datasets": [{"id": "hard", "weight": 1}]},
        ],
        **changes,
    }
    path = folder / "rl_data_config.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished run on a mix; the mix lies beside ``out``."""
    folder = tmp_path_factory.mktemp("mix")
    with pytest.MonkeyPatch.context() as patched:
        one_group_teaches(patched)
        summary = run(folder / "out", run_id=RUN, data_config=str(make_mix(folder)), **SMALL)
        assert summary.exit_code == 0, summary.message
        yield folder


def test_every_epoch_draws_from_its_stage_and_the_manifest_records_it(night: Path) -> None:
    cohorts = manifest(night / "out")["cohorts"]
    for epoch, stage, steps in (("1", "easy", [0, 1]), ("2", "hard", [2, 3])):
        draws = cohorts[epoch]["sampling"]["mix"]["draws"]
        assert draws == [{"step": step, "stage": stage, "datasets": {stage: 3}} for step in steps]
        assert all(name.startswith(f"{stage}:") for name in cohorts[epoch]["items"])
    learned = {*cohorts["1"]["items"], *cohorts["2"]["items"]}
    assert learned.isdisjoint(cohorts["3"]["items"])
    assert {name.partition(":")[0] for name in cohorts["3"]["items"]} == {"easy", "hard"}


def test_attempts_are_graded_by_their_datasets_graders(night: Path) -> None:
    told = manifest(night / "out")
    assert [each["name"] for each in told["settings"]["rewarders"]] == ["dataset_graders", "relative"]
    assert len(told["dataset"]["mix_sha256"]) == 64
    rollouts = lines(paths(night / "out").rollouts)
    scores = {row["scores"][0]["evidence"].split(",")[0]: row["outcome"]["reward"] for row in rollouts}
    assert scores == pytest.approx({"number 1": 0.75, "number 0": 0.0})
    assert lines(paths(night / "out").groups)[0]["item_id"].startswith("easy:")


def test_the_report_shows_what_the_items_asked(night: Path) -> None:
    report = paths(night / "out").report.read_text("utf-8")
    lesson = json.loads((night / "out" / "tfgrpo-learning" / "experiences.jsonl").read_text("utf-8").splitlines()[0])
    item = next(row for row in lines(paths(night / "out").rollouts) if row["rollout_id"] == lesson["evidence"][0])
    dataset, _, number = item["item_id"].partition(":")
    record = json.loads((night / f"{dataset}.jsonl").read_text("utf-8").splitlines()[int(number)])
    assert record["prompt"][:30] in report


def test_a_replay_draws_and_learns_the_same(night: Path) -> None:
    summary = run(night / "out", replay=RUN)
    assert summary.exit_code == 0, summary.message
    replayed = night / "out" / "tfgrpo-learning" / "replays" / f"{RUN}-1"
    told = json.loads((replayed / "runs" / RUN / "manifest.json").read_text("utf-8"))
    assert told["cohorts"] == manifest(night / "out")["cohorts"]
    assert timeless(replayed / "experiences.jsonl") == timeless(night / "out" / "tfgrpo-learning" / "experiences.jsonl")


@pytest.mark.parametrize("changed", ["weights", "records"])
def test_a_mix_that_changed_since_the_run_began_is_refused(night: Path, tmp_path: Path, changed: str) -> None:
    shutil.copytree(night, tmp_path / "copy")
    told = manifest(tmp_path / "copy" / "out")
    path = tmp_path / "copy" / "rl_data_config.yaml"
    told["settings"]["dataset"]["mix"] = str(path)
    (paths(tmp_path / "copy" / "out").manifest).write_text(json.dumps(told), encoding="utf-8")
    if changed == "weights":
        path.write_text(path.read_text("utf-8").replace("- 3", "- 4"), encoding="utf-8")
    else:
        records = (tmp_path / "copy" / "easy.jsonl").read_text("utf-8")
        (tmp_path / "copy" / "easy.jsonl").write_text(records.replace("?", "??"), encoding="utf-8")
    summary = run(tmp_path / "copy" / "out", replay=RUN)
    assert summary.exit_code == 2
    assert "the run's dataset" in summary.message


def curriculum(out: Path, **asked: Any) -> Any:
    return run(out, tfgrpo__curriculum="difficulty", dataset__held_out=0.9, **{**SMALL, "sample_size": 12}, **asked)


def told_of(out: Path, epoch: int, run_id: str = RUN) -> dict[str, Any]:
    found: dict[str, Any] = manifest(out, run_id)["cohorts"][str(epoch)]["sampling"]["curriculum"]
    return found


def counted(out: Path, run_id: str, before: int) -> dict[str, list[int]]:
    """Flat groups and groups of each item in a run's learning epochs before one, out of its files."""
    found: dict[str, list[int]] = {}
    for row in lines(paths(out, run_id).groups):
        if row["phase"] == "train" and row["epoch"] < before and row["signal"] != "lost":
            counts = found.setdefault(row["item_id"], [0, 0])
            counts[0] += row["signal"] != "mixed"
            counts[1] += 1
    return found


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nights of one task with a curriculum."""
    out = tmp_path_factory.mktemp("curriculum")
    for name in (RUN, "next"):
        summary = curriculum(out, run_id=name)
        assert summary.exit_code == 0, summary.message
    return out


def test_an_epoch_knows_the_groups_before_it_of_this_night_and_earlier_ones(nights: Path) -> None:
    assert told_of(nights, 1)["flat_of_groups"] == {}
    assert told_of(nights, 2)["flat_of_groups"] == counted(nights, RUN, before=2)
    assert told_of(nights, 2)["weights"]
    first = counted(nights, RUN, before=9)
    assert told_of(nights, 1, "next")["flat_of_groups"] == first
    second = counted(nights, "next", before=2)
    both = {
        name: [a + b for a, b in zip(first.get(name, [0, 0]), second.get(name, [0, 0]), strict=True)]
        for name in {**first, **second}
    }
    assert told_of(nights, 2, "next")["flat_of_groups"] == both


def test_a_replay_uses_the_curriculum_of_its_night(nights: Path) -> None:
    for name in (RUN, "next"):
        summary = run(nights, replay=name)
        assert summary.exit_code == 0, summary.message
        replayed = nights / "tfgrpo-learning" / "replays" / f"{name}-1" / "runs" / name / "manifest.json"
        assert json.loads(replayed.read_text("utf-8"))["cohorts"] == manifest(nights, name)["cohorts"]


def test_a_resumed_night_draws_what_it_would_have_drawn(
    nights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    shutil.copytree(nights, out)
    shutil.rmtree(paths(out, "next").root)
    decided = TaskPaths.of(out, TASK).promotions
    decided.write_text(decided.read_text().splitlines(keepends=True)[0])
    accounts = TaskPaths.of(out, TASK).accounts
    known = accounts.read_text().splitlines(keepends=True)
    accounts.write_text("".join(line for line in known if f'"run_id":"{RUN}"' in line))
    with monkeypatch.context() as patched:
        patched.setattr("tfgrpo.flows.run.loop.learn.sweep", _fails)
        assert curriculum(out, run_id="next").exit_code == 1
    assert curriculum(out, run_id="meanwhile").exit_code == 0
    summary = run(out, resume="next")
    assert summary.exit_code == 0, summary.message
    assert manifest(out, "next")["cohorts"] == manifest(nights, "next")["cohorts"]


def _fails(*_: Any) -> None:
    raise RunAborted("stopped for the test")


def test_the_example_mix_runs(tmp_path: Path) -> None:
    config = str(ROOT / "examples" / "data_mix.yaml")
    summary = run(tmp_path, run_id=RUN, data_config=config, allow_zero=True, **SMALL)
    assert summary.exit_code == 0, summary.message
    draws = manifest(tmp_path)["cohorts"]["2"]["sampling"]["mix"]["draws"]
    assert [draw["stage"] for draw in draws] == ["both", "both"]
