"""``xml_schema`` looks at the root's tag, in the answer or in its first fenced block."""

from __future__ import annotations

import tracemalloc

import pytest

from tests.support.rewards.scoring import answered, score, with_schema
from tfgrpo.rewarders.graders.builtin import formats

WANTS = with_schema(root_tag="answer")


@pytest.mark.parametrize("text", ["\ud800 so ```\n<answer/>\n```", "```\n<answer>\udfff</answer>\n```", "\ud800"])
def test_a_lone_surrogate_scores_zero_even_with_a_fenced_block(text):
    assert score("xml_schema", answered(text), WANTS) == 0.0


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
    assert formats.ENTITIES_ARE_LIMITED
    monkeypatch.setattr(formats, "ENTITIES_ARE_LIMITED", False)
    assert score("xml_schema", answered(bomb(3, 3)), WANTS) == 0.0
    assert score("xml_schema", answered("<answer/>"), WANTS) == 1.0


def test_deep_and_wide_documents_are_read_without_a_tree():
    assert score("xml_schema", answered("<answer>" * 50_000 + "</answer>" * 50_000), WANTS) == 1.0
    assert score("xml_schema", answered(f"<answer>{'<a/>' * 50_000}</answer>"), WANTS) == 1.0
