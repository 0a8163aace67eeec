"""The worlds: what their items hold, and that lessons do there what they are said to do."""

import json
import random
import statistics
from functools import cache
from pathlib import Path

import pytest

from benchmarks.generated_items import FILES, LEDGER, POWL, data_file, differ, generate_items, hit_sets
from benchmarks.powl.world import ITEMS, MISTAKES
from tests.support.models.players import attempt, success, with_lessons
from tfgrpo.rewarders.powl import footprint_similarity, labels_of, parse_text
from tfgrpo.stores.errors import PipelineError
from tfgrpo.tasks.models.simulated.puzzle import Solver, answer_of, open_world

ROOT = Path(__file__).resolve().parents[4]


def read(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@cache
def held_out():
    return read(ITEMS[1])


@cache
def items_of(name):
    """Every item of a world that ships."""
    return [*read(ITEMS[0]), *held_out()] if name == POWL else read(ROOT / FILES[name][1])


def some_items(name):
    return held_out() if name == POWL else items_of(name)[:160]


learnable = pytest.mark.parametrize("name", ["arithmetic", LEDGER, POWL])


def advice(name, seed, *, good=True):
    rng = random.Random(seed)
    pitfalls = open_world(name).pitfalls.values()
    return [rng.choice(pitfall.good_advice if good else pitfall.bad_advice) for pitfall in pitfalls]


def scripted(name, prompt, hit=frozenset()):
    return open_world(name).recognise(prompt).solved(Solver(hit))


@pytest.mark.parametrize("name", FILES)
def test_the_shipped_data_are_what_the_generator_makes(name):
    assert (ROOT / FILES[name][1]).read_text("utf-8") == data_file(name)
    assert generate_items(name, 5, 1) != generate_items(name, 5, 2)
    assert generate_items(name, 5, 1) == generate_items(name, 9, 1)[:5]
    assert {item["domain"] for item in items_of(name)} == {open_world(name).data["domain"]}


@pytest.mark.parametrize("name", [*FILES, POWL])
def test_every_item_is_recognised_within_any_text_and_solved_rightly(name):
    items = items_of(name)
    assert len({item["id"] for item in items}) == len({item["prompt"] for item in items}) == len(items)
    for item in items:
        assert answer_of(scripted(name, f"Be brief.\n\n{item['prompt']}\nThanks!")) == item["answer"]
    assert open_world(name).recognise("What is the capital of France?") is None


@pytest.mark.parametrize("name", ["arithmetic", LEDGER])
def test_every_way_to_go_wrong_shows_in_the_answer_and_in_the_steps(name):
    pitfalls = open_world(name).pitfalls
    for item in some_items(name):
        hit_names = item["metadata"]["pitfalls"]
        assert 1 <= len(hit_names) <= 2
        for hit in hit_sets(hit_names):
            text = scripted(name, item["prompt"], hit)
            assert differ(item["answer"], answer_of(text))
            assert any(phrase in text for each in hit for phrase in pitfalls[each].shown_hit)
    for pitfall in pitfalls:
        assert sum(pitfall in item["metadata"]["pitfalls"] for item in items_of(name)) >= 25


def test_every_way_to_model_a_process_wrongly_shows_in_the_score_and_in_the_steps():
    pitfalls = open_world(POWL).pitfalls
    for item in items_of(POWL):
        right = parse_text(item["answer"])
        names = [mistake.name for mistake in MISTAKES if mistake.occasions(right)]
        assert names == item["metadata"]["pitfalls"]
        assert 1 <= len(names) <= 2
        for hit in hit_sets(names):
            text = scripted(POWL, item["prompt"], hit)
            model = parse_text(text)
            assert sorted(labels_of(model)) == item["metadata"]["labels"]
            assert footprint_similarity(model, right, mode="direct") < 0.95
            assert all(pitfalls[name].shown_hit[0] in text for name in hit)
    for name in pitfalls:
        for items in (items_of(POWL)[: -len(held_out())], held_out()):
            assert len({item["metadata"]["kind"] for item in items if name in item["metadata"]["pitfalls"]}) >= 4


@pytest.mark.parametrize(("name", "said"), [
    ("flat", "--world"), ("no.such.module:WORLD", "No module named"), ("benchmarks.ledger.world:TOOLS", "a World"),
])  # fmt: skip
def test_what_is_no_world_is_refused(name, said):
    with pytest.raises(PipelineError, match=said):
        open_world(name)


# What lessons do


@learnable
def test_right_lessons_help_much_wrong_ones_harm_and_heat_makes_attempts_worse(name):
    world, items = open_world(name), some_items(name)[:100]
    plain = success(world, items, tries=4)
    assert 0.3 < plain < 0.55
    system = with_lessons(advice(name, 0))
    assert 0.75 < success(world, items, system) <= 0.97
    assert success(world, items, system, 0.7) > success(world, items, "", 0.7) + 0.2
    assert success(world, items, with_lessons(advice(name, 3, good=False))) < plain - 0.2
    rates = [success(world, items, temperature=heat, tries=4) for heat in (0.0, 2.0)]
    assert rates[0] > rates[1]


def test_in_the_unlearnable_world_no_text_changes_anything_and_habits_show_without_effect():
    world, items = open_world("unlearnable"), items_of("unlearnable")
    systems = ["", *(with_lessons(advice("unlearnable", 4, good=good)) for good in (True, False))]
    rates = [success(world, items, system, heat, tries=4) for system in systems for heat in (0.0, 0.7)]
    assert max(rates) - min(rates) < 0.06
    assert 0.38 < statistics.mean(rates) < 0.52
    texts = [(attempt(world, i["prompt"], "", 0.7, 0, n), i["answer"]) for i in items for n in range(8)]
    for habit in world.pitfalls.values():
        sides = [
            [answer_of(text) == answer for text, answer in texts if any(phrase in text for phrase in phrases)]
            for phrases in (habit.shown_avoided, habit.shown_hit)
        ]
        assert min(map(len, sides)) > 200
        assert abs(statistics.mean(sides[0]) - statistics.mean(sides[1])) < 0.1
