"""The examples of docs/graders.md for the scorers of work, and what docs/rewards.md says of presets, are what scorers give."""

from __future__ import annotations

import inspect
import json
import re

import pytest
import yaml

from tests.support.rewards.judges import FakeJudge, judged
from tests.support.runs.pages import blocks, page, table
from tfgrpo.rewarders.graders.builtin.code_process import FILE_BYTES
from tfgrpo.rewarders.graders.builtin.code_tests import _BY_THE_CLOCK, _MOST_ENDLESS
from tfgrpo.rewarders.graders.builtin.sql_result import MOST_STEPS
from tfgrpo.rewarders.judge.model import Preset
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.scorer import GraderInput

TEXT, REWARDS = page("docs/graders.md"), page("docs/rewards.md")
ROWS = table(TEXT, "scorer | what it accepts | record | attempt | score")


@pytest.mark.parametrize(("scorer", "accepts", "record", "attempt", "expected"), ROWS)
def test_the_examples_score_as_the_page_says(scorer, accepts, record, attempt, expected):
    name, _, options = scorer.strip("`").partition(" ")
    made = build_scorer(name, json.loads(options or "{}"))
    text = attempt.strip("`")
    facts = json.loads(text) if text.startswith("{") else {}
    tokens = facts.pop("completion_tokens", None)
    item = GraderInput("s:0", json.loads(record.strip("`") or "{}"), text, None, None, tokens, attempt=facts)
    assert made.call(item).score == pytest.approx(float(expected)), made.call(item).evidence


def test_every_scorer_of_work_has_an_example_and_its_options_in_the_table():
    heading = next(line for line in TEXT.splitlines() if line.startswith("### Work: "))
    names = re.findall(r"`(\w+)`", heading)
    assert {row[0].strip("`").partition(" ")[0] for row in ROWS} == set(names)
    rows = {row[0].strip("`"): row[2] for row in table(TEXT, "name | looks at | options and their defaults")}
    for name in names:
        made = build_scorer(name, {"worst": 1.0} if "worst" in rows[name] else {}).made_from
        accepted = inspect.signature(type(made)).parameters
        shown = dict(re.findall(r"`(\w+)` (\(no default\)|[\w.]+)", rows[name]))
        assert {key: inspect.Parameter.empty if "(" in text else yaml.safe_load(text) for key, text in shown.items()} == {
            key: each.default for key, each in accepted.items()
        }, name


def test_the_limits_on_the_page_are_those_of_the_code():
    assert f"files of at most {FILE_BYTES >> 20} MiB" in TEXT
    assert f"{MOST_STEPS // 1_000_000} million steps" in TEXT
    assert (re.search(r"three times that by the clock", TEXT)[0], re.search(r"after three that do not end", TEXT)[0]) == (
        "three times that by the clock",
        "after three that do not end",
    )
    assert (_BY_THE_CLOCK, _MOST_ENDLESS) == (3, 3)


async def test_the_presets_on_the_page_are_those_of_the_judge_and_its_panel_scores():
    assert {row[0].strip("`") for row in table(REWARDS, "`preset` | asks | score")} == set(Preset.__args__)
    (shown,) = [block.text for block in blocks("docs/rewards.md", "yaml") if "checklist" in block.text]
    (entry,) = yaml.safe_load(shown)["rewarders"]
    points = [{"point": 1, "reason": "", "met": False}, {"point": 2, "reason": "", "met": True}]
    model = FakeJudge(lambda _: {"points": points})
    (verdict,) = await build_scorer(entry["name"], entry["options"]).call(judged(["a"], model))
    assert verdict.score == 0.75
    assert [row["model"] for row in verdict.details["panel"]] == entry["options"]["models"]
