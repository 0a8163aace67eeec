"""Fenced blocks are what one pattern over the whole text would find, in time that grows with the text and no faster."""

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfgrpo.rewarders.powl import text as powl_text
from tfgrpo.rewarders.powl.text import without_wrapping
from tfgrpo.tasks.learning import ask
from tfgrpo.tasks.learning.ask import parse_answer

NAMED = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*[\w+-]*[ \t]*\n(?P<body>.*?)^[ \t]*(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL
)
ANY = re.compile(r"^[ \t]*```[^\n`]*\n(?P<body>.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[ \t]*[\w+-]*[ \t]*$", re.MULTILINE)

PIECES = ["```", "```\n", "\n```", "````", "~~~", "~~~~\n", "`", "~", "\n", "\n\n", " ", "\t", "\r\n", "\x0b", "\u2028"]
PIECES += ["json", "{", "}", "+", "-", "é", "!", "a b", "```json\n{\n"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text("`~ \nj{", max_size=24)


@given(TEXTS)
@example("```json\n{}\n```")
@example("```\n```\n```\n{\n```\n")
@example("````\n```\n{\n```\n````")
@example("```\n~~~\n```\n~~~")
@example("``` \n\n ```\t")
@example("```a`\n{\n```")
def test_blocks_are_those_of_a_pattern_over_the_whole_text(text):
    for module, pattern in ((powl_text, NAMED), (ask, ANY)):
        blocks = powl_text.fenced_blocks(text, module._OPENING, module._CLOSING)
        assert [tuple(each) for each in blocks] == [found.span("body") for found in pattern.finditer(text)]
    assert [found.span() for found in powl_text._FENCE.finditer(text)] == [found.span() for found in FENCE.finditer(text)]


def _read(text: str) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        parse_answer(text, {})


@pytest.mark.parametrize("read", [without_wrapping, _read])
@pytest.mark.parametrize(
    "text",
    [
        "x\n" + "```json\n{\n" * 40_000,
        "x\n" + "~~~json\n{\n" * 40_000,
        "x\n" + "".join(f"{'`' * (3 + n % 500)}\n" for n in range(1_500)),
        "x\n```" + " " * 400_000 + "!",
        "x\n" + " " * 400_000 + "!",
        "x\n" + "`" * 400_000 + "!",
    ],
    ids=["backticks", "tildes", "fences of many lengths", "spaces behind a fence", "spaces", "one long fence"],
)
def test_repeated_fences_are_read_in_linear_time(read, text):
    began = time.process_time()
    read(text)
    assert time.process_time() - began < 2.0
