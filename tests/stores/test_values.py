"""Values as files and processes hold them: frozen JSON, its canonical form, numbers, and outcomes without a number."""

import hashlib
import json
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.stores.json_values import FrozenDict, canonical_json, canonical_text, derive_seed, frozen, sha256_hex, to_builtins
from tfgrpo.stores.numeric import at_most, is_finite, two_digits
from tfgrpo.stores.outcomes import Failed, Refused, RewardScore, Scored, Ungraded, scored_rewards

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


def test_a_frozen_object_refuses_every_change():
    held = FrozenDict({"a": 0})
    for change in ("update", "__setitem__", "__delitem__", "pop", "popitem", "clear", "setdefault", "__ior__"):
        with pytest.raises(TypeError, match="frozen record"):
            getattr(held, change)("a", 1)
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
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="200 deep"):
        frozen(endless)


def test_canonical_forms_and_their_digests_and_seeds_are_known():
    assert canonical_json({"b": [1, 1.0], "a": "\u00e9\u2028"}) == '{"a":"\u00e9\u2028","b":[1,1.0]}'
    for value in (float("nan"), float("inf"), {"a": [float("-inf")]}):
        with pytest.raises(ValueError, match="not JSON compliant"):
            canonical_json(value)
    assert canonical_text("e\u0301".encode()) == "e\u0301", "letters are not recomposed"
    with pytest.raises(UnicodeDecodeError):
        canonical_text("caf\u00e9".encode("latin-1"))
    assert sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_hex("\u00e9") == sha256_hex("\u00e9".encode()) == hashlib.sha256(b"\xc3\xa9").hexdigest()
    assert derive_seed(0, "rollout", 1, "q-17", 0) == 4829121928851843


@given(st.integers(), st.lists(st.text(max_size=8) | st.integers(), max_size=4).map(tuple))
def test_a_seed_stays_exact_in_json_numbers(seed, purpose):
    derived = derive_seed(seed, *purpose)
    assert 0 <= derived < 2**53
    assert int(float(derived)) == derived == derive_seed(seed, *purpose)


def test_a_failure_never_becomes_a_number():
    without = [Ungraded("RewardError", "no answer"), Failed("ModelTimeout", "60 s", "1/train/0/q/0"), Refused("max_calls")]
    assert scored_rewards([Scored(1.0, (RewardScore("gt", 1.0, "4 = 4"),)), *without, Scored(0.0, ())]) == (1.0, 0.0)
    assert scored_rewards(without) == ()


def test_figures_are_rounded_without_an_exponent_and_finite_is_what_a_float_can_represent():
    digits = {100.0: "100", 1234.5: "1,200", 2.35e6: "2,400,000", 17.4: "17", 0.00789: "0.0079", 0.0: "0"}
    assert {value: two_digits(value) for value in digits} == digits
    bounds = {3100: "3,100", 3101: "3,110", 999.1: "1,000", 13.4661: "13.5", 0.01681: "0.0169", 7: "7", 0: "0"}
    assert {value: at_most(value) for value in bounds} == bounds
    assert all(map(is_finite, (0, -1.5, 2**60)))
    assert not any(map(is_finite, (10**400, math.inf, math.nan)))
