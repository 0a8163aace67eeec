"""The forecast's bounds are the formula of an epoch, and they move with every setting they depend on."""

import dataclasses
import json
import math
import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.pipelines.cohorts import draw_cohort
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.data import Cohort, draw_cohorts, draw_evaluation, pair_datasets, split_items
from tfgrpo.pipelines.plan.forecast import Forecast, VisibleGain, forecast
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.tree import LearningSettings, Settings
from tfgrpo.rewarders.statistics.credit import MIXED, SETTLED, PlannedNight, gains_in_force
from tfgrpo.stores.errors import DatasetError


@pytest.fixture
def ahead(make_items, pack, monkeypatch):
    """Return the forecast of settings, and of constants of the learning loop, whose names are in capitals."""

    def make(items: int = 100, evaluation: int = 30, **sections: Any) -> Forecast:
        for name in [each for each in sections if each.isupper()]:
            monkeypatch.setattr(LearningSettings, name, sections.pop(name))
        chosen = Settings.model_validate({**sections, "tfgrpo": {"enabled": True, **sections.get("tfgrpo", {})}})
        learn = make_items(items)
        cohorts = [draw_cohort(learn, epoch=epoch, settings=chosen.tfgrpo) for epoch in range(1, chosen.tfgrpo.epochs)]
        models = choose_models(chosen)
        return forecast(chosen, models=models, pack=pack, cohorts=cohorts, evaluation=make_items(evaluation, "e"))

    return make


def test_calls_follow_the_formula(ahead):
    calm = {"group_size": 5, "batch_size": 50}
    found = ahead(
        MAX_REPAIRS=0, LESSONS_PER_GROUP=1, tfgrpo=calm, actor={"kind": "tools", "max_turns": 3}, gate={"group_size": 7}
    )
    rollouts, sweep, batches = 2 * 100 * 5, 30 * 7, 2 * 2
    reflected = 2 * 2 * 100  # two contrasts of each group
    asked = 2 * batches  # a curation and what recurs
    shortened, digested = reflected + batches * (50 + 1), 2 * reflected
    assert found.calls.low == rollouts  # nothing learned, so nothing to sweep
    assert found.calls.high == 3 * rollouts + 2 * 3 * sweep + reflected + digested + asked + shortened


def test_an_unknown_price_is_unknown_and_a_known_one_is_money(ahead):
    real = {"name": "m", "base_url": "http://h/v1"}
    unknown = ahead(model=real)
    assert (unknown.usd, unknown.simulated) == (None, False)
    assert "price unknown" in str(unknown)
    prices = {"m": {"input": 1.0, "output": 2.0}}
    known = ahead(model={**real, "prices": prices})
    assert known.usd is not None
    assert known.usd.high == pytest.approx((known.prompt_tokens.high + 2 * known.completion_tokens.high) / 1e6)
    assert ahead(model={**real, "reflection": {"name": "r"}, "prices": prices}).usd is None
    both = ahead(model={**real, "reflection": {"name": "r"}, "prices": {**prices, "r": {"input": 0.0, "output": 0.0}}})
    assert both.usd is not None
    assert both.usd.high < known.usd.high


def test_the_upper_bound_of_prompts_includes_what_every_turn_sends_again(ahead, pack):
    def most(text: str) -> int:
        return 40 + math.ceil(len(text) / 2.5)

    found = ahead(items=1, evaluation=0, tfgrpo={"enabled": False, "epochs": 2}, actor={"kind": "tools", "max_turns": 8})
    first = most(pack.text) + most("Question q 0?")
    lessons = most(pack.templates["lessons"]) + 8 * (math.ceil(280 / 2.5) + 4)
    again = sum(range(8)) * (1024 + 1000)  # turn by turn, the replies and the results of tools before it
    assert found.prompt_tokens.high == 8 * (first + lessons) + again


def run_before(found: Forecast, **spent: int) -> dict[str, Any]:
    return {"forecast": json.loads(json.dumps(dataclasses.asdict(found))), "ledger": spent}


def test_a_run_with_unknown_spending_does_not_correct_the_forecast(ahead):
    found = ahead()
    assert found.after(run_before(found, calls=600, unmeasured_attempts=3)) == found
    unpriced = found.after(run_before(found, calls=600, unknown_price_calls=600))
    assert unpriced.usd == found.usd
    assert unpriced.calls != found.calls


def test_the_gain_that_comes_into_force_is_one_sentence_and_three_pairs_of_figures(ahead):
    found = ahead(tfgrpo={"group_size": 4}, gate={"group_size": 2})
    assert found.gain is not None
    assert re.fullmatch(
        r"a total gain of [\d.]+ to [\d.]+ points over no lessons would be in force after one night with 80 % probability, "
        r"[\d.]+ to [\d.]+ within 5, [\d.]+ to [\d.]+ within 10",
        str(found.gain),
    )
    stored = json.loads(json.dumps(dataclasses.asdict(found)))["gain"]
    for name, nights in (("one_night", 1), ("five_nights", 5), ("ten_nights", 10)):
        planned = PlannedNight(groups=200, halves=(2, 2), swept=30, attempts=2)
        assert stored[name] == [gains_in_force(planned, noise, (nights,))[0] for noise in (SETTLED, MIXED)]
    assert ahead(evaluation=0).gain is None
    hopeless = VisibleGain.of(PlannedNight(groups=4, halves=(1, 1), swept=1, attempts=1))
    assert str(hopeless).startswith("a total gain of over 100 points over no lessons would be in force after one night")
    known = VisibleGain.of(hopeless.planned, (0.02, 0.02))
    assert " to " not in str(known), "of known noise"
    assert str(dataclasses.replace(known, one_night=(1.0, 1.0))).startswith("a total gain of 1 point over no lessons")


def test_the_split_of_known_ids_never_changes(make_items):
    twenty, hundred = ([item.id for item in split_items(make_items(count), 0.3).held_out] for count in (20, 100))
    assert twenty == ["q-15", "q-17", "q-19"] == [name for name in hundred if int(name.split("-")[1]) < 20]


@settings(max_examples=15)
@given(ids=st.lists(st.text(min_size=1), min_size=30, max_size=60, unique=True), seed=st.integers())
def test_order_plays_no_part_and_sides_overlap_in_neither_items_nor_texts(ids, seed):
    items = [Item(id=name, prompt=f"Q  {number // 2} \n?", answer="") for number, name in enumerate(ids)]
    split = split_items(items, 0.5)
    assert not {item.prompt for item in split.learn} & {item.prompt for item in split.held_out}
    shuffled = list(items)
    random.Random(seed).shuffle(shuffled)
    again = split_items(shuffled, 0.5)
    assert {item.id for item in split.held_out} == {item.id for item in again.held_out}
    assert not {item.id for item in split.learn} & {item.id for item in split.held_out}
    assert len(split.learn) + len(split.held_out) == len(items)


def test_too_few_items_are_refused_with_the_numbers(make_items):
    with pytest.raises(DatasetError, match=r"dataset: got 1 item, \d of them held out; accepted: at least 1 to learn on"):
        split_items(make_items(1), 0.3)
    with pytest.raises(DatasetError, match="got 3 items to learn on and 1 held out"):
        pair_datasets(make_items(3), make_items(1, "e"))


def test_held_out_items_that_are_learned_on_are_refused_by_id_and_by_text(make_items):
    learn = make_items(5)
    held_out = [
        Item(id="q-1", prompt="Something else", answer="", source="e.jsonl:1"),
        Item(id="new", prompt=" Question  q 2?", answer="", source="e.jsonl:2"),
        Item(id="fine", prompt="Unheard of", answer="", source="e.jsonl:3"),
    ]
    with pytest.raises(DatasetError) as caught:
        pair_datasets(learn, held_out)
    assert [str(problem) for problem in caught.value.problems] == [
        "e.jsonl:1: got the id 'q-1', also at q.jsonl:2; accepted: held-out items that are not learned on",
        "e.jsonl:2: got the text of item 'q-2' at q.jsonl:3; accepted: held-out items that are not learned on",
    ]


def learning(**knobs: Any) -> LearningSettings:
    return LearningSettings(**{"sample_size": 10, "batch_size": 4, **knobs})


def ids(cohort: Cohort) -> list[str]:
    return [item.id for item in cohort.items]


def test_epochs_differ_and_cover_the_data_before_any_item_repeats(make_items):
    items = list(make_items(40))
    epochs = [ids(draw_cohort(items, epoch=epoch, settings=learning())) for epoch in range(1, 6)]
    assert {name for epoch in epochs[:4] for name in epoch} == {item.id for item in items}
    assert [ids(each) for each in draw_cohorts(items, epochs=range(1, 6), settings=learning())] == epochs
    assert len({tuple(epoch) for epoch in epochs}) == 5
    random.Random(5).shuffle(items)
    assert ids(draw_cohort(items, epoch=2, settings=learning())) == epochs[1], "in any order of the file"


@settings(max_examples=25)
@given(count=st.integers(1, 30), size=st.integers(1, 30), seed=st.integers(0, 99), epochs=st.integers(1, 6))
def test_no_item_repeats_in_an_epoch_and_counts_stay_level(count, size, seed, epochs):
    items = [Item(id=f"{n:02}", prompt=str(n), answer="") for n in range(count)]
    seen = dict.fromkeys((item.id for item in items), 0)
    for epoch in range(1, epochs + 1):
        cohort = draw_cohort(items, epoch=epoch, settings=learning(sample_size=size, seed=seed))
        assert len(set(ids(cohort))) == len(cohort.items) == min(size, count)
        assert set(cohort.draws) == {0}
        for name in ids(cohort):
            seen[name] += 1
    assert max(seen.values()) - min(seen.values()) <= 2


def test_the_metadata_records_the_draw(make_items):
    cohort = draw_cohort(make_items(7), epoch=2, settings=learning(seed=3))
    assert json.loads(json.dumps(cohort.metadata)) == {
        "purpose": "learn",
        "epoch": 2,
        "seed": 3,
        "night": 0,
        "with_replacement": False,
        "population": 7,
        "requested": 10,
        "drawn": 7,
        "distinct": 7,
        "batch_sizes": [4, 3],
        "item_ids": [item.id for batch in cohort.batches for item in batch],
        "assignments": {"min_instances": 1, "max_instances": 1, "target": 1, "group_index": [0]},
    }


def test_the_sweep_takes_every_held_out_item_or_a_seeded_sample(make_items):
    few = draw_evaluation(make_items(6), settings=learning())
    assert sorted(ids(few)) == [f"q-{n}" for n in range(6)]
    many, other, later = (
        draw_evaluation(make_items(60), settings=learning(**knobs)) for knobs in ({}, {"seed": 1}, {"night": 1})
    )
    assert len(set(ids(many))) == 10
    assert ids(many) not in (ids(other), ids(later))
    assert (many.metadata["purpose"], many.metadata["epoch"]) == ("evaluation", 3)
