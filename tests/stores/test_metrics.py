"""One line per group, and per epoch figures that were worked out by hand."""

import json
import math
from dataclasses import replace

import pytest

from tfgrpo.stores.errors import CorruptFile, RecordRejected
from tfgrpo.stores.files.lines import read_objects
from tfgrpo.stores.metrics import Column, GroupMetrics, HalfMetrics, MetricsStore, ToolUse, aggregate

GROUP = GroupMetrics(
    run_id="r1",
    tfgrpo_epoch=1,
    group_id="g1",
    group_size=2,
    phase="train",
    arm="group",
    signal="mixed",
    reward_mean=0.5,
    reward_spread=0.5,
    outcomes={"scored": 2},
    rollout_latency_ms=(100.0, 300.0),
    tools=(ToolUse("lookup", 3, 12, 0.25, 30.0, 1), ToolUse("add", 1, 0, 0.5, 2.0, 0)),
)


def test_a_line_carries_the_literal_keys(tmp_path):
    assert MetricsStore(tmp_path).append_groups([GROUP]) == 1
    assert list(read_objects(tmp_path / "metrics.jsonl")) == [
        {
            "schema": 1,
            "run_id": "r1",
            "tfgrpo_epoch": 1,
            "group_id": "g1",
            "group_size": 2,
            "phase": "train",
            "arm": "group",
            "status": "ok",
            "signal": "mixed",
            "reward_mean": 0.5,
            "reward_spread": 0.5,
            "outcomes": {"scored": 2},
            "tool_cost_usd": 0.75,
            "latency_ms": 400.0,
            "rollout_latency_ms": [100.0, 300.0],
            "tools": [
                {"tool": "lookup", "calls": 3, "tokens": 12, "cost_usd": 0.25, "latency_ms": 30.0, "errors": 1},
                {"tool": "add", "calls": 1, "tokens": 0, "cost_usd": 0.5, "latency_ms": 2.0, "errors": 0},
            ],
        }
    ]


def test_a_group_is_written_once_per_run_and_epoch_also_after_reopening(tmp_path):
    groups = [GROUP, replace(GROUP, tfgrpo_epoch=2), replace(GROUP, run_id="r2"), replace(GROUP, group_id="g2")]
    assert [MetricsStore(tmp_path).append_groups(some) for some in (groups[:3], groups, [GROUP, GROUP])] == [3, 1, 0]
    assert len(list(read_objects(tmp_path / "metrics.jsonl"))) == 4


def test_three_epochs_leave_lines_with_one_two_three(tmp_path):
    store = MetricsStore(tmp_path)
    for epoch in (1, 2, 3):
        store.append_groups([replace(GROUP, tfgrpo_epoch=epoch, phase="eval" if epoch == 3 else "train")])
    content = store.write_per_epoch()
    assert list(content["epochs"]) == ["1", "2", "3"]
    assert [epoch["tfgrpo_epoch"] for epoch in content["epochs"].values()] == [1, 2, 3]
    assert json.loads((tmp_path / "per-epoch.json").read_text()) == content


def test_a_failed_epoch_writes_a_failure_line(tmp_path):
    store = MetricsStore(tmp_path)
    store.append_groups([GROUP])
    assert [store.append_failure("r1", 1, "judge ran over 30 s") for _ in range(2)] == [True, False]
    store.append_failure("r1", 2, "gone")
    _, failed, _ = read_objects(tmp_path / "metrics.jsonl")
    assert (failed["status"], failed["tfgrpo_epoch"], failed["reason"]) == ("failed", 1, "judge ran over 30 s")
    epochs = store.write_per_epoch()["epochs"]
    assert (epochs["1"]["status"], epochs["1"]["failures"]) == ("failed", ["judge ran over 30 s"])
    assert epochs["2"]["phase"] is None
    assert epochs["2"]["arms"] == {}


def test_an_unknown_cost_stays_unknown_and_is_counted():
    unknown = replace(GROUP, group_id="g2", tools=(ToolUse("lookup", 1, 0, None, 5.0, 0), GROUP.tools[1]))
    none = replace(GROUP, group_id="g3", tools=())
    assert (unknown.tool_cost_usd, none.tool_cost_usd) == (None, 0)
    epoch = aggregate(group.to_line() for group in (GROUP, unknown, none))["1"]
    cost = epoch["tool_cost_usd"]
    assert (cost["count"], cost["unknown"], cost["sum"], cost["mean"]) == (2, 1, 0.75, 0.375)
    lookup = epoch["tools"]["lookup"]
    assert (lookup["cost_usd"]["sum"], lookup["cost_usd"]["unknown"]) == (0.25, 1)
    only_unknown = aggregate([unknown.to_line()])["1"]["tool_cost_usd"]
    assert (only_unknown["sum"], only_unknown["mean"], only_unknown["p50"]) == (None, None, None)


def test_the_figures_of_an_epoch_by_hand():
    none = {"signal": "lost", "reward_mean": None, "reward_spread": None, "outcomes": {"failed": 1, "refused": 1}}
    groups = [
        GROUP,
        replace(GROUP, group_id="g2", rollout_latency_ms=(50.0, 150.0), **none),
        replace(GROUP, group_id="g3", signal="all_pass", reward_mean=1.0, reward_spread=0.0, rollout_latency_ms=(200.0, 600.0)),
    ]
    epoch = aggregate(group.to_line() for group in groups)["1"]
    assert (epoch["status"], epoch["phase"], epoch["group_size"]) == ("ok", "train", 2)
    arm = epoch["arms"]["group"]
    assert (arm["groups"], arm["rollouts"]) == (3, 6)
    assert arm["outcomes"] == {"failed": 1, "refused": 1, "scored": 4}
    assert arm["signals"] == {"all_pass": 1, "lost": 1, "mixed": 1}
    assert arm["reward_mean"] == {
        "count": 2, "unknown": 1, "sum": 1.5, "mean": 0.75, "p50": 0.75, "p90": 0.95, "p99": 0.995,
    }  # fmt: skip
    # sorted rollout latencies: 50 100 150 200 300 600; p50 at 2.5, p90 at 4.5, p99 at 4.95
    latency = arm["latency_ms"]
    assert (latency["sum"], latency["p50"], latency["p90"]) == (1400.0, 175.0, 450.0)
    assert latency["p99"] == pytest.approx(300 + 0.95 * 300)
    # groups: 400, 200, 800
    assert (epoch["latency_ms"]["mean"], epoch["latency_ms"]["p50"]) == (pytest.approx(1400 / 3), 400.0)
    lookup = epoch["tools"]["lookup"]
    assert (lookup["calls"], lookup["tokens"], lookup["errors"], lookup["latency_ms"]) == (9, 36, 3, 90.0)
    assert lookup["mean_latency_ms"] == 10.0


def test_values_that_are_not_numbers_are_refused_and_a_line_that_is_no_metrics_is_named(tmp_path):
    store = MetricsStore(tmp_path)
    for bad in (math.nan, math.inf):
        with pytest.raises(RecordRejected):
            store.append_groups([replace(GROUP, reward_mean=bad)])
        with pytest.raises(ValueError, match="summed up"):
            Column().add(bad)
    assert not store.path.exists() or store.path.read_bytes() == b""
    for line in ({}, {"tfgrpo_epoch": 1, "status": "ok"}, {**GROUP.to_line(), "tfgrpo_epoch": "one"}):
        with pytest.raises(CorruptFile, match="metrics line 2"):
            aggregate([GROUP.to_line(), line])


def test_the_sides_of_a_comparison_are_arms_and_those_with_random_halves_of_the_lessons_are_not(tmp_path):
    sides = (
        HalfMetrics("library", "mixed", 0.5, 0.5, {"scored": 2}, (100.0, 300.0)),
        HalfMetrics("control", "lost", 1.0, 0.0, {"scored": 1, "failed": 1}, (50.0, 70.0)),
    )
    random = (replace(sides[0], arm="one"), replace(sides[1], arm="other"))
    store = MetricsStore(tmp_path)
    compared, learned = (replace(GROUP, group_id=name, halves=some) for name, some in (("g2", sides), ("g3", random)))
    assert store.append_groups([GROUP, compared, learned]) == 3
    (epoch,) = store.write_per_epoch()["epochs"].values()
    arms = epoch["arms"]
    assert {name: (arm["groups"], arm["rollouts"]) for name, arm in arms.items()} == {
        "control": (1, 2),
        "group": (2, 4),
        "library": (1, 2),
    }
    assert (arms["control"]["outcomes"], arms["control"]["signals"]) == ({"failed": 1, "scored": 1}, {"lost": 1})
    assert (arms["library"]["latency_ms"]["sum"], arms["control"]["reward_mean"]["mean"]) == (400.0, 1.0)
    assert epoch["latency_ms"]["count"] == 3
