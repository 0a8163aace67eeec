"""The tags of a completion are scored part by part."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rewards.graders import score

SHAPES = [
    ("<think>r</think>\nx", 1.0),
    ("<think></think>\nx", 1.0),
    ("\u2028\n <think>r</think>\nx\u00a0", 1.0),
    ("<think>r</think>\tx", 1.0),
    ("<think>r</think>\rx", 1.0),
    ("<think>r</think>\u00a0x", 1.0),
    ("<think>r</think>\u2028x", 1.0),
    ("<think>r</think> x", 0.9),
    ("<think>r</think>x", 0.9),
    ("<think>r</think>\u200bx", 0.9),
    ("<think>r</think>\u200b", 0.9),
    ("so <think>r</think>\nx", 0.875),
    ("\u200b<think>r</think>\nx", 0.875),
    ("<think>r</think>", 0.25),
    ("<think>r</think>\n \n", 0.25),
    ("so <think>r</think>", 0.125),
    ("<think>r", 0.25),
    ("so <think>r", 0.125),
    ("r</think>\nx", 0.625),
    ("r</think>x", 0.525),
    ("r</think> x", 0.525),
    ("r</think>", 0.0),
    ("x", 0.0),
    ("", 0.0),
    (" \n", 0.0),
    ("</think>\n<think>\nx", 0.625),
    ("</think><think>x", 0.525),
    ("<think><think>r</think>\nx", 0.85),
    ("<think>r</think>\n</think>x", 0.85),
    ("<think>r</think>\n<think>r</think>\nx", 0.7),
    ("</think></think>", 0.525),
    ("</think>\n</think>\nx", 0.625),
    ("<think><think>", 0.25),
    ("<think><think><think>", 0.1),
    ("<think><think><think><think>", 0.0),
    ("<THINK>r</THINK>\nx", 0.0),
    ("<think>\ud800</think>\n\udfff", 1.0),
]
texts = st.lists(
    st.sampled_from(["<think>", "</think>", "x", " ", "\n", "\u00a0", "\u2028", "\u200b", "</think", "<"]), max_size=9
).map("".join)


@pytest.mark.parametrize(("completion", "expected"), SHAPES)
def test_every_shape_has_its_score(completion, expected):
    assert score("reasoning_format", completion) == pytest.approx(expected, abs=1e-9)


def by_the_rule(completion: str) -> float:
    text = completion.strip()
    first_open, first_close = text.find("<think>"), text.find("</think>")
    opens, closes = text.count("<think>"), text.count("</think>")
    total = 0.0
    if first_open != -1:
        total += 0.125
        if first_open == 0:
            total += 0.125
    if first_close != -1:
        total += 0.125
        if first_open != -1:
            total += 0.125 if first_close > first_open else -0.125
        behind = text[first_close + 8 :]
        if behind[:1] == " " or (behind and not behind[0].isspace()):
            total -= 0.1
        total += 0.5 if behind.strip() else -0.25
    if opens > 1 or closes > 1:
        total -= 0.15 * ((opens - 1) + (closes - 1))
    return max(0.0, min(1.0, total))


@given(texts)
def test_every_mixture_of_tags_and_white_space_follows_the_rule(text):
    assert score("reasoning_format", text) == pytest.approx(by_the_rule(text), abs=1e-9)


@given(texts, st.sampled_from([None, [], "x", {"answer": 1}]))
def test_the_record_does_not_count(text, record):
    assert score("reasoning_format", text, record) == score("reasoning_format", text)
