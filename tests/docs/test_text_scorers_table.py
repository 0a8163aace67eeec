"""The examples of docs/graders.md for the scorers of text are what the scorers give."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.runs.pages import page, table
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.scorer import GraderInput

TEXT = page("docs/graders.md")
ROWS = table(TEXT, "scorer | what it accepts | reference | output | score")


def record(cell: str) -> dict[str, object]:
    """Record of a cell: a whole one, one with a list or text as its answer, or an empty one."""
    known = json.loads(cell) if cell[:1] in ("{", "[") else cell
    return known if isinstance(known, dict) else {"answer": known or None}


@pytest.mark.parametrize(("scorer", "accepts", "reference", "output", "expected"), ROWS)
def test_the_examples_score_as_the_page_says(scorer, accepts, reference, output, expected):
    name, _, options = scorer.strip("`").partition(" ")
    made = build_scorer(name, json.loads(options or "{}"))
    item = GraderInput.of("s:0", record(reference.strip("`")), output.strip("`").replace("\\n", "\n"))
    assert round(made.call(item).score, 3) == float(expected), made.call(item).evidence


def test_every_scorer_of_text_and_every_option_has_an_example():
    named = {row[0].strip("`").partition(" ")[0] for row in ROWS}
    heading = next(line for line in TEXT.splitlines() if line.startswith("### Text: "))
    assert named == set(re.findall(r"`(\w+)`", heading))
    for name in named:
        shown = " ".join(row[0] for row in ROWS if row[0].startswith((f"`{name} ", f"`{name}`")))
        assert shown
