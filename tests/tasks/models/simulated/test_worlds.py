"""The worlds: what their items hold, and that lessons do there what they are said to do."""

from __future__ import annotations

import random
import statistics
from decimal import Decimal
from pathlib import Path

import pytest

from benchmarks.generated_items import SHIPPED, data_file, every_mistake_shows, generate_items, hit_sets
from tests.support.models.players import attempt, success, with_lessons
from tfgrpo.tasks.models.simulated.engine import AdvisedSolver
from tfgrpo.tasks.models.simulated.worlds.data import Advice, data_of
from tfgrpo.tasks.models.simulated.worlds.ledger import LedgerQuestion, play
from tfgrpo.tasks.models.simulated.worlds.puzzle import Dialogue, Solver, ToolResult, answer_of, open_world

ROOT = Path(__file__).resolve().parents[4]
recognise = LedgerQuestion.recognise
LEARNABLE = ("arithmetic", "ledger-tools")
NEUTRAL = "The office on the second floor keeps its plants near the large window of the hall"


@pytest.fixture(scope="module", params=SHIPPED)
def shipped(request):
    return open_world(request.param), generate_items(request.param, SHIPPED[request.param])


@pytest.fixture(scope="module", params=LEARNABLE)
def learnable(request):
    return open_world(request.param), generate_items(request.param, 160)


def advice(world, rng, *, good=True):
    return [rng.choice(pitfall.good_advice if good else pitfall.bad_advice) for pitfall in world.pitfalls.values()]


def scripted(world, prompt, hit=frozenset()):
    return world.puzzle.recognise(prompt).solved(Solver(hit))


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_data_are_what_the_generator_makes(name):
    assert (ROOT / "pipelines" / "data" / f"{name}.jsonl").read_text("utf-8") == data_file(name)


def test_other_seeds_make_other_items():
    assert generate_items("arithmetic", 5, 1) != generate_items("arithmetic", 5, 2)
    assert generate_items("arithmetic", 5, 1) == generate_items("arithmetic", 9, 1)[:5]


def test_items_have_ids_and_prompts_of_their_own(shipped):
    world, items = shipped
    assert len({item["id"] for item in items}) == len({item["prompt"] for item in items}) == len(items)
    assert {item["domain"] for item in items} == {data_of(world.name)["domain"]}
    assert items[0]["id"] == f"{data_of(world.name)['prefix']}-0001"


def test_every_item_is_recognised_within_any_text_and_solved_rightly(shipped):
    world, items = shipped
    for item in items:
        assert answer_of(scripted(world, f"Be brief.\n\n{item['prompt']}\nThanks!")) == item["answer"]


def test_foreign_prompts_are_not_recognised(shipped):
    world, _ = shipped
    assert world.puzzle.recognise("What is the capital of France?") is None


def test_every_way_to_go_wrong_shows_in_the_answer_and_in_the_steps(learnable):
    world, items = learnable
    by_name = {pitfall.name: pitfall for pitfall in world.pitfalls.values()}
    for item in items:
        names = item["metadata"]["pitfalls"]
        assert 1 <= len(names) <= 2
        for hit in hit_sets(names):
            text = scripted(world, item["prompt"], hit)
            assert abs(Decimal(answer_of(text)) - Decimal(item["answer"])) >= Decimal("0.05")
            assert any(phrase in text for name in hit for phrase in by_name[name].shown_hit)


def test_every_pitfall_turns_up_often_enough_to_be_learned(learnable):
    world, _ = learnable
    items = generate_items(world.name, SHIPPED[world.name])
    for pitfall in world.pitfalls.values():
        assert sum(pitfall.name in item["metadata"]["pitfalls"] for item in items) >= 25


def test_a_draft_whose_mistakes_do_not_show_is_not_used():
    assert not every_mistake_shows(["a"], lambda hit: "1.00" if hit else "1.01")


def test_ledger_questions_take_two_to_four_turns():
    turns = {len(play(recognise(item["prompt"]), Solver())) for item in generate_items("ledger-tools", 60)}
    assert turns == {2, 3, 4}


def test_ledger_calls_go_out_together_where_that_makes_sense():
    prompt = next(i["prompt"] for i in generate_items("ledger-tools", 60) if i["metadata"]["template"] == "abroad")
    tools = frozenset({"accounts_of", "ledger_entries", "exchange_rate", "add"})
    turn = recognise(prompt).attempt(Solver(), Dialogue(tools=tools))
    assert [call.tool for call in turn.calls] == ["accounts_of", "exchange_rate"]


@pytest.mark.parametrize("result", ["error: no such account", "[]", "[1]", '{"a": 1}', '[{"kind": "fee"}]', "null"])
def test_a_failed_tool_gives_a_reply_not_an_error(result):
    tools = frozenset({"accounts_of", "ledger_entries", "add"})
    question = recognise("How many euros does customer Aldana-17 owe in all, as the books have it?")
    accounts = ToolResult("accounts_of", result)
    text = question.attempt(Solver(), Dialogue(("Step 1: x",), (accounts,), tools)).text
    assert text.startswith("SIMULATED: a tool gave no usable result")
    entries = (ToolResult("accounts_of", '["AB-1234-1"]'), ToolResult("ledger_entries", result))
    turn = question.attempt(Solver(), Dialogue((), entries, tools))
    assert turn.calls or "no usable result" in turn.text
    total = (*entries, ToolResult("add", result.replace("null", "NaN")))
    assert "no usable result" in question.attempt(Solver(), Dialogue((), total, tools)).text


def test_without_its_tools_a_ledger_question_gets_no_answer():
    question = recognise("What is the balance of account AB-1234-1 in euros, as the books have it?")
    assert "not on offer" in question.attempt(Solver(), Dialogue()).text


@pytest.mark.parametrize("temperature", [0.3, 0.7])
def test_without_lessons_about_four_in_ten_succeed(learnable, temperature):
    world, items = learnable
    assert 0.33 <= success(world, items, temperature=temperature) <= 0.53


def test_the_right_lessons_help_much(learnable):
    world, items = learnable
    for seed in range(3):
        system = with_lessons(advice(world, random.Random(seed)))
        assert 0.83 <= success(world, items, system, seed=seed) <= 0.96
        assert success(world, items, system, 0.7, seed) - success(world, items, "", 0.7, seed) > 0.2


def test_one_right_lesson_helps_only_where_its_pitfall_is(learnable):
    world, items = learnable
    pitfall = next(iter(world.pitfalls.values()))
    system = with_lessons(pitfall.good_advice[:1])
    with_it = [item for item in items if pitfall.name in item["metadata"]["pitfalls"]]
    without = [item for item in items if pitfall.name not in item["metadata"]["pitfalls"]]
    assert success(world, with_it, system, tries=10) - success(world, with_it, tries=10) > 0.15
    assert abs(success(world, without, system, tries=10) - success(world, without, tries=10)) < 0.05


def test_neutral_text_of_equal_length_changes_nothing(learnable):
    world, items = learnable
    placebo = [
        Advice(lesson.polarity, " ".join((NEUTRAL.split() * 3)[: len(lesson.text.split())]))
        for lesson in advice(world, random.Random(1))
    ]
    assert abs(success(world, items, with_lessons(placebo), tries=8) - success(world, items, tries=8)) < 0.05


def test_the_words_of_the_right_lessons_shuffled_change_almost_nothing(learnable):
    world, items = learnable
    rng = random.Random(2)
    gains = []
    for _ in range(4):
        shuffled = []
        for lesson in advice(world, rng):
            words = lesson.text.split()
            rng.shuffle(words)
            shuffled.append(Advice(lesson.polarity, " ".join(words)))
        gains.append(success(world, items, with_lessons(shuffled)) - success(world, items))
    assert abs(statistics.mean(gains)) < 0.06


def test_wrong_lessons_do_harm(learnable):
    world, items = learnable
    system = with_lessons(advice(world, random.Random(3), good=False))
    assert success(world, items, system) < success(world, items) - 0.2


def test_heat_makes_attempts_worse_and_more_different(learnable):
    world, items = learnable
    rates = [success(world, items, temperature=heat, tries=6) for heat in (0.0, 0.7, 2.0)]
    assert rates[0] > rates[1] > rates[2]

    def mixed(heat):
        answers = [{answer_of(attempt(world, i["prompt"], "", heat, 0, n)) for n in range(4)} for i in items]
        return sum(len(different) > 1 for different in answers)

    assert mixed(0.0) == 0 < mixed(0.3) < mixed(0.7)


def test_attempts_are_a_function_of_seed_and_request(shipped):
    world, items = shipped
    once = [attempt(world, item["prompt"], "", 0.7, 4, 0) for item in items[:40]]
    assert once == [attempt(world, item["prompt"], "", 0.7, 4, 0) for item in items[:40]]
    assert once != [attempt(world, item["prompt"], "", 0.7, 5, 0) for item in items[:40]]


def test_in_the_unlearnable_world_no_text_changes_anything():
    world = open_world("unlearnable")
    items = generate_items("unlearnable", 200)
    rng = random.Random(4)
    systems = ["", with_lessons(advice(world, rng)), with_lessons(advice(world, rng, good=False))]
    rates = [success(world, items, system, heat, tries=8) for system in systems for heat in (0.0, 0.3, 0.7)]
    assert max(rates) - min(rates) < 0.06
    assert 0.38 < statistics.mean(rates) < 0.52


def test_in_the_unlearnable_world_habits_show_without_any_effect():
    world = open_world("unlearnable")
    items = generate_items("unlearnable", 200)
    texts = [(attempt(world, i["prompt"], "", 0.7, 0, n), i["answer"]) for i in items for n in range(8)]
    for habit in world.pitfalls.values():
        right = [answer_of(text) == answer for text, answer in texts if any(p in text for p in habit.shown_avoided)]
        wrong = [answer_of(text) == answer for text, answer in texts if any(p in text for p in habit.shown_hit)]
        assert min(len(right), len(wrong)) > 200
        assert abs(statistics.mean(right) - statistics.mean(wrong)) < 0.1


def test_luck_is_drawn_by_the_solver():
    solvers = [AdvisedSolver(0, "p", 0.5, {}, random.Random(n)) for n in range(400)]
    assert 0.2 < statistics.mean(solver.lucky(0.3) for solver in solvers) < 0.4
