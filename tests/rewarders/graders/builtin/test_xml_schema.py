"""``xml_schema`` looks at the root's tag, in the answer or in its first fenced block."""

from __future__ import annotations

import tracemalloc
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rewards.graders import answered, score, with_schema
from tfgrpo.rewarders.graders.builtin import schema_grader

WANTS = with_schema(root_tag="answer")

WELL_FORMED = [
    ("<answer/>", 1.0),
    (" \n<answer>ok</answer>\u2028", 1.0),
    ("\ufeff<answer/>", 1.0),
    ('<?xml version="1.0" encoding="UTF-16"?><answer/>', 1.0),
    ('<?xml version="1.0" encoding="no-such"?>\n<answer>\u00e9</answer>', 1.0),
    ("<!DOCTYPE answer><answer/>", 1.0),
    ('<!DOCTYPE answer [<!ENTITY e "x">]><answer>&e;</answer>', 1.0),
    ('<!DOCTYPE answer SYSTEM "http://127.0.0.1:9/none.dtd"><answer/>', 1.0),
    ("<!-- so --><?pi x?><answer><![CDATA[<]]>&lt;&#65;</answer><!-- end -->", 1.0),
    ('<answer xmlns:x="u"><x:b a="1"/></answer>', 1.0),
    ("<Answer/>", 0.8),
    ("<wrong><answer/></wrong>", 0.8),
    ('<answer xmlns="u"/>', 0.8),
    ('<n:answer xmlns:n="u"/>', 0.8),
    ("```xml\n<answer/>\n```", 0.9),
    ("so:\n```\n<wrong/>\n```\n```\n<answer/>\n```", 0.72),
]
BROKEN = [
    "answer",
    "<answer>",
    "<answer></Answer>",
    "<answer/> so",
    "<answer/><answer/>",
    "<answer>a & b</answer>",
    "<answer>1 < 2</answer>",
    "<answer>&nbsp;</answer>",
    '<!DOCTYPE answer [<!ENTITY e SYSTEM "/etc/hostname">]><answer>&e;</answer>',
    '<!DOCTYPE answer SYSTEM "http://127.0.0.1:9/none.dtd"><answer>&e;</answer>',
    '<answer a="1" a="2"/>',
    "<n:answer/>",
    "<answer/>\u200b",
    "\u200b<answer/>",
    "<answer>\x00</answer>",
    "<answer>\ud800</answer>",
    "<1/>",
    "```xml\n<answer>\n```",
    "```xml \n<answer/>\n```",
    '{"answer": 1}',
]


@pytest.mark.parametrize(("answer", "expected"), WELL_FORMED)
def test_well_formed_text_is_scored_by_its_root(answer, expected):
    assert score("xml_schema", answered(answer), WANTS) == pytest.approx(expected, abs=1e-9)
    assert score("xml_schema", answer, WANTS) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("answer", BROKEN)
def test_xml_that_is_not_well_formed_scores_zero(answer):
    assert score("xml_schema", answered(answer), WANTS) == 0.0


@pytest.mark.parametrize("root_tag", [None, 7, ["answer"], True])
def test_without_a_tag_to_compare_with_half_is_left(root_tag):
    assert score("xml_schema", answered("<answer/>"), with_schema(root_tag=root_tag)) == 0.5
    assert score("xml_schema", answered("```\n<answer/>\n```"), with_schema(root_tag=root_tag)) == 0.45
    assert score("xml_schema", answered("<answer/>"), with_schema()) == 0.5
    assert score("xml_schema", answered("<answer/>"), with_schema(root_tag="")) == 0.8


@pytest.mark.parametrize("text", ["\ud800 so ```\n<answer/>\n```", "```\n<answer>\udfff</answer>\n```", "\ud800"])
def test_a_lone_surrogate_scores_zero_even_with_a_fenced_block(text):
    assert score("xml_schema", answered(text), WANTS) == 0.0


def test_unfinished_reasoning_is_read_unless_that_is_switched_off():
    assert score("xml_schema", "<think>r</think>", WANTS) == 0.8
    assert score("xml_schema", "<think>r</think>", with_schema(root_tag="think")) == 1.0
    assert score("xml_schema", "<think>```\n<answer/>\n```", WANTS) == 0.9
    for completion in ("<think>r</think>", "<think>```\n<answer/>\n```", "<answer/>"):
        assert score("xml_schema", completion, WANTS, require_answer=True) == 0.0
    assert score("xml_schema", answered("<answer/>"), WANTS, require_answer=True) == 1.0


def bomb(levels: int, width: int) -> str:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * width}">' for n in range(1, levels))
    return f'<!DOCTYPE answer [<!ENTITY e0 "{"x" * 99}">{entities}]><answer>&e{levels - 1};</answer>'


def test_entities_that_multiply_cost_neither_time_nor_memory():
    quadratic = f'<!DOCTYPE answer [<!ENTITY e "{"x" * 100_000}">]><answer>{"&e;" * 100_000}</answer>'
    tracemalloc.start()
    assert score("xml_schema", answered(bomb(12, 12)), WANTS) == 0.0
    assert score("xml_schema", answered(quadratic), WANTS) == 0.0
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()
    assert score("xml_schema", answered(bomb(3, 3)), WANTS) == 1.0


def test_where_the_parser_does_not_stop_them_declared_entities_are_refused(monkeypatch):
    assert schema_grader.ENTITIES_ARE_LIMITED
    monkeypatch.setattr(schema_grader, "ENTITIES_ARE_LIMITED", False)
    assert score("xml_schema", answered(bomb(3, 3)), WANTS) == 0.0
    assert score("xml_schema", answered("<answer/>"), WANTS) == 1.0


def test_deep_and_wide_documents_are_read_without_a_tree():
    assert score("xml_schema", answered("<answer>" * 50_000 + "</answer>" * 50_000), WANTS) == 1.0
    assert score("xml_schema", answered(f"<answer>{'<a/>' * 50_000}</answer>"), WANTS) == 1.0


def root_by_the_library(text: str) -> str | None:
    try:
        return ET.fromstring(text.strip()).tag
    except (ET.ParseError, ValueError):
        return None


PIECES = [
    "<answer",
    "<a",
    ">",
    "/>",
    "</answer>",
    "</a>",
    ' xmlns="u"',
    ' b="1"',
    "x",
    "&lt;",
    "&e;",
    "&",
    "<!--",
    "-->",
    "<![CDATA[",
    "]]>",
    '<!DOCTYPE a [<!ENTITY e "x">]>',
    "<!DOCTYPE answer>",
    "<?xml version='1.0'?>",
    "<?p?>",
    " ",
    "\n",
    "\ufeff",
    "\x00",
    "\ud800",
    "\u00a0",
    "<n:a/>",
    "```\n",
    "\x0b",
]


@given(
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
    | st.text(max_size=30).map(lambda t: f"<answer>{t}</answer>")
)
def test_every_mixture_of_markup_is_read_as_the_standard_library_reads_it(text):
    root = root_by_the_library(text)
    expected = 0.0 if root is None else 1.0 if root == "answer" else 0.8
    if "```" not in text:
        assert score("xml_schema", text, WANTS) == expected
