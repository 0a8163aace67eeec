"""Items that are not held give the same answers as items that are, and take memory by the index alone."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.pipelines.cohorts import draw_cohort
from tfgrpo.pipelines.datasets.datasets import read_dataset
from tfgrpo.pipelines.datasets.items import StoredItems, equals, ids_of, pick, take, texts_of
from tfgrpo.pipelines.plan.data import pair_datasets, split_items
from tfgrpo.pipelines.plan.sampling import draw_evaluation
from tfgrpo.pipelines.settings.learning import LearningSettings
from tfgrpo.stores.errors import DatasetError

LARGE = 200_000


@pytest.fixture
def path(write_jsonl: Callable[..., Path]) -> Path:
    return write_jsonl([{"id": f"q-{n}", "prompt": f"Question {n // 2}?", "answer": n} for n in range(60)])


def test_split_cohorts_and_twins_are_the_same_for_stored_items(path: Path) -> None:
    held, stored = read_dataset(path).items, read_dataset(path, held_chars=0).items
    assert isinstance(stored, StoredItems)
    assert equals(texts_of(stored)) == equals(texts_of(held))
    one, two = split_items(held, 0.3), split_items(stored, 0.3)
    assert (list(one.learn), list(one.held_out)) == (list(two.learn), list(two.held_out))
    settings = LearningSettings(sample_size=9)
    for epoch in (1, 2, 5):
        drawn, again = (draw_cohort(each.learn, epoch=epoch, settings=settings) for each in (one, two))
        assert drawn == again
    assert draw_evaluation(one.held_out, settings=settings) == draw_evaluation(two.held_out, settings=settings)


def test_overlaps_are_found_without_reading_what_does_not_overlap(path: Path, write_jsonl: Callable[..., Path]) -> None:
    other = write_jsonl(
        [{"id": "q-3", "prompt": "x"}, {"id": "new", "prompt": " Question  7?"}, {"id": "fine", "prompt": "y"}],
        "o.jsonl",
    )
    told = []
    for chars in (10**6, 0):
        with pytest.raises(DatasetError) as caught:
            pair_datasets(read_dataset(path, held_chars=chars).items, read_dataset(other, held_chars=chars).items)
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert told[0].count("\n") == 1


def test_views_of_views_read_what_they_name(path: Path) -> None:
    held, stored = read_dataset(path).items, read_dataset(path, held_chars=0).items
    places = [5, 3, 3, 40]
    for items in (held, stored):
        assert [item.id for item in take(items, places)] == ["q-5", "q-3", "q-3", "q-40"]
        assert list(ids_of(pick(pick(items, range(10, 20)), [9, 0]))) == ["q-19", "q-10"]
        assert list(texts_of(pick(items, places))) == [texts_of(items)[place] for place in places]
    assert stored[-1] == held[-1]
    assert (len(stored[5:1]), list(take(stored, []))) == (0, [])
    with pytest.raises(IndexError):
        stored[60]


@given(st.lists(st.integers(0, 6), max_size=30))
def test_equal_keys_are_grouped_in_the_order_they_come(keys: list[int]) -> None:
    expected: dict[int, list[int]] = {}
    for place, key in enumerate(keys):
        expected.setdefault(key, []).append(place)
    assert equals(keys) == [group for group in expected.values() if len(group) > 1]


@pytest.mark.parametrize("change", [{"answer": ["1", "one"]}, {"hint": "another"}, {"hint": None}, {"more": 1}])
def test_a_change_of_an_accepted_answer_or_of_metadata_is_a_changed_item(
    write_jsonl: Callable[..., Path], change: dict[str, object]
) -> None:
    row = {"id": "a", "prompt": "x", "answer": ["1", "uno"], "hint": "h"}
    stored = read_dataset(write_jsonl([row]), held_chars=0).items
    assert (stored[0].accepted, stored[0].metadata) == (("1", "uno"), {"hint": "h"})
    write_jsonl([{**row, **change}])
    with pytest.raises(DatasetError, match="accepted: a dataset that stays unchanged"):
        assert stored[0]


def test_metadata_and_further_answers_count_for_what_is_kept_in_memory(write_jsonl: Callable[..., Path]) -> None:
    rows = [{"id": str(number), "prompt": "x", "answer": ["1", "2"], "context": "c" * 1_000} for number in range(50)]
    path = write_jsonl(rows)
    assert isinstance(read_dataset(path, held_chars=60_000).items, tuple)
    stored = read_dataset(path, held_chars=40_000).items
    assert isinstance(stored, StoredItems)
    assert stored[7].metadata == {"context": "c" * 1_000}


def write_large(path: Path, count: int, chars: int) -> int:
    filler = "lorem ipsum " * (chars // 12)
    with path.open("w", encoding="utf-8") as stream:
        for number in range(count):
            stream.write(f'{{"id": "q-{number}", "prompt": "{number} {filler}", "answer": "{number}"}}\n')
    return path.stat().st_size


@pytest.mark.untraced
def test_reading_splitting_and_drawing_take_a_few_hundred_bytes_an_item_however_long_it_is(tmp_path: Path) -> None:
    count = 3_000
    size = write_large(tmp_path / "large.jsonl", count, 6_000)
    tracemalloc.start()
    try:
        items = read_dataset(tmp_path / "large.jsonl", held_chars=100_000).items
        split = split_items(items, 0.3)
        cohort = draw_cohort(split.learn, epoch=1, settings=LearningSettings(sample_size=100))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(cohort.items) == 100
    assert peak < 400 * count + 2_000_000 < size / 5, f"{peak:,} of {size:,} bytes"


@pytest.mark.untraced
def test_a_dataset_beyond_memory_is_sampled_out_of_its_index(tmp_path: Path) -> None:
    """200,000 lines in a process of its own, whose memory grows by a good part less than the file is long."""
    size = write_large(tmp_path / "large.jsonl", LARGE, 600)
    code = """
import resource, sys
from tfgrpo.pipelines.datasets.datasets import read_dataset
from tfgrpo.pipelines.plan.sampling import draw_cohorts
from tfgrpo.pipelines.settings.learning import LearningSettings
from tfgrpo.pipelines.plan.data import split_items
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
before = peak()
split = split_items(read_dataset(sys.argv[1], held_chars=1_000_000).items, 0.3)
cohort = next(draw_cohorts(split.learn, epochs=range(1, 2), settings=LearningSettings(sample_size=100)))
print(len(split.learn) + len(split.held_out), len(cohort.items), peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "large.jsonl")], capture_output=True, text=True, check=True
    )
    items, drawn, grown = map(int, done.stdout.split())
    assert (items, drawn) == (LARGE, 100)
    assert grown < 80_000_000 < size * 0.7, f"{grown:,} of {size:,} bytes"
