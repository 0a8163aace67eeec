"""A plan holds everything a run needs, or one error holds everything that is wrong."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.pipelines.cohorts import draw_cohort
from tests.support.pipelines.mixes import write_mix
from tfgrpo.pipelines.plan.forecast import Forecast, forecast
from tfgrpo.pipelines.plan.plan import ExtraCheck, Plan, build_plan
from tfgrpo.pipelines.settings.guardrails import validate_tfgrpo_config
from tfgrpo.pipelines.settings.layers import resolve_settings
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.rewarders.judge.judge import JudgeRewarder, PairwiseRewarder
from tfgrpo.rewarders.judge.model import JudgeOptions
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import ConfigError, PackError, Problem, SettingsError
from tfgrpo.stores.experiences.credit import CreditFile, Row
from tfgrpo.stores.experiences.decisions import Library, write_state
from tfgrpo.stores.files.lines import LineFile

MakePlan = Callable[..., Plan]


@pytest.fixture
def make_plan(tmp_path, dataset, pack, monkeypatch):
    def load(name: str, root: Path | None, words_allowed: int) -> LoadedPack:
        if name != "arithmetic":
            raise PackError.one("pack", repr(name), "arithmetic")
        return pack

    monkeypatch.setattr("tfgrpo.pipelines.plan.plan.load_prompt_pack", load)

    def make(
        extra_checks: tuple[ExtraCheck, ...] = (),
        env: dict[str, str] | None = None,
        measuring: int | None = None,
        saturated: bool = False,
        **options: str,
    ) -> Plan:
        cli = {"dataset.path": str(dataset), "out": str(tmp_path / "out"), "tfgrpo.enabled": "on"}
        cli |= {key.replace("__", "."): value for key, value in options.items()}
        resolved = resolve_settings(cli={key: value for key, value in cli.items() if value != "unset"}, env=env or {})
        return build_plan(resolved, env or {}, extra_checks=extra_checks, measuring=measuring, saturated=saturated)

    return make


def answered(write_jsonl: Callable[..., Path], *answers: str) -> str:
    """The path of a dataset of forty items with these answers in turn."""
    return str(
        write_jsonl([{"id": f"q{n}", "prompt": f"{n}?", "answer": answers[n % len(answers)]} for n in range(40)], "a.jsonl")
    )


def refusal(make_plan: MakePlan, **options: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        make_plan(**options)
    return caught.value


def test_a_plan_loads_all_and_writes_no_file(make_plan, tmp_path):
    plan = make_plan()
    assert (plan.simulated, plan.learns, plan.group_size, plan.measured_groups) == (True, True, 2, 0)
    assert len(plan.learn_items) + len(plan.eval_items) == 60
    assert [(each.scorer.rewarder_id, each.weight) for each in plan.rewarders] == [("gt", 1.0), ("relative", 0.0)]
    assert plan.paths.root == tmp_path / "out" / "tfgrpo-learning"
    assert not (tmp_path / "out").exists()
    assert (plan.models.name, plan.models.reflection_name) == ("simulated", "simulated")
    assert plan.sources["dataset.path"] == "command line --dataset"
    assert plan.cohort(1) == plan.cohort(1) != plan.cohort(2)
    assert plan.forecast.simulated


def test_problems_of_all_checks_are_one_error_of_the_class_of_the_first(make_plan, tmp_path):
    def check(settings: Settings) -> list[Problem]:
        return [Problem("actor.kind", settings.actor.kind, "something else")]

    error = refusal(
        make_plan,
        extra_checks=(check, lambda settings: ()),
        task_id="../x",
        pack="nonsense",
        rewarders='[{"name": "gt", "options": {"match": "sloppy"}}, {"name": "oracle"}]',
        dataset__path=str(tmp_path / "none.jsonl"),
        dataset__eval_path=str(tmp_path / "none.csv"),
    )
    assert isinstance(error, SettingsError)
    told = str(error)
    assert told.count("--task-id: got '../x'") == 1
    for part in ("actor.kind", "pack: got 'nonsense'", "rewarders.0", "rewarders.1: name", "none.jsonl", "none.csv"):
        assert part in told


def test_an_output_that_is_a_file_is_refused(make_plan, tmp_path):
    (tmp_path / "out").mkdir()
    for taken, out, task_id in (("taken", "taken", "new"), ("out/other", "out", "other")):
        (tmp_path / taken).touch()
        told = str(refusal(make_plan, out=str(tmp_path / out), task_id=task_id))
        assert "which is no directory; accepted: a directory" in told


def test_ground_truth_without_any_answer_is_refused_before_it_is_paid_for(make_plan, write_jsonl):
    path = write_jsonl([{"id": n, "prompt": f"{n}?", "solution": n} for n in range(40)], "bare.jsonl")
    for name in ("gt", "math_exact"):
        told = str(refusal(make_plan, dataset__path=str(path), rewarders=json.dumps([{"name": name}])))
        assert "got no answer in any item; accepted: answers in the field 'answer'" in told
        assert f"or no {name} rewarder" in told
    assert make_plan(dataset__path=str(path), dataset__fields__answer="solution").learn_items[0].answer
    assert make_plan(dataset__path=str(path), rewarders='[{"name": "operator:eq"}]').learn_items


def test_a_rewarder_that_can_use_no_reference_is_refused_with_what_fits(make_plan, write_jsonl):
    path = answered(write_jsonl, "spam", "ham", "eggs")
    numeric = json.dumps([{"name": "gt", "options": {"match": "numeric"}}])
    (problem,) = refusal(make_plan, dataset__path=path, rewarders=numeric).problems
    assert "40 of 40 items" in problem.given
    assert "`match: label` fits: 40 references with 3 distinct values" in problem.accepted


@pytest.mark.parametrize(
    ("answers", "options"),
    [
        (["0,15", "7,15", "12,5"], {"match": "numeric", "decimal": ","}),
        (["1,234", "12", "2,500"], {"match": "numeric"}),
        (["00042", "00017", "00900"], {"match": "text"}),
        (["A", "B", "D"], {"match": "choice"}),
        (["positive", "negative", "neutral"], {"match": "label", "labels": ["positive", "negative", "neutral"]}),
        (["12:05", "9:30", "17:45"], {"match": "label", "labels": ["12:05", "9:30", "17:45"]}),
        (["Step 1. 40 + 2\n#### 42", "none\n#### 1,080", "#### -3"], {"match": "numeric"}),
    ],
)
def test_what_auto_leaves_open_is_decided_by_the_references_and_recorded(make_plan, write_jsonl, answers, options):
    plan = make_plan(dataset__path=answered(write_jsonl, *answers), rewarders=json.dumps([{"name": "gt"}]))
    assert plan.settings.rewarders[0].options == options
    (line,) = plan.references
    assert line.startswith(f"gt ({options['match']}): 40 references")


SCHEMAS = [
    {"required": ["a"], "title": "T", "properties": {"a": {"description": "first"}}},
    {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}},
    {"additionalProperties": False, "$ref": "#/$defs/x", "anyOf": [], "enum": [], "type": "array"},
]


def test_keywords_that_json_schema_does_not_look_at_are_counted_in_the_plan(make_plan, write_jsonl):
    texts = [json.dumps(SCHEMAS[n % 3]) for n in range(40)]
    rows = [{"id": f"q{n}", "prompt": f"{n}?", "answer": "7", "metadata": {"schema": texts[n]}} for n in range(40)]
    path = str(write_jsonl(rows, "schemas.jsonl"))
    counted = "json_schema does not look at type, properties, additionalProperties, $ref, anyOf and more in 26 of 40 schemas"
    told = [text for text in make_plan(dataset__path=path, rewarders='[{"name": "json_schema"}]').warnings if "json_" in text]
    assert [text.partition(", the first at q")[0] for text in told] == [counted]
    assert told[0].endswith("; json_conforms validates against the whole schema")
    for name in ("json_conforms", "json_valid"):
        warnings = make_plan(dataset__path=path, rewarders=f'[{{"name": "{name}"}}]').warnings
        assert not any("does not look at" in text for text in warnings)
        assert any("13 of 40 items that it cannot grade" in text for text in warnings) == (name == "json_conforms")
    plain = [{**row, "metadata": {"schema": texts[0]} if n % 2 else {}} for n, row in enumerate(rows)]
    path = str(write_jsonl(plain, "plain.jsonl"))
    assert not any("json_" in text for text in make_plan(dataset__path=path, rewarders='[{"name": "json_schema"}]').warnings)


def test_rewarders_that_could_give_no_attempt_a_total_are_refused_before_it_is_paid_for(make_plan):
    for none in ('[{"name": "relative"}]', "[]", '[{"name": "gt", "weight": 0.0}]'):
        told = str(refusal(make_plan, rewarders=none))
        assert told == "rewarders: got no weight above 0 on a rewarder that scores outputs; accepted: at least one, such as gt"
    for twice in ('[{"name": "gt"}, {"name": "gt"}]', '[{"name": "judge", "options": {"rewarder_id": "gt"}}, {"name": "gt"}]'):
        assert str(refusal(make_plan, rewarders=twice)).startswith("rewarders: got gt more than once; accepted: ")
    both = '[{"name": "gt"}, {"name": "relative", "weight": 1.0}]'
    assert make_plan(rewarders=both).rewarders
    told = str(refusal(make_plan, rewarders=both, tfgrpo__enabled="off"))
    assert "rewarders: got relative counting in groups of 1, which cannot be ranked" in told
    recorded = '[{"name": "gt"}, {"name": "relative", "weight": 0.0}]'
    assert make_plan(rewarders=recorded, tfgrpo__enabled="off").group_size == 1


def test_a_share_that_seals_too_few_items_is_refused_and_few_are_warned_of(make_plan, write_jsonl):
    assert str(refusal(make_plan, dataset__sealed="0.001")).startswith("dataset.sealed: got 0.001: 0 of ")
    path = write_jsonl([{"id": n, "prompt": f"p{n}", "answer": n} for n in range(400)], "many.jsonl")
    few, many = (make_plan(dataset__path=str(path), dataset__sealed=share) for share in ("0.1", "0.6"))
    assert len(few.data.sealed) < 50 <= len(many.data.sealed)
    assert [any("prove a large gain only" in each for each in plan.warnings) for plan in (few, many)] == [True, False]


def test_more_groups_than_can_be_planned_are_refused_at_once(make_plan, tmp_path):
    many = {"tfgrpo__sample_size": "1000000", "tfgrpo__epochs": "1000", "tfgrpo__batch_size": "1000000"}
    error = refusal(make_plan, dataset__path="unset", dataset__mix=str(write_mix(tmp_path)), **many)
    assert str(error) == (
        "tfgrpo.sample_size: got 999,000,000 groups in 999 learning epochs; accepted: at most 5,000,000 groups in a run"
    )
    assert make_plan(**{**many, "tfgrpo__epochs": "3"}).forecast.calls.low > 0, "no more than there are items"


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({"tfgrpo__enabled": "off"}, "FEATURE_TFGRPO_GROUP is off"),
        ({"budget__max_calls": "20"}, "budget.max_calls is 20 and the run is likely to need "),
        ({"budget__max_tokens": "1500"}, "budget.max_tokens is 1,500 and the run is likely to need "),
        ({"budget__max_usd": "0.001"}, "budget.max_usd is 0.001 and the run is likely to need "),
        (
            {"actor__kind": "http", "actor__url": "http://127.0.0.1:9/", "budget__max_calls": "20"},
            "budget.max_calls is 20 and the run is likely to need ",
        ),
    ],
)
def test_what_is_odd_is_warned_of(make_plan, options, warning):
    assert any(warning in text for text in make_plan(**options).warnings)


def test_items_of_another_domain_than_the_pack_are_warned_of_and_caps_that_suffice_are_not(make_plan, write_jsonl):
    path = write_jsonl([{"id": n, "prompt": f"{n}?", "answer": n, "domain": "law"} for n in range(40)], "law.jsonl")
    enough = {"budget__max_calls": "100000", "budget__max_tokens": "100000000", "budget__max_usd": "1000"}
    warnings = make_plan(dataset__path=str(path), **enough).warnings
    assert "the pack 'test-pack' is for the domain 'testing'; items are of law" in warnings
    assert not any("it would stop early" in text for text in warnings)


def test_a_saturated_task_learns_on_all_items_and_sweeps_half_of_them(make_plan):
    full, half = make_plan(), make_plan(saturated=True)
    assert len(half.eval_items) == (len(full.eval_items) + 1) // 2
    assert half.cohort(1) == full.cohort(1)
    assert str(half.forecast).endswith("; half as many items in the sweep, for the task is saturated")
    assert half.forecast.calls.likely < full.forecast.calls.likely
    assert half.forecast.gain is not None
    assert half.forecast.gain.planned.swept == len(half.eval_items)
    assert (full.forecast.saturated, half.forecast.saturated) == (False, True)


def rows(
    run_id: str, night: int, rewards: tuple[float, ...], conditions: str = "c", other: tuple[float, ...] = (0.5,)
) -> list[Row]:
    """A row for each reward, against the same other side."""
    return [
        Row(
            line_id=f"{run_id}/{conditions}/{len(rewards)}/{at}", run_id=run_id, night=night, source="sweep", item_id="q",
            one=("a",), other=(), rewards_one=(reward,), rewards_other=other, conditions=conditions, simulated=True,
            created_at=utc_now(),
        )
        for at, reward in enumerate(rewards)
    ]  # fmt: skip


def test_after_a_night_the_gain_is_that_of_the_noise_of_the_last_two(make_plan):
    before = make_plan()
    paths = before.paths
    write_state(paths.state, "t", Library(()), last_run="n3")
    run = paths.run("n3")
    run.root.mkdir(parents=True)
    manifest = {"schema_version": 1, "model": "simulated", "simulated": True, "ledger": {"calls": before.forecast.calls.low}}
    run.manifest.write_text(json.dumps(manifest | {"forecast": dataclasses.asdict(before.forecast)}), encoding="utf-8")
    lots = (0.0, 1.0) * 50
    CreditFile(paths.credit).append([*rows("n3", 3, (0.5,), other=()), *rows("n1", 1, lots)])
    assert make_plan().forecast.gain == before.forecast.gain, "rows of one side and older nights say nothing of the noise"
    narrow = (0.4, 0.6) * 30
    CreditFile(paths.credit).append([*rows("n2", 2, lots, "old"), *rows("n2", 2, narrow), *rows("n3", 3, narrow)])
    after = make_plan()
    assert after.forecast.calls.likely == before.forecast.calls.low
    low, high = after.forecast.gain.one_night
    assert low == high < before.forecast.gain.one_night[0]
    assert make_plan(model__name="m", model__base_url="http://h/v1").forecast.gain == before.forecast.gain


def test_credit_with_a_line_that_is_none_is_refused_before_a_night_begins(make_plan):
    credit = make_plan().paths.credit
    LineFile(credit).add([{"line_id": "x", "kind": "of a later version"}])
    told = str(refusal(make_plan, pack="no-such-pack"))
    assert "the task's credit: got" in told
    assert f"{credit}: line 1 is not a line of credit" in told
    assert "no-such-pack" in told, "with all other problems"


PRICE = {"input": 1.0, "output": 2.0}
REAL = {"name": "m", "base_url": "http://localhost:1/v1"}


def settings(*rewarders: dict[str, Any], **sections: Any) -> Settings:
    return Settings.model_validate({"rewarders": ({"name": "gt"}, *rewarders), **sections})


NESTED = {
    "name": "composite",
    "options": {
        "parts": [
            {"name": "judge", "options": {"model": "a"}},
            {"name": "judge", "weight": 0, "options": {"model": "unused"}},
            {"name": "composite", "options": {"parts": [{"name": "relative", "options": {"judge": {"model": "b"}}}]}},
        ],
        "gates": [{"name": "judge", "options": {"model": "a", "rewarder_id": "gate"}}],
    },
}
MALFORMED = [
    {"name": "composite", "options": {"parts": 3, "gates": ["judge", {"name": "judge", "options": 3}]}},
    {"name": "relative", "options": {"judge": True}},
    {"name": "judge", "options": {"model": 3}},
    {"name": "mine:judge", "options": {"model": "not ours"}},
]


def test_models_of_nested_judges_are_found():
    assert choose_models(settings(NESTED, model=REAL)).judges == ("a", "b")
    assert choose_models(settings(*MALFORMED, model={**REAL, "judge": {"name": "r"}})).judges == ("r",)


def test_a_cap_in_dollars_needs_the_price_of_a_judge():
    prices = {"m": PRICE, "b": PRICE}
    with pytest.raises(SettingsError, match="no price for 'a'"):
        validate_tfgrpo_config(settings(NESTED, model={**REAL, "prices": prices}, budget={"max_usd": 5.0}))
    validate_tfgrpo_config(settings(NESTED, model={**REAL, "prices": {**prices, "a": PRICE}}, budget={"max_usd": 5.0}))


@pytest.fixture
def ahead(make_items, pack):
    def make(*judges: Any, **sections: Any) -> Forecast:
        tfgrpo = {"enabled": True, "group_size": 4, "epochs": 2, "sample_size": 10, "batch_size": 10}
        chosen = Settings.model_validate({"tfgrpo": tfgrpo, "gate": {"group_size": 3}, **sections})
        cohorts = [draw_cohort(make_items(10), epoch=1, settings=chosen.tfgrpo)]
        return forecast(
            chosen,
            models=choose_models(chosen),
            pack=pack,
            cohorts=cohorts,
            evaluation=make_items(5, "e"),
            judges=lambda size: [load for judge in judges for load in judge.judge_loads(size)],
        )

    return make


def test_calls_of_judges_follow_the_formula(ahead):
    bare = ahead()
    voting = ahead(JudgeRewarder(JudgeOptions(votes=3, retries=1)))
    assert voting.calls.low - bare.calls.low == 3 * 10  # the least is a run that learns nothing, and pays no sweep
    assert voting.calls.high - bare.calls.high == 3 * 2 * (4 * 10 + 2 * 3 * 5)
    pairs = ahead(PairwiseRewarder(JudgeOptions(votes=2, retries=0)))
    assert pairs.calls.low == bare.calls.low
    assert pairs.calls.high - bare.calls.high == 2 * 2 * (6 * 10 + 2 * 3 * 5)


def test_a_longer_rubric_or_reply_raises_the_tokens_and_a_price_is_that_of_the_judge(ahead):
    short, long = (ahead(JudgeRewarder(JudgeOptions(rubric=text))) for text in ("Be right.", "Be right. " * 500))
    assert long.prompt_tokens.low > short.prompt_tokens.low
    assert long.prompt_tokens.high > short.prompt_tokens.high
    terse = ahead(JudgeRewarder(JudgeOptions(max_tokens=10)))
    assert terse.completion_tokens.high < ahead(JudgeRewarder()).completion_tokens.high
    model = {**REAL, "prices": {"m": PRICE, "dear": {"input": 100.0, "output": 100.0}}}
    own, dear = (ahead(JudgeRewarder(JudgeOptions(model=name)), model=model) for name in (None, "dear"))
    assert own.usd is not None
    assert dear.usd is not None
    assert dear.usd.high > 2 * own.usd.high
    assert ahead(JudgeRewarder(JudgeOptions(model="nobody")), model=model).usd is None
