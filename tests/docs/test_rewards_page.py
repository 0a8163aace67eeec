"""What docs/rewards.md shows is what the rewarders do: its options, figures, policies and code are those of the program."""

import ast
import json
import re
from dataclasses import fields, replace
from typing import Any, get_args

import pytest
import yaml

from tests.support.models.strict_schemas import strict_fault
from tests.support.rewards.judges import FakeJudge, judged
from tests.support.rewards.scoring import built, scores, totalled
from tests.support.runs.pages import blocks, page, table
from tfgrpo.flows.report.calibration import SHARES
from tfgrpo.pipelines.plan.plan import scorers_of
from tfgrpo.pipelines.settings.layers import resolve_settings
from tfgrpo.rewarders.composite import OnAbstain, check_scorers
from tfgrpo.rewarders.functions import EITHER, NAMES
from tfgrpo.rewarders.judge.model import JudgeOptions
from tfgrpo.rewarders.registry import as_scorer, known_scorers
from tfgrpo.rewarders.scorer import GraderInput, Weighted

PAGE = "docs/rewards.md"
TEXT = page(PAGE)


def name_of(cell: str) -> str:
    return cell.strip("`")


def value_of(cell: str) -> Any:
    return None if cell == "none" else yaml.safe_load(name_of(cell))


def test_the_pipeline_on_the_page_makes_rewarders(tmp_path):
    shown, _ = blocks(PAGE, "yaml")
    path = tmp_path / "part.yaml"
    path.write_text(shown.text)
    built = scorers_of(resolve_settings(cli={}, env={}, pipeline_path=path).settings)
    check_scorers(built)
    assert [weighted.scorer.rewarder_id for weighted in built] == ["composite", "gt", "relative"]


def test_every_option_of_a_judge_is_on_the_page_with_its_default():
    documented = {name_of(row[0]): value_of(row[1]) for row in table(TEXT, "option | default | meaning")}
    assert documented == {field.name: field.default for field in fields(JudgeOptions)}


ROWS = table(TEXT, "scorer | what it scores | record | attempt | score")


def options_of(cell: str) -> tuple[str, dict[str, Any]]:
    name, _, options = name_of(cell).partition(" ")
    return name, json.loads(options or "{}")


def grouped(row):
    """The library of formulas takes two seconds to load: one worker does."""
    return pytest.param(*row, marks=pytest.mark.xdist_group("math-verify")) if "math_verify" in row[0] else row


@pytest.mark.parametrize(("scorer", "about", "record", "attempt", "expected"), [grouped(row) for row in ROWS if row[4]])
def test_the_example_of_each_scorer_scores_as_the_page_says(scorer, about, record, attempt, expected):
    name, options = options_of(scorer)
    known, text = json.loads(name_of(record) or "{}"), name_of(attempt).replace("\\n", "\n")
    facts = json.loads(text) if {"completion_tokens", "cost_usd", "latency_s", "tool_calls"} & {*text.split('"')} else {}
    tokens = facts.pop("completion_tokens", None)
    if name.startswith("powl"):
        (score,) = scores(built(name, **options), text, answer=known.get("answer", ""))
    else:
        whole = name in ("reasoning_format", "json_valid") or bool(facts or tokens)
        item = GraderInput.of("s:0", known, text if whole else f"<think>r</think>\n{text}", tokens)
        found = built(name, **options).call(replace(item, attempt=facts))
        score = getattr(found, "score", found)
    assert score == pytest.approx(float(expected), abs=0.001)


def test_every_scorer_is_on_the_page_and_so_are_the_policies():
    assert {options_of(row[0])[0] for row in ROWS} == set(known_scorers()) - {"math-verify"}
    policies = [name_of(row[0]) for row in table(TEXT, "`on_abstain` | a part that abstains")]
    assert tuple(policies) == get_args(OnAbstain)


def test_the_figures_on_the_page_are_those_of_the_manifest():
    figures = {name_of(row[0]) for row in table(TEXT, "figure | means")}
    assert figures == {*SHARES}


def test_the_names_of_parameters_on_the_page_are_bound_as_it_says():
    roles = ["output", "reference", None, "prompt", "metadata", "item", "context", "nothing"]
    for role, (_, names) in zip(roles, table(TEXT, "bound to | names of the parameter"), strict=True):
        shown = set(re.findall(r"`(\w+)`", names)) - {"_"}
        assert shown == set(EITHER) if role is None else shown <= set(NAMES[role].split()), role


async def test_the_code_on_the_page_scores():
    written: dict[str, Any] = {}
    for block in blocks(PAGE, "python"):
        exec(compile(ast.parse(block.text), PAGE, "exec"), written)
    scorers = [Weighted(as_scorer(name, written[name], {}, "page")) for name in ("brief", "Polite")]
    replies = ({"polite": True}, {"polite": False}, "Yes, it is.", {"polite": "yes"})
    judge = FakeJudge(lambda question: replies[question.rollout])
    given = await totalled(judged(["Please.", "x" * 300, "a", "b"], judge), *scorers)
    assert given.totals == {"r0": 1.0, "r1": 0.0}
    assert [strict_fault(question.schema) for question in judge.asked] == [None] * 4
