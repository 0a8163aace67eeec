"""Completions are split into reasoning and answer by the rule alone."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.rewarders.scorer import GraderInput, parse_completion

PIECES = ["<think>", "</think>", "<THINK>", "<think >", "a", " ", "\n", "\u00a0", "\u2028", "\x1c", "\x85", "\u200b"]
texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def by_the_rule(text: str) -> tuple[str | None, str | None]:
    found = re.fullmatch(r"(?s)((?!<think>|</think>).)*?<think>(.*?)</think>(.*)", text.strip())
    if found is None:
        return None, None
    return found[2].strip() or None, found[3].strip() or None


@given(texts)
def test_the_first_open_and_the_first_close_tag_decide(text):
    assert parse_completion(text) == by_the_rule(text)


def test_the_input_of_a_grader_carries_the_completion_as_generated():
    item = GraderInput.of("s:1", {"k": 1}, " <think>r</think> 42 ", completion_tokens=9, completion_index=3)
    assert item == GraderInput("s:1", {"k": 1}, " <think>r</think> 42 ", "r", "42", 9, 3)
