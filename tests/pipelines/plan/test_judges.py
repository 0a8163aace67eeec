"""Judges in a pipeline file: their models need prices, their calls are foreseen, their options are checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.pipelines.cohorts import draw_cohort
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.forecast import Forecast, forecast
from tfgrpo.pipelines.plan.plan import build_plan
from tfgrpo.pipelines.settings.guardrails import validate_tfgrpo_config
from tfgrpo.pipelines.settings.layers import resolve_settings
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.rewarders.judge.judge import JudgeRewarder, PairwiseRewarder
from tfgrpo.rewarders.judge.model import JudgeOptions
from tfgrpo.stores.errors import ConfigError, SettingsError

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


def test_models_of_nested_judges_are_found() -> None:
    assert choose_models(settings(NESTED, model=REAL)).judges == ("a", "b")
    assert choose_models(settings(*MALFORMED, model={**REAL, "judge": {"name": "r"}})).judges == ("r",)


def test_a_cap_in_dollars_needs_the_price_of_a_judge() -> None:
    prices = {"m": PRICE, "b": PRICE}
    with pytest.raises(SettingsError, match="no price for 'a'"):
        validate_tfgrpo_config(settings(NESTED, model={**REAL, "prices": prices}, budget={"max_usd": 5.0}))
    known = {**prices, "a": PRICE}
    validate_tfgrpo_config(settings(NESTED, model={**REAL, "prices": known}, budget={"max_usd": 5.0}))


def test_a_judge_without_a_model_uses_the_reflection_model() -> None:
    real = choose_models(settings(NESTED, model={**REAL, "reflection": {"name": "r"}}))
    assert real.in_use == ("m", "r", "a", "b")
    assert (real.judge(None), real.judge("a")) == ("r", "a")
    dry = choose_models(settings(NESTED, dry_run=True))
    assert (dry.in_use, dry.judge("a")) == (("simulated",), "simulated")


@pytest.fixture
def ahead(make_items: Callable[..., tuple[Item, ...]], pack: LoadedPack) -> Callable[..., Forecast]:
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


def test_calls_of_judges_follow_the_formula(ahead: Callable[..., Forecast]) -> None:
    bare = ahead()
    voting = ahead(JudgeRewarder(JudgeOptions(votes=3, retries=1)))
    assert voting.calls.low - bare.calls.low == 3 * 10  # the least is a run that learns nothing, and pays no sweep
    assert voting.calls.high - bare.calls.high == 3 * 2 * (4 * 10 + 2 * 3 * 5)
    pairs = ahead(PairwiseRewarder(JudgeOptions(votes=2, retries=0)))
    assert pairs.calls.low == bare.calls.low
    assert pairs.calls.high - bare.calls.high == 2 * 2 * (6 * 10 + 2 * 3 * 5)


def test_a_longer_rubric_or_reply_raises_the_tokens_and_a_price_is_that_of_the_judge(ahead: Callable[..., Forecast]) -> None:
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


def test_the_plan_foresees_its_judges_and_refuses_wrong_ones(tmp_path: Any) -> None:
    def plan(*rewarders: str) -> Any:
        given = ", ".join(('{"name": "gt"}', *rewarders))
        cli = {"dry_run": "on", "tfgrpo.enabled": "on", "out": str(tmp_path), "rewarders": f"[{given}]"}
        return build_plan(resolve_settings(cli=cli, env={}), {})

    judge = '{"name": "relative", "weight": 0, "options": {"judge": {"votes": 1}}}'
    assert plan(judge).forecast.calls.high > plan().forecast.calls.high
    with pytest.raises(ConfigError, match=r"rewarders.1: relative: options.judge.votes"):
        plan(judge.replace('"votes": 1', '"votes": 0'))
