"""A learning run on a mix draws what the stage in force says, batch by batch, and never what is held out."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.pipelines.mixes import document, rows, write_mix, write_rows
from tfgrpo.pipelines.mix.config import load_mix_config
from tfgrpo.pipelines.mix.items import LearningMix
from tfgrpo.pipelines.plan.plan import Plan, build_plan, close_scorers
from tfgrpo.pipelines.settings.layers import resolve_settings
from tfgrpo.pipelines.settings.pipeline_file import find_pipeline
from tfgrpo.pipelines.settings.tree import DATASET_GRADERS
from tfgrpo.rewarders.registry import as_scorer
from tfgrpo.rewarders.runner import GroupScores, ScoreRunner
from tfgrpo.rewarders.scorer import Abstained, Attempt, RewardContext, Weighted
from tfgrpo.stores.errors import ConfigError, DatasetError


def make_plan(tmp_path: Path, mix: Path, **options: str) -> Plan:
    given = {"dataset.mix": str(mix), "out": str(tmp_path / "out"), "tfgrpo.enabled": "on", **options}
    return build_plan(resolve_settings(cli=given, env={}), {})


def plan_at(path: Path, **changes: Any) -> Plan:
    options = {"epochs": 5, "sample_size": 6, "batch_size": 4, **changes}
    given = {f"tfgrpo.{name}": str(value).lower() for name, value in options.items()}
    return make_plan(path.parent, path, **given)


def sooner(until: int, **changes: Any) -> dict[str, Any]:
    """The document with a first stage that ends at this step."""
    made = document(**changes)
    made["stages"][0]["until_step"] = until
    return made


def ids(plan: Plan, epoch: int = 1) -> list[str]:
    return [item.id for item in plan.cohort(epoch).items]


def test_items_say_what_their_records_say(tmp_path):
    path = write_mix(tmp_path)
    records: list[Any] = [
        {"prompt": f"p{n}", "answer": answer, "system_prompt": "s" if n else None, "metadata": {"n": n}}
        for n, answer in enumerate(["x", 4, 2.5, ["a", "ü"], True, None, "", 0, False])
    ]
    records[6]["expected_category"] = records[7]["expected_category"] = "cat"
    write_rows(tmp_path / "data" / "a.jsonl", [*records[:3], "", *records[3:], {"answer": "no prompt"}])
    split = plan_at(path).data.split
    items = {item.id: item for item in (*split.learn, *split.held_out)}
    answers = ["x", "4", "2.5", '["a", "ü"]', "true", "", "cat", "0", "false"]
    assert [items[f"a:{n}"].answer for n in range(9)] == answers
    assert (items["a:0"].system_prompt, items["a:1"].system_prompt, items["a:1"].metadata) == ("", "s", {"n": 1})
    assert items["a:3"].source == f"{tmp_path / 'data' / 'a.jsonl'}:5"
    assert "a:9" not in items


def test_a_step_without_items_to_learn_on_is_refused_before_the_run(tmp_path):
    path = write_mix(tmp_path)
    write_rows(tmp_path / "data" / "sub" / "b.jsonl", [])
    assert plan_at(path)
    path.write_text(yaml.safe_dump(sooner(3)), encoding="utf-8")
    with pytest.raises(DatasetError) as caught:
        plan_at(path)
    assert str(caught.value) == (
        f"{tmp_path / 'data' / 'sub' / 'b.jsonl'}: got none; accepted: records that can be served and are not held out"
    )


def test_stages_that_the_run_never_reaches_are_warned_of(tmp_path):
    def advice(**changes: Any) -> list[str]:
        return [each for each in plan_at(write_mix(tmp_path, **changes)).warnings if "never in force" in each]

    assert advice() == ["the run goes from step 0 to 7 of the 30 of its mix, one batch after another: never in force are mixed"]
    assert advice(**sooner(3)) == []
    changed = sooner(3)
    changed["stages"].insert(0, {"name": "never", "until_step": 0, "datasets": [{"id": "b", "weight": 1}]})
    (told,) = (each for each in plan_at(write_mix(tmp_path, changed)).warnings if "never in force" in each)
    assert told == "never in force, because until_step is not above 0: 'never'"


def test_a_plan_on_a_mix_uses_its_graders_unless_others_are_listed(tmp_path):
    path = write_mix(tmp_path, sooner(1))
    plan = make_plan(tmp_path, path)
    assert [(each.scorer.rewarder_id, each.weight) for each in plan.rewarders] == [("dataset_graders", 1.0), ("relative", 0.0)]
    assert plan.sources["rewarders"] == "default"
    assert plan.data.mix is not None
    assert len(plan.learn_items) + len(plan.data.split.held_out) == 40
    assert plan.cohort(1) == plan.cohort(1) != plan.cohort(2)
    assert plan.cohort(2).metadata["mix"]["draws"][0]["stage"] == "mixed"
    listed = make_plan(tmp_path, path, rewarders='[{"name": "gt"}]')
    assert [each.scorer.rewarder_id for each in listed.rewarders] == ["gt"]
    assert any("the graders of the data mix are not used" in warning for warning in listed.warnings)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"rewarders": '[{"name": "dataset_graders", "options": {"a": 1}}]'},
            ["rewarders.0: options: got a; accepted: no options"],
        ),
        (
            {"rewarders": '[{"name": "dataset_graders", "isolate": false}]'},
            ["rewarders.0: isolate: got false; accepted: it at a grader"],
        ),
        ({"rewarders": '[{"name": "dataset_graders", "weight": 0}]'}, ["no weight above 0 on a rewarder"]),
        ({"rewarders": '[{"name": "gt"}]'}, ["got no answer in any item"]),
        ({"dataset.mix": "none", "rewarders": '[{"name": "dataset_graders"}]'}, ["it together with --data-config"]),
        ({"dataset.path": "a.jsonl"}, ["--dataset: got 'a.jsonl' together with a data mix"]),
        ({"dataset.eval_path": "a.jsonl"}, ["--eval-dataset: got 'a.jsonl' together with a data mix"]),
        ({"dataset.mix": "bad.yaml", "tfgrpo.concurrency": "1"}, ["bad.yaml: got nothing; accepted", "a fan-out of 2 actors"]),
    ],
    ids=str,
)
def test_settings_that_do_not_go_with_a_mix_are_refused(tmp_path, monkeypatch, options, told):
    monkeypatch.chdir(tmp_path)
    path = write_mix(tmp_path)
    for name in ("a.jsonl", "sub/b.jsonl"):
        write_rows(tmp_path / "data" / name, [{"prompt": row["prompt"]} for row in rows(name)])  # without any answer
    (tmp_path / "bad.yaml").touch()
    assert make_plan(tmp_path, path)
    with pytest.raises(ConfigError) as caught:
        make_plan(tmp_path, path, **options)
    assert all(text in str(caught.value) for text in told)


def test_rewarders_of_a_shipped_pipeline_give_way_to_the_mix_and_those_of_an_own_file_do_not(tmp_path):
    given = {"dataset.mix": str(write_mix(tmp_path))}
    shipped = find_pipeline("tfgrpo-learning")
    own = tmp_path / "own.yaml"
    own.write_text(shipped.read_text(encoding="utf-8"), encoding="utf-8")
    first = {
        path: resolve_settings(cli=given, env={}, pipeline_path=path).settings.rewarders[0].name for path in (shipped, own)
    }
    assert first == {shipped: "dataset_graders", own: "gt"}
    assert resolve_settings(cli={}, env={}, pipeline_path=shipped).settings.rewarders[0].name == "gt"


GRADERS = '''
import time

class ByExtra:
    """Looks at a key of the record that only this file knows."""
    async def grade_batch(self, inputs):
        return [float(item.record["extra"]) for item in inputs]

def broken(item):
    if "bad" in item.completion:
        raise ValueError("no idea")
    if "slow" in item.completion:
        time.sleep(1)
    return 0.5
'''


def graded(path: Path, item_id: str, *outputs: str, timeout_s: float = 20.0) -> GroupScores:
    attempts = tuple(Attempt(f"r{at}", at, output, tokens=5) for at, output in enumerate(outputs))
    rewarder = LearningMix(load_mix_config(path)).graders()

    async def main() -> GroupScores:
        with ScoreRunner() as runner:
            context = RewardContext("fixture", item_id, "prompt", "another answer", attempts)
            scores = await runner.score_group([Weighted(rewarder, 1.0, timeout_s)], context)
            await close_scorers([rewarder])
            return scores

    return asyncio.run(main())


def mix_graded_by(folder: Path, attr: str) -> Path:
    (folder / "graders.py").write_text(GRADERS, encoding="utf-8")
    changed = document(python_graders={"mine": {"path": f"graders.py:{attr}"}})
    changed["datasets"]["a"] |= {"graders": ["mine"], "grader_weights": [1]}
    return write_mix(folder, changed)


def test_what_a_grader_cannot_grade_costs_that_attempt_alone(tmp_path):
    scores = graded(mix_graded_by(tmp_path, "broken"), "a:1", "good", "bad", "good", "slow", timeout_s=0.4)
    assert (dict(scores.faults), scores.totals) == ({}, {"r0": 0.25, "r2": 0.25})
    for at, reason in ((1, "ValueError: no idea"), (3, "0.4")):
        verdict = scores.verdicts[at][0]
        assert isinstance(verdict, Abstained)
        assert (verdict.rewarder_id, reason in verdict.reason) == (DATASET_GRADERS, True)


def test_an_item_of_no_dataset_is_a_fault_and_no_reward(tmp_path):
    for item_id in ("a:99", "c:1", "q"):
        scores = graded(write_mix(tmp_path), item_id, "x")
        assert dict(scores.totals) == {}
        assert scores.faults["dataset_graders"].startswith("dataset_graders: sample_id: got")


def test_every_scorer_is_closed_whatever_comes_of_it():
    closed = []

    class Odd:
        rewarder_id = "odd"

        def score(self, context: RewardContext) -> list[Any]:
            return []

        def close(self) -> None:
            closed.append(self)
            raise RuntimeError

    asyncio.run(close_scorers([as_scorer("odd", Odd(), {}, "rewarders")] * 2))
    assert len(closed) == 2


def test_draws_repeat_for_a_seed_and_epoch_and_differ_otherwise(tmp_path):
    plan = plan_at(write_mix(tmp_path))
    assert ids(plan) == ids(plan) == ids(plan_at(write_mix(tmp_path)))
    assert len({tuple(ids(plan, epoch)) for epoch in (1, 2, 3)}) == 3
    assert ids(plan) != ids(plan_at(write_mix(tmp_path), seed=1))
    assert ids(plan) != ids(plan_at(write_mix(tmp_path), night=1))
    assert ids(plan) != ids(plan_at(write_mix(tmp_path, seed=5)))
