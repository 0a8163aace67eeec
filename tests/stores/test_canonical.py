"""Digests rest on one canonical form, and seeds are functions of their purpose alone."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.stores.json_values import canonical_json, canonical_text, derive_seed, sha256_hex


def test_keys_are_sorted_and_characters_unescaped():
    assert canonical_json({"b": [1, 1.0], "a": "\u00e9\u2028"}) == '{"a":"\u00e9\u2028","b":[1,1.0]}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [float("-inf")]}])
def test_nan_and_infinity_are_refused(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(value)


@pytest.mark.parametrize("data", [b"a\nb\n", b"a\r\nb\r\n", b"a\rb\r", b"\xef\xbb\xbfa\r\nb\n"])
def test_line_ends_and_byte_order_mark_do_not_change_a_text(data):
    assert canonical_text(data) == "a\nb\n"


def test_letters_are_not_recomposed_and_other_encodings_refused():
    assert canonical_text("e\u0301".encode()) == "e\u0301"
    with pytest.raises(UnicodeDecodeError):
        canonical_text("caf\u00e9".encode("latin-1"))


def test_text_and_its_bytes_have_the_known_digest():
    assert sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_hex("\u00e9") == sha256_hex("\u00e9".encode()) == hashlib.sha256(b"\xc3\xa9").hexdigest()


_PURPOSES = st.lists(st.text(max_size=8) | st.integers(), max_size=4).map(tuple)


def test_a_known_purpose_has_a_known_seed():
    assert derive_seed(0, "rollout", 1, "q-17", 0) == 4829121928851843


@given(st.integers(), _PURPOSES)
def test_a_seed_stays_exact_in_json_numbers(seed, purpose):
    derived = derive_seed(seed, *purpose)
    assert 0 <= derived < 2**53
    assert int(float(derived)) == derived == derive_seed(seed, *purpose)
