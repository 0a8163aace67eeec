"""Seeds are functions of their purpose alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.stores.canonical import derive_seed

_PURPOSES = st.lists(st.text(max_size=8) | st.integers(), max_size=4).map(tuple)


def test_a_known_purpose_has_a_known_seed():
    assert derive_seed(0, "rollout", 1, "q-17", 0) == 4829121928851843


@given(st.integers(), _PURPOSES)
def test_a_seed_stays_exact_in_json_numbers(seed, purpose):
    derived = derive_seed(seed, *purpose)
    assert 0 <= derived < 2**53
    assert int(float(derived)) == derived == derive_seed(seed, *purpose)
