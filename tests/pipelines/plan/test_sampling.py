"""Cohorts are seeded, cover the data before repeating it, and every knob changes them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.pipelines.cohorts import draw_cohort
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.data import Cohort, draw_cohorts, draw_evaluation
from tfgrpo.pipelines.settings.learning import LearningSettings

MakeItems = Callable[..., tuple[Item, ...]]


def learning(**knobs: Any) -> LearningSettings:
    return LearningSettings(**{"sample_size": 10, "batch_size": 4, **knobs})


def ids(cohort: Cohort) -> list[str]:
    return [item.id for item in cohort.items]


def test_the_same_seed_draws_the_same_in_any_order_of_the_file(make_items: MakeItems) -> None:
    items = list(make_items(40))
    first = draw_cohort(items, epoch=2, settings=learning())
    random.Random(5).shuffle(items)
    assert draw_cohort(items, epoch=2, settings=learning()) == first


def test_epochs_differ_and_cover_the_data_before_any_item_repeats(make_items: MakeItems) -> None:
    items = make_items(40)
    epochs = [ids(draw_cohort(items, epoch=epoch, settings=learning())) for epoch in range(1, 6)]
    assert {name for epoch in epochs[:4] for name in epoch} == {item.id for item in items}
    assert [ids(each) for each in draw_cohorts(items, epochs=range(1, 6), settings=learning())] == epochs
    assert len({tuple(epoch) for epoch in epochs}) == 5


@given(count=st.integers(1, 30), size=st.integers(1, 30), seed=st.integers(0, 99), epochs=st.integers(1, 6))
def test_no_item_repeats_in_an_epoch_and_counts_stay_level(count: int, size: int, seed: int, epochs: int) -> None:
    items = [Item(id=f"{n:02}", prompt=str(n), answer="") for n in range(count)]
    seen = dict.fromkeys((item.id for item in items), 0)
    for epoch in range(1, epochs + 1):
        cohort = draw_cohort(items, epoch=epoch, settings=learning(sample_size=size, seed=seed))
        assert len(set(ids(cohort))) == len(cohort.items) == min(size, count)
        assert set(cohort.draws) == {0}
        for name in ids(cohort):
            seen[name] += 1
    assert max(seen.values()) - min(seen.values()) <= 2


def test_the_metadata_records_the_draw(make_items: MakeItems) -> None:
    cohort = draw_cohort(make_items(7), epoch=2, settings=learning(seed=3))
    assert json.loads(json.dumps(cohort.metadata)) == {
        "purpose": "learn",
        "epoch": 2,
        "seed": 3,
        "night": 0,
        "with_replacement": False,
        "population": 7,
        "requested": 10,
        "drawn": 7,
        "distinct": 7,
        "batch_sizes": [4, 3],
        "item_ids": [item.id for batch in cohort.batches for item in batch],
        "assignments": {"min_instances": 1, "max_instances": 1, "target": 1, "group_index": [0]},
    }


def test_the_sweep_takes_every_held_out_item_or_a_seeded_sample(make_items: MakeItems) -> None:
    few = draw_evaluation(make_items(6), settings=learning())
    assert sorted(ids(few)) == [f"q-{n}" for n in range(6)]
    many = draw_evaluation(make_items(60), settings=learning())
    assert len(set(ids(many))) == 10
    assert ids(many) != ids(draw_evaluation(make_items(60), settings=learning(seed=1)))
    later = draw_evaluation(make_items(60), settings=learning(night=1))
    assert ids(many) != ids(later)
    assert (many.metadata["purpose"], many.metadata["epoch"]) == ("evaluation", 3)
