"""Judges among the graders of a data mix ask the model of a pipeline: in ``serve-data``, in ``grade``, and in a run."""

import json
import re
import signal
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from tests.support.runs import running as kit
from tests.support.runs.serving import serving as serve
from tfgrpo.flows import cli
from tfgrpo.flows.run.trial import plan_judges, served_judges
from tfgrpo.pipelines.mix.config import load_mix_config
from tfgrpo.pipelines.server.service import DataService, GradeItem
from tfgrpo.pipelines.settings.layers import resolve_settings
from tfgrpo.rewarders.runner import ScoreRunner

JUDGE = {"builtin": "judge", "init_kwargs": {"preset": "reference"}}
KEY = "sk-of-the-judge"
PRICES = {"simulated": {"input": 0.15, "output": 0.6}}
SPENT = "BudgetRefused: max_calls 3 is reached"


@pytest.fixture
def mix(at_home):
    """Return a function that writes a mix with judges into the working directory."""
    items = [{"prompt": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(20)]
    (at_home / "sums.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in items))

    def write(**judges):
        judges = judges or {"right": JUDGE}
        used = {"path": "sums.jsonl", "graders": [*judges], "grader_weights": [1.0] * len(judges)}
        content = {
            "seed": 3,
            "paths": {"data_root": "."},
            "python_graders": judges,
            "datasets": {"sums": used},
            "stages": [{"name": "all", "until_step": 9, "datasets": [{"id": "sums", "weight": 1.0}]}],
        }
        (at_home / "mix.yaml").write_text(yaml.safe_dump(content))
        return "mix.yaml"

    return write


@pytest.fixture
def pipeline(at_home):
    def write(**sections):
        (at_home / "judging.yaml").write_text(yaml.safe_dump(sections))
        return "judging.yaml"

    return write


@pytest.fixture
def refused(capsys):
    def refused(*arguments):
        assert cli.main([*arguments]) == 2
        return capsys.readouterr().err

    return refused


@contextmanager
def serving(home, *options, **environment):
    served = serve("serve-data", "mix.yaml", *options, cwd=home, **environment)
    with served as server, httpx.Client(base_url=server.url, timeout=60) as client:
        yield client, lambda: str(server.end(signal.SIGTERM)[1], "utf-8")


def completed(*texts):
    return [{"sample_id": f"sums:{at}", "completion": f"<think>r</think>\n{text}"} for at, text in enumerate(texts)]


@pytest.mark.parametrize("command", [("serve-data", "mix.yaml"), ("grade", "mix.yaml", "completions.jsonl")])
def test_a_mix_with_a_judge_is_refused_without_a_pipeline_and_says_what_to_do(mix, at_home, refused, command):
    nested = {"parts": [{"name": "judge"}, {"name": "json_valid"}]}
    mix(right=JUDGE, both={"builtin": "composite", "init_kwargs": nested})
    (at_home / "completions.jsonl").write_text('{"sample_id": "sums:0", "completion": "1"}\n')
    said = refused(*command)
    assert "mix.yaml: right, judge: got a judge and no model to ask; accepted: --pipeline with a pipeline" in said
    assert "a judge and no model to ask; accepted: a pipeline with model.name and" in refused(
        *command, "--pipeline", "tfgrpo-learning"
    )
    assert sorted(each.name for each in at_home.iterdir()) == ["completions.jsonl", "mix.yaml", "sums.jsonl"]


def test_what_a_judge_may_cost_has_to_be_known_under_a_cap_in_money(mix, pipeline, refused):
    mix(right={"builtin": "judge", "init_kwargs": {"models": ["wise", "wiser"]}})
    endpoint = {"name": "m", "base_url": "http://127.0.0.1:9/v1", "prices": {"m": {"input": 1, "output": 1}}}
    written = pipeline(model=endpoint, budget={"max_usd": 1.0})
    assert "with no price for 'wise' and 'wiser'" in refused("serve-data", "mix.yaml", "--pipeline", written)


def test_the_server_asks_the_model_of_the_pipeline_with_its_key_and_says_what_it_took(mix, pipeline, at_home):
    mix()
    with kit.Server(key=KEY) as model:
        written = pipeline(model={"name": "simulated", "base_url": model.url, "api_key": "env:JUDGE_KEY", "prices": PRICES})
        with serving(at_home, "--pipeline", written, JUDGE_KEY=KEY) as (client, end):
            asked = {"iteration": 0, "items": completed("1", "5"), "parts": True}
            results = client.post("/grade", json=asked).json()["results"]
            said = end()
        asked = [json.loads(body) for body in model.bodies]
    assert [each["parts"]["right"] for each in results] == [1.0, 1.0]
    shown = [json.loads(each["messages"][1]["content"]) for each in asked if len(each["messages"]) == 2]
    assert {"task": "What is 1 + 1?", "reference_answer": "2", "output": "<think>r</think>\n5"} in shown
    assert "judges ask simulated (SIMULATED), within no limit: set budget.max_usd" in said
    assert re.search(r"judging took \d calls, \$0.000\d \(SIMULATED\)", said)
    assert KEY not in said


async def test_over_budget_the_items_are_ungraded_with_that_reason(mix, pipeline):
    config = load_mix_config(Path(mix()))
    settings = resolve_settings(cli={}, env={}, pipeline_path=Path(pipeline(dry_run=True, budget={"max_calls": 3})))
    plan, said = plan_judges(config, settings), []
    assert plan is not None
    with ScoreRunner() as runner:
        async with served_judges(plan, lambda text, **_: said.append(text)) as judge_of:
            service = DataService(config, runner, judge_of)
            first, over = [await service.grade([GradeItem(**each) for each in completed(*texts)]) for texts in ("123", "12")]
    assert [each.parts.get("right") for each in first] == [1.0, 1.0, 1.0]
    for each in over:
        assert (each.reward, dict(each.parts)) == (None, {"reasoning_format": 1.0})
        assert SPENT in each.errors["right"]
    assert said[0] == "judges ask simulated (SIMULATED), within budget.max_calls 3"
    assert said[1].startswith("judging took 3 calls")


@pytest.fixture
def grade(mix, at_home, capsys):
    mix()
    (at_home / "c.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in completed(1, 2, 3, 4)))

    def grade(*options, code=0):
        assert cli.main(["grade", "mix.yaml", "c.jsonl", "--json", *options]) == code
        printed = capsys.readouterr()
        return json.loads(printed.out), printed.err

    return grade


def test_grading_offline_asks_as_the_server_does_and_within_the_budget(grade, pipeline):
    pipeline(dry_run=True)
    result, _ = grade("--pipeline", "judging.yaml")
    assert result["parts"]["right"]["mean"] == 1.0
    assert (result["simulated"], result["spent"]["calls"]) == (True, 4)
    result, _ = grade("--pipeline", "judging.yaml", "--max-calls", "3", code=3)
    assert (result["parts"]["right"]["graded"], result["parts"]["right"]["ungraded"]) == (3, 1)
    assert "max_calls 3 is reached" in result["stopped"]


def test_options_of_a_pipeline_are_refused_where_there_is_none(grade, refused, pipeline):
    assert "--set budget.max_calls: got a setting with a data mix" in refused(
        "grade", "mix.yaml", "c.jsonl", "--max-calls", "3"
    )
    written = pipeline(dry_run=True)
    assert "--pipeline: got a pipeline beside another one" in refused("grade", written, "c.jsonl", "--pipeline", written)


def test_the_forecast_of_a_run_on_the_mix_has_its_judges(mix, at_home, capsys):
    def calls(*judges):
        mix(**dict.fromkeys(judges, JUDGE) if judges else {"json": {"builtin": "json_valid"}})
        assert cli.main(["estimate", "--dry-run", "--data-config", "mix.yaml", "--json"]) == 0
        return json.loads(capsys.readouterr().out)["calls"]["high"]

    without, one, two = calls(), calls("right"), calls("right", "again")
    assert without < one
    assert two - one == one - without


def test_a_run_on_the_mix_is_judged_and_its_score_counts_as_an_opinion(mix, at_home):
    mix()
    summary = kit.run(at_home / "out", run_id="night", dry_run=True, data_config="mix.yaml", sample_size=2, epochs=2)
    assert summary.status == "finished"
    rows = kit.lines(kit.paths(at_home / "out", "night").rollouts)
    assert {score["evidence"] for row in rows for score in row["scores"] if score["rewarder_id"] == "dataset_graders"} == {
        "right 1, reasoning_format 0"
    }
    assert kit.manifest(at_home / "out", "night")["tfgrpo"]["calibration"]["rewarders"].keys() == {
        "dataset_graders",
        "relative",
    }
