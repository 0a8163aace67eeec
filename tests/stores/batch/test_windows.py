"""A window holds the latest groups, whatever else comes; the file holds them all."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from tests.support.records.rollout_groups import group, rollout
from tfgrpo.stores.batch.batch import ExperienceBatch
from tfgrpo.stores.batch.lines import ExperienceWindow, append_groups, latest_groups, read_groups
from tfgrpo.stores.errors import RecordRejected, ShapeError


def names(groups):
    return [made.id for made in groups]


def test_a_window_drops_the_oldest_groups():
    window = ExperienceWindow(3)
    for index in range(5):
        window.append(group(f"q{index}"))
    assert names(window) == ["q2", "q3", "q4"]
    assert names(window.window(2)) == ["q3", "q4"]
    assert names(window.window()) == names(window.window(9)) == ["q2", "q3", "q4"]
    window.clear()
    assert len(window) == 0
    assert len(window.window()) == 0


def test_a_repeated_group_is_skipped(tmp_path):
    path = tmp_path / "groups.jsonl"
    window = ExperienceWindow(3, path=path)
    window.extend([group("a", (1.0, 0.0)), group("b")])
    slower = group("a", (1.0, 0.0))
    slower = replace(slower, rollouts=tuple(replace(each, latency_s=9.0) for each in slower.rollouts))
    window.extend([group("c"), group("a", (1.0, 0.0)), group("b")])
    window.append(slower)
    assert names(window) == names(read_groups(path)) == ["a", "b", "c"]


def test_a_different_group_with_a_known_id_is_refused(tmp_path):
    path = tmp_path / "groups.jsonl"
    window = ExperienceWindow(3, path=path)
    window.extend([group("a", (1.0, 0.0)), group("b")])
    for more in ([group("c"), group("a", (0.5, 0.5))], [group("b", state="another")]):
        with pytest.raises(ShapeError, match=r"one that no other group of the window has, received '[ab]'; index"):
            window.extend(more)
    assert names(window) == names(read_groups(path)) == ["a", "b"]
    assert window.window(2).groups[0].rewards == (1.0, 0.0)


def test_groups_are_added_all_or_none():
    window = ExperienceWindow(3)
    with pytest.raises(ShapeError):
        window.extend([group("a"), group("b", rollouts=(rollout("other"),))])
    assert len(window) == 0


@pytest.mark.parametrize("odd", [float("nan"), "\ud83d"])
def test_one_unserialisable_group_keeps_the_whole_batch_out(tmp_path, odd):
    window = ExperienceWindow(3, path=tmp_path / "groups.jsonl")
    many = [group(f"q{index}") for index in range(500)]
    with pytest.raises(RecordRejected, match="group 'late'"):
        window.extend([*many, group("late", metadata={"odd": odd})])
    assert (len(window), list(tmp_path.iterdir())) == (0, [])
    window.extend([*many, group("late")])
    assert len(list(read_groups(tmp_path / "groups.jsonl"))) == 501


@pytest.mark.parametrize("size", [0, -1, True, 1.5, None])
def test_an_invalid_size_is_refused(tmp_path, size):
    asks = [
        lambda: ExperienceWindow(size),
        lambda: ExperienceBatch((group(),)).split(size),
        lambda: ExperienceBatch((group(),)).shaped("drop_group", min_group_size=size),
        lambda: latest_groups(tmp_path / "groups.jsonl", size),
    ]
    if size is not None:  # all groups
        asks.append(lambda: ExperienceWindow(3).window(size))
    for ask in asks:
        with pytest.raises(ShapeError, match="a whole number of at least 1"):
            ask()


def test_an_invalid_count_is_named_in_the_error(tmp_path):
    with pytest.raises(ShapeError, match="count: expected a whole number of at least 1, received 0"):
        latest_groups(tmp_path / "groups.jsonl", 0)


def test_dropped_groups_are_still_in_the_file(tmp_path):
    path = tmp_path / "groups.jsonl"
    window = ExperienceWindow(2, path=path)
    for index in range(4):
        window.append(group(f"q{index}"))
    assert names(read_groups(path)) == ["q0", "q1", "q2", "q3"]
    assert names(latest_groups(path, 2)) == names(window)
    append_groups(path, [group("q2", (0.5, 0.25))])
    assert latest_groups(path, 2).groups[1].rewards == (0.5, 0.25)


def test_threads_may_add_while_others_look():
    window = ExperienceWindow(50)

    def add(name):
        for index in range(40):
            window.append(group(f"{name}{index}"))
            window.window(5)

    threads = [threading.Thread(target=add, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(window) == 50


def test_a_single_group_is_unchecked_and_nan_is_refused_on_use(tmp_path):
    unchecked = group("a", (float("nan"), 1.0))
    uses = (
        lambda: ExperienceBatch((unchecked,)),
        lambda: ExperienceWindow(3).append(unchecked),
        lambda: append_groups(tmp_path / "groups.jsonl", [unchecked]),
    )
    for use in uses:
        with pytest.raises(ShapeError, match="a finite number, or None, received nan"):
            use()
    assert len(ExperienceBatch((unchecked,), allow_nan=True)) == 1
