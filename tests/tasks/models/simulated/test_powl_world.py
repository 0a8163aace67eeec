"""The world of process models: its mistakes are of structure, each shows, and lessons on one kind of business help another."""

from __future__ import annotations

import json
import random
import statistics

import pytest

from benchmarks.generated_items import hit_sets
from tests.support.models.players import success, with_lessons
from tfgrpo.pipelines.datasets.datasets import shipped_dataset, shipped_held_out
from tfgrpo.rewarders.powl import footprint_similarity, labels_of, parse_text, to_text
from tfgrpo.tasks.models.simulated.reflector import ReflectionAsk, reflect
from tfgrpo.tasks.models.simulated.roles import JudgementAsk, judge
from tfgrpo.tasks.models.simulated.worlds.data import Advice
from tfgrpo.tasks.models.simulated.worlds.powl import MISTAKES
from tfgrpo.tasks.models.simulated.worlds.puzzle import Dialogue, Solver, answer_of, open_world

WORLD = open_world("powl")
BY_NAME = {mistake.name: mistake for mistake in MISTAKES}
PITFALLS = WORLD.pitfalls


def read(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


LEARN = read(shipped_dataset("powl"))
HELD_OUT = read(shipped_held_out("powl"))
ITEMS = LEARN + HELD_OUT


def scripted(prompt, hit=frozenset()):
    return WORLD.puzzle.recognise(prompt).attempt(Solver(hit), Dialogue()).text


@pytest.mark.parametrize(
    ("name", "model", "made"),
    [
        ("any_order", "SEQUENCE(a, PARALLEL(b, c))", "SEQUENCE(a, SEQUENCE(b, c))"),
        ("optional_step", "SEQUENCE(a, XOR(b, SILENT()))", "SEQUENCE(a, b)"),
        ("optional_step", "XOR(a, SILENT(), b)", "XOR(a, b)"),
        ("rework_loop", "LOOP(SEQUENCE(a, b), c)", "SEQUENCE(a, b, XOR(c, SILENT()))"),
        ("rework_loop", "SEQUENCE(LOOP(a, SILENT()), b)", "SEQUENCE(a, b)"),
        ("shared_end", "SEQUENCE(a, XOR(b, c), d, e)", "SEQUENCE(a, XOR(b, SEQUENCE(c, d)), e)"),
        ("shared_end", "SEQUENCE(XOR(a, SEQUENCE(b, c)), d)", "XOR(a, SEQUENCE(b, c, d))"),
        ("shared_end", "SEQUENCE(XOR(a, b), XOR(c, d), e)", "SEQUENCE(XOR(a, SEQUENCE(b, XOR(c, d))), e)"),
        ("only_some_wait", "PARTIAL_ORDER(a, b, c, ORDER(0->1))", "PARALLEL(a, b, c)"),
    ],
)
def test_each_mistake_rewrites_the_tree_in_its_own_way(name, model, made):
    right, wrong = parse_text(model), parse_text(made)
    assert BY_NAME[name].made_in(right) == wrong
    assert BY_NAME[name].occasions(right)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("any_order", "SEQUENCE(a, b)"),
        ("optional_step", "XOR(a, b)"),
        ("optional_step", "XOR(SILENT(), SILENT())"),
        ("shared_end", "SEQUENCE(a, XOR(b, c))"),
        ("shared_end", "SEQUENCE(XOR(b, SILENT()), a)"),
    ],
)
def test_without_an_occasion_a_model_is_unchanged(name, model):
    right = parse_text(model)
    assert BY_NAME[name].made_in(right) == right
    assert BY_NAME[name].occasions(right) == ()


def test_every_item_is_recognised_within_any_text_and_modelled_rightly():
    for item in ITEMS:
        assert answer_of(scripted(f"Be brief.\n\n{item['prompt']}\nThanks!")) == item["answer"]
    assert WORLD.puzzle.recognise("What is the capital of France?") is None


def test_every_way_to_go_wrong_shows_in_the_score_and_in_the_steps():
    for item in ITEMS:
        right = parse_text(item["answer"])
        names = [mistake.name for mistake in MISTAKES if mistake.occasions(right)]
        assert names == item["metadata"]["pitfalls"]
        assert 1 <= len(names) <= 2
        for hit in hit_sets(names):
            text = scripted(item["prompt"], hit)
            model = parse_text(text)
            assert sorted(labels_of(model)) == item["metadata"]["labels"]
            assert footprint_similarity(model, right, mode="direct") < 0.95
            assert all(PITFALLS[name].shown_hit[0] in text for name in hit)


@pytest.mark.parametrize("items", [LEARN, HELD_OUT], ids=["learn", "held-out"])
def test_every_pitfall_turns_up_in_several_kinds_of_business(items):
    for pitfall in WORLD.pitfalls.values():
        kinds = {item["metadata"]["kind"] for item in items if pitfall.name in item["metadata"]["pitfalls"]}
        assert len(kinds) >= 4, pitfall.name


def lessons(rng, *, good=True):
    return [rng.choice(pitfall.good_advice if good else pitfall.bad_advice) for pitfall in WORLD.pitfalls.values()]


@pytest.mark.untraced
def test_right_lessons_help_wrong_ones_harm_and_shuffled_ones_do_nothing():
    rng = random.Random(1)
    plain = success(WORLD, HELD_OUT, tries=8)
    assert 0.3 < plain < 0.55
    assert success(WORLD, HELD_OUT, with_lessons(lessons(rng)), tries=8) > 0.8
    assert success(WORLD, HELD_OUT, with_lessons(lessons(rng, good=False)), tries=8) < plain - 0.2
    gains = []
    for _ in range(4):
        shuffled = []
        for lesson in lessons(rng):
            words = lesson.text.split()
            rng.shuffle(words)
            shuffled.append(Advice(lesson.polarity, " ".join(words)))
        gains.append(success(WORLD, HELD_OUT, with_lessons(shuffled), tries=8) - plain)
    assert abs(statistics.mean(gains)) < 0.06


def test_the_reflecting_role_names_the_remedy_that_separated_two_attempts():
    item = next(item for item in LEARN if item["metadata"]["pitfalls"] == ["rework_loop", "any_order"])
    attempts = [
        {"label": "A", "reward": 1.0, "transcript": scripted(item["prompt"])},
        {"label": "B", "reward": 0.6, "transcript": scripted(item["prompt"], frozenset({"any_order"}))},
    ]
    asked = ReflectionAsk.model_validate({"attempts": attempts, "max_lessons": 2})
    told = [
        WORLD.lexicon.stances(lesson["polarity"], lesson["text"])
        for seed in range(60)
        for lesson in reflect(WORLD, asked, random.Random(seed))["lessons"]
    ]
    assert told.count({"any_order": 1}) > 40
    assert not any("rework_loop" in stances for stances in told)


def test_the_judge_takes_another_spelling_of_the_right_model_for_right():
    item = next(item for item in LEARN if item["id"] == "po-0001")

    def score(output):
        ask = JudgementAsk(task=item["prompt"], output=output)
        return statistics.mean(judge(WORLD, ask, random.Random(seed))["score"] for seed in range(60))

    turned = item["answer"].replace("check credit history", "?").replace("verify income", "check credit history")
    turned = turned.replace("?", "verify income")
    assert parse_text(turned) != parse_text(item["answer"])
    assert score(to_text(parse_text(turned))) > 0.7
    assert max(score(scripted(item["prompt"], frozenset({"any_order"}))), score("none at all")) < 0.4
