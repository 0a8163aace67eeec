"""Held-out items are chosen by their ids alone and never meet the learning items."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.data import pair_datasets, split_items
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
    with pytest.raises(
        DatasetError, match=r"dataset: got 1 item, \d of them held out; accepted: at least 1 to learn on"
    ):
        split_items(make_items(1), 0.3)
    with pytest.raises(DatasetError, match="got 3 items to learn on and 1 held out"):
        pair_datasets(make_items(3), make_items(1, "e"))


def test_held_out_items_that_are_learned_on_are_refused_by_id_and_by_text(
    make_items: Callable[..., tuple[Item, ...]],
) -> None:
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
