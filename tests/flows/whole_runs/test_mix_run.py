"""Whole runs on a staged mix: what is drawn, what grades, the same again on replay."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runs.pages import ROOT
from tests.support.runs.running import RUN, lines, manifest, paths, run
from tfgrpo.pipelines.datasets.datasets import shipped_dataset

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
def night(tmp_path_factory):
    """A finished run on a mix; the mix lies beside ``out``."""
    folder = tmp_path_factory.mktemp("mix")
    summary = run(folder / "out", run_id=RUN, data_config=str(make_mix(folder)), **SMALL)
    assert summary.exit_code == 0, summary.message
    return folder


def test_every_epoch_draws_from_its_stage_and_the_manifest_records_it(night):
    cohorts = manifest(night / "out")["cohorts"]
    for epoch, stage, steps in (("1", "easy", [0, 1]), ("2", "hard", [2, 3])):
        draws = cohorts[epoch]["sampling"]["mix"]["draws"]
        assert draws == [{"step": step, "stage": stage, "datasets": {stage: 3}} for step in steps]
        assert all(name.startswith(f"{stage}:") for name in cohorts[epoch]["items"])
    learned = {*cohorts["1"]["items"], *cohorts["2"]["items"]}
    assert learned.isdisjoint(cohorts["3"]["items"])
    assert {name.partition(":")[0] for name in cohorts["3"]["items"]} == {"easy", "hard"}


def test_attempts_are_graded_by_their_datasets_graders(night):
    told = manifest(night / "out")
    assert [each["name"] for each in told["settings"]["rewarders"]] == ["dataset_graders", "relative"]
    assert len(told["dataset"]["mix_sha256"]) == 64
    rollouts = lines(paths(night / "out").rollouts)
    scores = {row["scores"][0]["evidence"].split(",")[0]: row["outcome"]["reward"] for row in rollouts}
    assert scores == pytest.approx({"number 1": 0.75, "number 0": 0.0})
    assert lines(paths(night / "out").groups)[0]["item_id"].startswith("easy:")


@pytest.mark.parametrize("changed", ["weights", "records"])
def test_a_mix_that_changed_since_the_run_began_is_refused(night, tmp_path, changed):
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


def test_an_item_that_a_mix_draws_twice_is_two_groups_with_replies_of_their_own(tmp_path):
    path = make_mix(tmp_path)
    for name in ("easy", "hard"):
        records = (tmp_path / f"{name}.jsonl").read_text("utf-8").splitlines(keepends=True)
        (tmp_path / f"{name}.jsonl").write_text("".join(records[:6]), encoding="utf-8")
    asked = {**SMALL, "sample_size": 18, "batch_size": 9}
    assert run(tmp_path / "out", run_id=RUN, data_config=str(path), **asked).exit_code == 0
    rows = [row for row in lines(paths(tmp_path / "out").rollouts) if row["epoch"] == 1]
    (item, count), *_ = Counter(row["item_id"] for row in rows).most_common(1)
    groups = {row["group_id"] for row in rows if row["item_id"] == item}
    assert len(groups) > 1
    assert len({row["seed"] for row in rows if row["item_id"] == item}) == count


def test_the_example_mix_runs(tmp_path):
    config = str(ROOT / "examples" / "data_mix.yaml")
    summary = run(tmp_path, run_id=RUN, data_config=config, allow_zero=True, **SMALL)
    assert summary.exit_code == 0, summary.message
    draws = manifest(tmp_path)["cohorts"]["2"]["sampling"]["mix"]["draws"]
    assert [draw["stage"] for draw in draws] == ["both", "both"]
