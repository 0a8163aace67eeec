"""What is collected one time after another stays apart, and is named alike when it is collected again."""

from __future__ import annotations

from itertools import count

import pytest

from tfgrpo.stores.batch.lines import ExperienceWindow
from tfgrpo.tasks.collector.collector import CollectorOptions, ExperienceCollector
from tfgrpo.tasks.collector.protocols import Generation, Prompt


def collector(*answers, fuse=False):
    """Of one prompt at a time; every rollout took longer than the one before."""
    coming, clock = iter(answers), count()

    def policy(state):
        return Generation(next(coming), latency_s=float(next(clock)))

    options = CollectorOptions(fuse_rewards=fuse, concurrency=1)
    return ExperienceCollector(policy, lambda state, text: float(len(text)), 2, options)


@pytest.mark.parametrize("fuse", [False, True])
def test_groups_of_successive_collections_have_different_ids(fuse):
    collecting = collector("a", "bb", "a", "ccc", fuse=fuse)
    first, second = (collecting.collect_experiences(["the same prompt"]) for _ in range(2))
    assert len(first.merge(second)) == 2
    window = ExperienceWindow(5)
    window.extend(first)
    window.extend(second)
    assert window.window() == first.merge(second)


def test_the_same_replies_give_the_same_ids_independent_of_latency():
    collecting = collector("a", "bb", "a", "bb")
    first, second = (collecting.collect_experiences(["the same prompt"]) for _ in range(2))
    assert [made.id for made in first.rollouts()] == [made.id for made in second.rollouts()]
    assert first != second
    window = ExperienceWindow(5)
    window.extend(first)
    window.extend(second)
    assert window.window() == first


def test_a_group_with_an_id_keeps_it():
    collected = collector("a", "bb").collect_experiences([Prompt("q", "q-17")])
    assert [made.id for made in collected.rollouts()] == ["q-17/0", "q-17/1"]
