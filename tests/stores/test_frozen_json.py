"""Promises of ``tfgrpo.stores.json_values``."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.stores.json_values import FrozenDict, frozen, to_builtins

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_freezing_and_converting_back_gives_an_equal_value(value):
    held = frozen(value)
    assert to_builtins(held) == value
    assert json.dumps(held, sort_keys=True) == json.dumps(value, sort_keys=True)
    assert pickle.loads(pickle.dumps(held)) == held == frozen(held)
    hash(held)


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


def test_a_frozen_object_is_frozen_at_every_depth_however_it_is_made():
    inner = [1, {"b": [2]}]
    for held in (FrozenDict({"a": inner}), FrozenDict([("a", inner)]), FrozenDict(a=inner), FrozenDict(a=tuple(inner))):
        assert held == frozen(held) == {"a": (1, {"b": (2,)})}
        assert pickle.loads(pickle.dumps(held)) == held
        hash(held)
    inner.append(3)
    assert frozen(FrozenDict({"a": inner}))["a"] == (1, {"b": (2,)}, 3)
    with pytest.raises(TypeError, match="not a string"):
        FrozenDict({1: 2})


@pytest.mark.parametrize("value", [object(), {1: 2}, {"a": {1, 2}}, [b"bytes"]])
def test_values_outside_json_are_refused(value):
    with pytest.raises(TypeError, match="JSON"):
        frozen(value)


def test_a_value_nested_in_itself_is_refused():
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="200 deep"):
        frozen(endless)


@dataclass(frozen=True, slots=True)
class _Leaf:
    name: str
    value: float | None


LEAVES = st.builds(_Leaf, st.text(), st.none() | st.floats(allow_nan=False, allow_infinity=False))
