"""A frozen JSON value cannot change, and is otherwise what it was."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.stores.frozen_json import FrozenDict, frozen, thawed

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_freezing_and_thawing_gives_the_value_back(value):
    held = frozen(value)
    assert thawed(held) == value
    assert json.dumps(held, sort_keys=True) == json.dumps(value, sort_keys=True)
    assert pickle.loads(pickle.dumps(held)) == held == frozen(held)
    hash(held)


def test_what_was_given_may_change_afterwards():
    given_value = {"a": [1, {"b": 2}]}
    held = frozen(given_value)
    given_value["a"][1]["b"] = 3
    assert held == {"a": (1, {"b": 2})}
    assert copy.deepcopy(held) is held is copy.copy(held)


@pytest.mark.parametrize(
    "change",
    [
        lambda held: held.update(a=1),
        lambda held: held.__setitem__("a", 1),
        lambda held: held.__delitem__("a"),
        lambda held: held.pop("a"),
        lambda held: held.popitem(),
        lambda held: held.clear(),
        lambda held: held.setdefault("b", 1),
        lambda held: held.__ior__({"b": 1}),
    ],
)
def test_a_frozen_object_refuses_every_change(change):
    held = FrozenDict({"a": 0})
    with pytest.raises(TypeError, match="frozen record"):
        change(held)
    assert held == {"a": 0}


def test_nothing_in_a_frozen_object_can_be_changed_however_it_was_made():
    inner = [1, {"b": [2]}]
    for held in (FrozenDict({"a": inner}), FrozenDict([("a", inner)]), FrozenDict(a=inner), FrozenDict(a=tuple(inner))):
        assert held == frozen(held) == {"a": (1, {"b": (2,)})}
        assert pickle.loads(pickle.dumps(held)) == held
        hash(held)
    inner.append(3)
    assert frozen(FrozenDict({"a": inner}))["a"] == (1, {"b": (2,)}, 3)
    with pytest.raises(TypeError, match="no text"):
        FrozenDict({1: 2})


@pytest.mark.parametrize("value", [object(), {1: 2}, {"a": {1, 2}}, [b"bytes"]])
def test_what_is_no_json_value_is_refused(value):
    with pytest.raises(TypeError, match="JSON"):
        frozen(value)


def test_a_value_that_holds_itself_is_refused():
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="200 deep"):
        frozen(endless)
