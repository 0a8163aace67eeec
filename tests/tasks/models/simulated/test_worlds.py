"""The worlds: what their items hold, and that lessons do there what they are said to do."""

from __future__ import annotations

import json
import random
import statistics
from functools import cache
from pathlib import Path

import pytest

from benchmarks.generated_items import SHIPPED, data_file, differ, generate_items, hit_sets
from tests.support.models.players import attempt, success, with_lessons
from tfgrpo.pipelines.datasets.datasets import shipped_dataset, shipped_held_out
from tfgrpo.rewarders.powl import footprint_similarity, labels_of, parse_text
from tfgrpo.tasks.models.simulated.worlds.ledger import LedgerQuestion
from tfgrpo.tasks.models.simulated.worlds.powl import MISTAKES
from tfgrpo.tasks.models.simulated.worlds.puzzle import (
    Dialogue,
    PuzzleResult,
    Solver,
    answer_of,
    open_world,
    world_data,
)

ROOT = Path(__file__).resolve().parents[4]
BY_NAME = {mistake.name: mistake for mistake in MISTAKES}


def read(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@cache
def items_of(name):
    """Every item of a world."""
    if name == "powl":
        return [*read(shipped_dataset(name)), *held_out()]
    return generate_items(name, SHIPPED[name])


@cache
def held_out():
    return read(shipped_held_out("powl"))


def some_items(name):
    return held_out() if name == "powl" else items_of(name)[:160]


learnable = pytest.mark.parametrize("name", ["arithmetic", "ledger-tools", "powl"])


def advice(name, seed, *, good=True):
    rng = random.Random(seed)
    pitfalls = open_world(name).pitfalls.values()
    return [rng.choice(pitfall.good_advice if good else pitfall.bad_advice) for pitfall in pitfalls]


def scripted(name, prompt, hit=frozenset()):
    return open_world(name).puzzle.recognise(prompt).solved(Solver(hit))


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_data_are_what_the_generator_makes(name):
    assert (ROOT / "pipelines" / "data" / f"{name}.jsonl").read_text("utf-8") == data_file(name)
    assert generate_items(name, 5, 1) != generate_items(name, 5, 2)
    assert generate_items(name, 5, 1) == generate_items(name, 9, 1)[:5]
    assert {item["domain"] for item in items_of(name)} == {world_data(name)["domain"]}


@pytest.mark.parametrize("name", [*SHIPPED, "powl"])
def test_every_item_is_recognised_within_any_text_and_solved_rightly(name):
    items = items_of(name)
    assert len({item["id"] for item in items}) == len({item["prompt"] for item in items}) == len(items)
    for item in items:
        assert answer_of(scripted(name, f"Be brief.\n\n{item['prompt']}\nThanks!")) == item["answer"]
    assert open_world(name).puzzle.recognise("What is the capital of France?") is None


@pytest.mark.parametrize("name", ["arithmetic", "ledger-tools"])
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
    pitfalls = open_world("powl").pitfalls
    for item in items_of("powl"):
        right = parse_text(item["answer"])
        names = [mistake.name for mistake in MISTAKES if mistake.occasions(right)]
        assert names == item["metadata"]["pitfalls"]
        assert 1 <= len(names) <= 2
        for hit in hit_sets(names):
            text = scripted("powl", item["prompt"], hit)
            model = parse_text(text)
            assert sorted(labels_of(model)) == item["metadata"]["labels"]
            assert footprint_similarity(model, right, mode="direct") < 0.95
            assert all(pitfalls[name].shown_hit[0] in text for name in hit)
    for name in pitfalls:
        for items in (items_of("powl")[: -len(held_out())], held_out()):
            assert len({item["metadata"]["kind"] for item in items if name in item["metadata"]["pitfalls"]}) >= 4


@pytest.mark.parametrize(
    ("name", "model", "made"),
    [
        ("any_order", "SEQUENCE(a, PARALLEL(b, c))", "SEQUENCE(a, SEQUENCE(b, c))"),
        ("any_order", "SEQUENCE(a, b)", None),
        ("optional_step", "SEQUENCE(a, XOR(b, SILENT()))", "SEQUENCE(a, b)"),
        ("optional_step", "XOR(a, SILENT(), b)", "XOR(a, b)"),
        ("optional_step", "XOR(SILENT(), SILENT())", None),
        ("rework_loop", "LOOP(SEQUENCE(a, b), c)", "SEQUENCE(a, b, XOR(c, SILENT()))"),
        ("rework_loop", "SEQUENCE(LOOP(a, SILENT()), b)", "SEQUENCE(a, b)"),
        ("shared_end", "SEQUENCE(a, XOR(b, c), d, e)", "SEQUENCE(a, XOR(b, SEQUENCE(c, d)), e)"),
        ("shared_end", "SEQUENCE(XOR(a, SEQUENCE(b, c)), d)", "XOR(a, SEQUENCE(b, c, d))"),
        ("shared_end", "SEQUENCE(XOR(a, b), XOR(c, d), e)", "SEQUENCE(XOR(a, SEQUENCE(b, XOR(c, d))), e)"),
        ("shared_end", "SEQUENCE(a, XOR(b, c))", None),
        ("shared_end", "SEQUENCE(XOR(b, SILENT()), a)", None),
        ("only_some_wait", "PARTIAL_ORDER(a, b, c, ORDER(0->1))", "PARALLEL(a, b, c)"),
    ],
)
def test_each_mistake_rewrites_the_tree_where_there_is_an_occasion(name, model, made):
    right = parse_text(model)
    assert BY_NAME[name].made_in(right) == parse_text(made or model)
    assert bool(BY_NAME[name].occasions(right)) is (made is not None)


@pytest.mark.parametrize("result", ["error: no such account", "[]", "[1]", '{"a": 1}', '[{"kind": "fee"}]', "null"])
def test_a_failed_tool_gives_a_reply_not_an_error(result):
    tools = frozenset({"accounts_of", "ledger_entries", "add"})
    question = LedgerQuestion.recognise("How many euros does customer Aldana-17 owe in all, as the books have it?")
    accounts = PuzzleResult("accounts_of", result)
    text = question.attempt(Solver(), Dialogue(("Step 1: x",), (accounts,), tools)).text
    assert text.startswith("SIMULATED: a tool gave no usable result")
    entries = (PuzzleResult("accounts_of", '["AB-1234-1"]'), PuzzleResult("ledger_entries", result))
    turn = question.attempt(Solver(), Dialogue((), entries, tools))
    assert turn.calls or "no usable result" in turn.text
    total = (*entries, PuzzleResult("add", result.replace("null", "NaN")))
    assert "no usable result" in question.attempt(Solver(), Dialogue((), total, tools)).text


# What lessons do


@learnable
def test_right_lessons_help_much_wrong_ones_harm_and_heat_makes_attempts_worse(name):
    world, items = open_world(name), some_items(name)
    plain = success(world, items, tries=4)
    assert 0.3 < plain < 0.55
    for seed in range(2):
        system = with_lessons(advice(name, seed))
        assert 0.75 < success(world, items, system, seed=seed) <= 0.97
        assert success(world, items, system, 0.7, seed) > success(world, items, "", 0.7, seed) + 0.2
    assert success(world, items, with_lessons(advice(name, 3, good=False))) < plain - 0.2
    rates = [success(world, items, temperature=heat, tries=4) for heat in (0.0, 2.0)]
    assert rates[0] > rates[1]


def test_in_the_unlearnable_world_no_text_changes_anything_and_habits_show_without_effect():
    world, items = open_world("unlearnable"), items_of("unlearnable")
    systems = ["", *(with_lessons(advice("unlearnable", 4, good=good)) for good in (True, False))]
    rates = [success(world, items, system, heat, tries=8) for system in systems for heat in (0.0, 0.7)]
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
