"""What docs/rewards.md shows is what the rewarders do: its options, figures, policies and code are those of the program."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from typing import Any, get_args

import yaml

from tests.support.rewards.judges import FakeJudge, judged
from tests.support.rewards.scoring import totalled
from tests.support.runs.pages import blocks, page, table
from tfgrpo.pipelines.plan.rewarders import scorers_of
from tfgrpo.pipelines.settings.layers import resolve_settings
from tfgrpo.rewarders.composite import OnAbstain, check_scorers
from tfgrpo.rewarders.functions import EITHER, NAMES
from tfgrpo.rewarders.judge.calibration import RankCalibration
from tfgrpo.rewarders.judge.options import JudgeOptions
from tfgrpo.rewarders.registry import as_scorer, known_scorers
from tfgrpo.rewarders.scorer import Weighted
from tfgrpo.tasks.models.simulated.protocol import strict_fault

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


def test_the_rewarders_and_policies_on_the_page_exist():
    assert {name_of(row[0]) for row in table(TEXT, "name | says")} < set(known_scorers())
    policies = [name_of(row[0]) for row in table(TEXT, "`on_abstain` | a part that abstains")]
    assert tuple(policies) == get_args(OnAbstain)


def test_the_figures_on_the_page_are_those_of_the_manifest():
    figures = {name_of(row[0]) for row in table(TEXT, "figure | means")}
    counts = {field.name for field in fields(RankCalibration)}
    assert figures == set(RankCalibration().as_json()) - counts
    assert "abstained" in counts


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
