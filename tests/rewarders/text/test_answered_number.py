"""The short way of reading a plain integer reads what the long way reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.rewarders.text.answers import answered_number, last_number, stated_answer


@given(st.text(alphabet="0123456789+- \n\u00a0\u0664", max_size=22))
def test_both_ways_read_the_same(text):
    assert answered_number(text) == last_number(stated_answer(text).text)


@given(st.from_regex(r"\s?[+-]?[0-9]{1,18}\s?", fullmatch=True, alphabet=st.characters(codec="ascii")))
def test_both_ways_read_plain_integers_the_same(text):
    found = answered_number(text)
    assert found is not None
    assert found == last_number(stated_answer(text).text)
    assert found.value == int(text.strip())
