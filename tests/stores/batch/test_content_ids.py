"""Groups that nobody named have names of their own, in every collection, and the same ones for the same content."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from types import MappingProxyType

from tests.support.records.rollout_groups import group, rollout
from tfgrpo.stores.batch.batch import ExperienceBatch
from tfgrpo.stores.batch.shapes import Sampling, default_id, same_content, with_content_id


def test_buffers_without_ids_can_be_merged_and_the_same_buffer_has_the_same_ids():
    def taken_over(rewards=((1.0, 0.0), (0.5, 0.5)), logps=None):
        return ExperienceBatch.from_lists(["a", "b"], [["x", "y"], ["z", "w"]], [list(row) for row in rewards], logps)

    one, other = taken_over(), taken_over(((1.0, 0.0), (0.5, 0.25)))
    assert all(re.fullmatch("g[01]-[0-9a-f]{12}", made.id) for made in one)
    assert [made.id for made in one] == [made.id for made in taken_over()]
    assert one.groups[0] == other.groups[0]
    assert len(ExperienceBatch(one.groups[1:]).merge(ExperienceBatch(other.groups[1:]))) == 2
    assert one.groups[0].id != taken_over(logps=[[-1.0, -2.0], [-3.0, -4.0]]).groups[0].id


def test_equal_states_of_one_buffer_are_two_groups():
    made = ExperienceBatch.from_lists(["a", "a"], [["x"], ["x"]], [[1.0], [1.0]])
    assert len({each.id for each in made}) == 2


def test_any_content_of_a_group_gives_an_id():
    made = ExperienceBatch.from_lists(
        [MappingProxyType({"q": "\ud83d"})], [[("x", None)]], [[math.nan]], allow_nan=True
    )
    assert made.groups[0].id.startswith("g0-")
    assert default_id(0, {1: 2}) == default_id(0, {1: 2}) != default_id(0, {1: 3})


def test_an_id_depends_on_prompt_replies_and_rewards_not_on_latency():
    def named(**changes):
        return with_content_id(group(rollouts=(rollout(**changes),)), 3)

    name = named().id
    assert re.fullmatch("g3-[0-9a-f]{12}", name)
    assert [each.id for each in named().rollouts] == [f"{name}/{each.index}" for each in named().rollouts]
    assert named(latency_s=3.5).id == name
    others = [{"completion": "x"}, {"reward": 0.25}, {"sampling": Sampling("m", seed=7)}, {"metadata": {"a": 1}}]
    assert len({name, *(named(**changes).id for changes in others)}) == 5


def test_groups_that_differ_in_time_alone_are_the_same():
    one = group(rollouts=(rollout(latency_s=1.0),))
    assert same_content(one, replace(one, rollouts=(replace(one.rollouts[0], latency_s=2.0),)))
    assert not same_content(one, replace(one, rollouts=(replace(one.rollouts[0], completion="other"),)))
