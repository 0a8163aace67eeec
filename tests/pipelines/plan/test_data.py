"""Held-out items are chosen by their ids alone; cohorts are seeded, and cover the data before repeating it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.pipelines.cohorts import draw_cohort
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.data import Cohort, draw_cohorts, draw_evaluation, pair_datasets, split_items
from tfgrpo.pipelines.settings.tree import LearningSettings
from tfgrpo.stores.errors import DatasetError


def test_the_split_of_known_ids_never_changes(make_items: Callable[..., tuple[Item, ...]]) -> None:
    held_out = [item.id for item in split_items(make_items(20), 0.3).held_out]
    assert held_out == ["q-15", "q-17", "q-19"]


@given(ids=st.lists(st.text(min_size=1), min_size=30, max_size=60, unique=True), seed=st.integers())
def test_order_plays_no_part_and_the_sides_never_overlap(ids: list[str], seed: int) -> None:
    items = [Item(id=name, prompt=f"prompt {name!r}", answer="") for name in ids]
    split = split_items(items, 0.5)
    shuffled = list(items)
    random.Random(seed).shuffle(shuffled)
    again = split_items(shuffled, 0.5)
    assert {item.id for item in split.held_out} == {item.id for item in again.held_out}
    assert not {item.id for item in split.learn} & {item.id for item in split.held_out}
    assert len(split.learn) + len(split.held_out) == len(items)


def test_adding_items_moves_none_of_the_others(make_items: Callable[..., tuple[Item, ...]]) -> None:
    before = {item.id for item in split_items(make_items(100), 0.3).held_out}
    after = {item.id for item in split_items(make_items(200), 0.3).held_out}
    assert before == {name for name in after if int(name.split("-")[1]) < 100}


def test_items_with_the_same_text_go_to_the_same_side() -> None:
    items = [Item(id=f"{n}-{copy}", prompt=f"Q {n} \n?", answer="") for n in range(50) for copy in range(3)]
    split = split_items(items, 0.4)
    assert not {item.prompt for item in split.learn} & {item.prompt for item in split.held_out}


def test_too_few_items_are_refused_with_the_numbers(make_items: Callable[..., tuple[Item, ...]]) -> None:
    with pytest.raises(DatasetError, match=r"dataset: got 1 item, \d of them held out; accepted: at least 1 to learn on"):
        split_items(make_items(1), 0.3)
    with pytest.raises(DatasetError, match="got 3 items to learn on and 1 held out"):
        pair_datasets(make_items(3), make_items(1, "e"))


def test_held_out_items_that_are_learned_on_are_refused_by_id_and_by_text(make_items: Callable[..., tuple[Item, ...]]) -> None:
    learn = make_items(5)
    held_out = [
        Item(id="q-1", prompt="Something else", answer="", source="e.jsonl:1"),
        Item(id="new", prompt=" Question  q 2?", answer="", source="e.jsonl:2"),
        Item(id="fine", prompt="Unheard of", answer="", source="e.jsonl:3"),
    ]
    with pytest.raises(DatasetError) as caught:
        pair_datasets(learn, held_out)
    assert [str(problem) for problem in caught.value.problems] == [
        "e.jsonl:1: got the id 'q-1', also at q.jsonl:2; accepted: held-out items that are not learned on",
        "e.jsonl:2: got the text of item 'q-2' at q.jsonl:3; accepted: held-out items that are not learned on",
    ]


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
