"""Items whose groups were flat are drawn less often, never not at all, and the same way whenever it is asked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.pipelines.cohorts import draw_cohort
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.data import RunData, Split
from tfgrpo.pipelines.plan.sampling import FLOOR, RUNS, Difficulty, difficulty_so_far, weighted_draw
from tfgrpo.pipelines.settings.learning import LearningSettings
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.stores.canonical import stream
from tfgrpo.stores.files.layout import TaskPaths

MakeItems = Callable[..., tuple[Item, ...]]


def record(task: TaskPaths, run_id: str, groups: list[tuple[int, str, str]], **manifest: Any) -> None:
    """A run on disk: its groups as (epoch, item, signal)."""
    run = task.run(run_id)
    run.root.mkdir(parents=True, exist_ok=True)
    said = {
        "schema_version": 1,
        "model": "m",
        "simulated": False,
        "started_at": f"2026-01-01T00:00:00+{run_id}",
        **manifest,
    }
    run.manifest.write_text(json.dumps(said), encoding="utf-8")
    lines = [
        json.dumps({"epoch": epoch, "item_id": item, "signal": signal, "phase": "eval" if epoch == 9 else "train"})
        for epoch, item, signal in groups
    ]
    run.groups.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture
def task(tmp_path: Path) -> TaskPaths:
    return TaskPaths.of(tmp_path, "t")


def test_the_share_of_flat_groups_lowers_the_weight_to_a_floor_above_zero() -> None:
    known = Difficulty({"half": (1, 2), "always": (4, 4), "never": (0, 3)})
    weights = [known.weight(name) for name in ("never", "half", "always", "unseen")]
    assert weights == pytest.approx([1.0, 1.0 - 0.9 / 2, FLOOR, 1.0])
    assert FLOOR > 0


@given(flat=st.integers(0, 50), more=st.integers(1, 50))
def test_weights_lie_between_floor_and_one_and_fall_with_every_flat_group(flat: int, more: int) -> None:
    weight = Difficulty({"x": (flat, flat + more)}).weight("x")
    assert FLOOR - 1e-12 <= weight <= 1.0
    assert Difficulty({"x": (flat + 1, flat + more + 1)}).weight("x") <= weight + 1e-12


def test_only_learning_groups_with_two_rewards_count_and_only_those_before(task: TaskPaths) -> None:
    groups = [
        (1, "a", "all_pass"),
        (1, "b", "mixed"),
        (1, "c", "lost"),
        (2, "a", "all_fail"),
        (2, "b", "flat"),
        (3, "a", "mixed"),
        (9, "b", "flat"),
    ]
    record(task, "1", groups)
    found = Difficulty().with_run(task.run("1"), before_epoch=3)
    assert found == Difficulty({"a": (2, 2), "b": (1, 2)})
    assert found.with_run(task.run("1")).groups["a"] == (4, 5)
    assert Difficulty().with_run(task.run("none")) == Difficulty()


def test_the_manifest_has_counts_and_weights_and_reads_back() -> None:
    known = Difficulty({"a": (1, 3), "b": (0, 2), "x": (5, 5)}).of(["b", "a", "z"])
    written = json.loads(json.dumps(known.as_json()))
    assert written == {
        "kind": "difficulty",
        "floor": FLOOR,
        "flat_of_groups": {"a": [1, 3], "b": [0, 2]},
        "weights": {"a": 0.7},
    }
    assert Difficulty.from_json(written) == known


def test_earlier_runs_of_the_same_model_are_remembered_the_newest_ones(task: TaskPaths) -> None:
    for number in range(RUNS + 3):
        record(task, f"{number:02}", [(1, "a", "flat"), (1, f"only-{number}", "mixed")])
    record(task, "50", [(1, "a", "mixed")], model="another")
    record(task, "51", [(1, "a", "mixed")], simulated=True)
    (task.run("52").root).mkdir()
    task.run("52").manifest.write_text("{", encoding="utf-8")
    record(task, "53", [])
    task.run("53").groups.write_text("no json\n", encoding="utf-8")
    found = difficulty_so_far(task, model="m", simulated=False)
    assert found.groups["a"] == (RUNS - 1, RUNS - 1)
    assert "only-3" not in found.groups
    assert f"only-{RUNS + 2}" in found.groups
    assert difficulty_so_far(TaskPaths(task.root / "none"), model="m", simulated=False) == Difficulty()


@given(weights=st.lists(st.floats(FLOOR, 1.0), max_size=30), size=st.integers(0, 40), seed=st.integers(0, 99))
def test_a_weighted_draw_is_without_replacement_and_repeatable(weights: list[float], size: int, seed: int) -> None:
    drawn = weighted_draw(weights, size, stream(seed, "x"))
    assert len(set(drawn)) == len(drawn) == min(size, len(weights))
    assert drawn == weighted_draw(weights, size, stream(seed, "x"))


def test_the_first_of_a_weighted_draw_follows_the_weights() -> None:
    weights = [1.0, 0.5, FLOOR]
    counts = Counter(weighted_draw(weights, 1, stream(seed, "first"))[0] for seed in range(6000))
    for place, weight in enumerate(weights):
        assert counts[place] / 6000 == pytest.approx(weight / sum(weights), abs=0.02)


@pytest.mark.parametrize("with_replacement", [True, False])
def test_flat_items_are_drawn_less_often_and_never_excluded(make_items: MakeItems, with_replacement: bool) -> None:
    items = make_items(40)
    known = Difficulty({item.id: (2 if place < 20 else 0, 2) for place, item in enumerate(items)})
    weights = [known.weight(item.id) for item in items]
    flat = {item.id for item in items[:20]}
    counts: Counter[bool] = Counter()
    for epoch in range(1, 200):
        settings = LearningSettings(sample_size=5, with_replacement=with_replacement)
        cohort = draw_cohort(items, epoch=epoch, settings=settings, weights=weights)
        assert cohort == draw_cohort(items, epoch=epoch, settings=settings, weights=weights)
        counts.update(item.id in flat for item in cohort.items)
    assert 0.05 < counts[True] / counts.total() < 0.2


def test_the_order_of_the_file_plays_no_part(make_items: MakeItems) -> None:
    items = make_items(30)
    weights = [FLOOR if place % 3 else 1.0 for place in range(30)]
    settings = LearningSettings(sample_size=6)
    one = draw_cohort(items, epoch=2, settings=settings, weights=weights)
    two = draw_cohort(items[::-1], epoch=2, settings=settings, weights=weights[::-1])
    assert [item.id for item in one.items] == [item.id for item in two.items]


def test_only_the_setting_switches_it_on_and_the_draw_records_it(make_items: MakeItems) -> None:
    items = make_items(30)
    data = RunData(Split(items, ()), (), frozenset(), None)
    known = Difficulty({**{item.id: (place < 15, 1) for place, item in enumerate(items)}, "elsewhere": (0, 4)})
    off = Settings.model_validate({"tfgrpo": {"sample_size": 8}})
    on = Settings.model_validate({"tfgrpo": {"sample_size": 8, "curriculum": "difficulty"}})
    assert data.cohort(2, off, known) == data.cohort(2, off)
    drawn = data.cohort(2, on, known)
    assert "curriculum" not in data.cohort(2, off, known).metadata
    assert drawn.items != data.cohort(2, off).items
    told = drawn.metadata["curriculum"]
    assert set(told["weights"]) == {item.id for item in items[:15]}
    assert set(told["flat_of_groups"]) == {item.id for item in items}
    assert data.cohort(1, on).metadata["curriculum"]["flat_of_groups"] == {}
