"""Are lessons about process models learned in some kinds of business worth something in others? A whole run of the pipeline."""

from __future__ import annotations

import pytest

from benchmarks.powl.world import ITEMS
from tests.support.runs.running import RUN, lines, paths, run, store
from tfgrpo.pipelines.datasets.datasets import load_dataset

TASK = "powl"
PIPELINE = "benchmarks/powl/pipeline.yaml"


@pytest.mark.untraced
def test_lessons_on_some_kinds_of_business_help_in_others(tmp_path):
    summary = run(tmp_path, pipeline=PIPELINE, dry_run=True, seed=1, simulated__seed=1, run_id=RUN)
    assert summary.exit_code == 0, summary.message
    decision = summary.details["decision"]
    assert decision["decision"] == "in force", decision["explanation"]
    assert decision["rewards"]["library"]["low"] > decision["rewards"]["none"]["high"]
    assert decision["pairs"] >= 30

    rollouts = lines(paths(tmp_path, task=TASK).rollouts)
    learned_on = {item.id for item in load_dataset(ITEMS[0])}
    assert {row["item_id"] for row in rollouts if row["phase"] == "train"} == learned_on
    assert not {row["item_id"] for row in rollouts if row["phase"] == "eval"} & learned_on

    labels = {label for item in load_dataset(ITEMS[0]) for label in item.metadata["labels"]}
    lessons = [row["summary32"] for row in store(tmp_path, TASK) if row["summary32"]]
    assert lessons
    assert not any(label in lesson for lesson in lessons for label in labels)
