"""What the simulated model answers is a function of seed and request: the same on every machine and after every change.

Seeded figures of whole runs rest on it. Where an answer is meant to change, the digests here are written anew.
"""

import json
import random
from itertools import product

import pytest

from benchmarks.generated_items import LEDGER, POWL, generate_items
from benchmarks.powl.world import ITEMS
from tests.support.models.paraphrases import HARMFUL, HELPFUL, NEUTRAL
from tests.support.models.players import with_lessons
from tests.support.models.simulated_calls import TOOLS, in_process, request
from tfgrpo.pipelines.datasets.datasets import load_dataset
from tfgrpo.stores.json_values import canonical_json, sha256_hex
from tfgrpo.stores.text import count_words
from tfgrpo.tasks.models.simulated.protocol import ChatBody
from tfgrpo.tasks.models.simulated.puzzle import WORDS, Advice, advice_in, open_world
from tfgrpo.tasks.models.simulated.roles import learned_answer

TURNS = {
    "arithmetic": "841a9fd1e861ad1e",
    LEDGER: "f74875787aed853c",
    POWL: "bcd5f0baf1a129ee",
    "unlearnable": "e52b671610be1c24",
}
ROLES = {
    "reflection": "aa6b9a69729e5ddc",
    "digest": "8fc9367c556275cb",
    "recurring": "26d79e797006be71",
    "curation": "66591b1e6869573c",
    "judgement": "e46fc2030820c33c",
    "comparison": "13627de2baeca0e0",
}


def digest(value):
    return sha256_hex(canonical_json(value).encode("utf-8", "surrogatepass"))[:16]


def prompts(world):
    if world == POWL:
        return [item.prompt for item in load_dataset(ITEMS[0])][:20]
    return [item["prompt"] for item in generate_items(world, 20)]


def advice(world, side):
    return with_lessons(getattr(pitfall, side)[0] for pitfall in open_world(world).pitfalls.values())


@pytest.mark.parametrize("world", TURNS)
async def test_the_answers_of_a_world_are_those_of_its_seed(world):
    systems = ("Solve it.", advice(world, "good_advice"), advice(world, "bad_advice"))
    options = ({"temperature": 0}, {"tools": TOOLS}, {"seed": None, "max_tokens": 9, "logprobs": True})
    async with in_process(world=world, seed=3) as client:
        asked = (request(prompt, system, **more) for system, prompt, more in product(systems, prompts(world), options))
        said = [(await client.post("/chat/completions", json=body)).json() for body in asked]
    assert digest(said) == TURNS[world]


def questions(world):
    """A question of each role, out of attempts with and without each mistake."""
    pitfalls = list(open_world(world).pitfalls.values())
    good, bad = ("; ".join(getattr(each, side)[0] for each in pitfalls) for side in ("shown_avoided", "shown_hit"))
    causes = [f"SIMULATED: what decided was {'no ' * (n % 2)}{pitfalls[0].name.replace('_', ' ')}." for n in range(5)]
    lessons = [
        {"id": f"L{n}", "polarity": each.polarity, "text": each.text, "for": n, "support": n}
        for n, each in enumerate([*pitfalls[0].good_advice, *pitfalls[0].bad_advice, *pitfalls[1].good_advice][:6])
    ]
    item = generate_items(world, 1)[0]
    shown = [{"reward": reward, "transcript": text} for reward, text in ((1.0, good), (0.0, bad), (0.5, "nothing"))]
    return {
        "reflection": [{"attempts": shown[:most], "max_lessons": 2} for most in (1, 2, 3)],
        "digest": [{"task": "t", "transcript": f"{'hm ' * 200}{good}"}],
        "recurring": [{"causes": [{"group": f"G{n}", "cause": each} for n, each in enumerate(causes)], "max_lessons": 2}],
        "curation": [
            {"known": lessons[:cut], "proposals": [*lessons[cut:], {**lessons[0], "id": "P", "text": "Be nice."}]}
            for cut in (0, 2, 5)
        ],
        "judgement": [{"task": item["prompt"], "output": f"Answer: {answer}"} for answer in (item["answer"], "none")],
        "comparison": [{"task": item["prompt"], "first": f"Answer: {item['answer']}", "second": "Answer: -1"}],
    }


@pytest.mark.parametrize("role", ROLES)
def test_the_answers_of_a_role_are_those_of_its_seed(role):
    world, said = open_world("arithmetic"), []
    in_force = [
        {"lesson": f"L{n}", "polarity": each.polarity, "text": each.text}
        for n, each in enumerate(pitfall.good_advice[0] for pitfall in world.pitfalls.values())
    ]
    instructions = f"Compare.\n\n{canonical_json({'lessons_in_force': in_force})}\n\nRepair."
    forms = (instructions, 'Give "verdict": one.', 'Give "points": all.\n1. a\n2. b')
    for question in questions("arithmetic")[role]:
        for system in forms if role == "judgement" else forms[:1]:
            body = ChatBody.model_validate(request(json.dumps(question), system))
            said += [learned_answer(world, body, random.Random(seed)) for seed in range(40)]
    assert digest(said) == ROLES[role]


WORLDS = {name: open_world(name) for name in ("arithmetic", "unlearnable", LEDGER, POWL)}
ARITHMETIC = WORLDS["arithmetic"]


@pytest.mark.parametrize("name", WORLDS)
def test_the_worlds_own_advice_is_recognised_for_one_pitfall_and_its_side(name):
    world = WORLDS[name]
    for pitfall in world.pitfalls.values():
        for side, advice in ((1, pitfall.good_advice), (-1, pitfall.bad_advice)):
            for lesson in advice:
                assert world.stances(lesson.polarity, lesson.text) == {pitfall.name: side}, lesson.text
                assert count_words(lesson.text) <= 32
                assert not any(letter.isdigit() for letter in lesson.text)


@pytest.mark.parametrize(("rows", "side"), [(HELPFUL, 1), (HARMFUL, -1)])
def test_paraphrases_by_others_are_recognised(rows, side):
    assert [row for row in rows if ARITHMETIC.stances(row[0], row[1]) != {row[2]: side}] == []


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize("polarity", ["do", "avoid"])
def test_neutral_and_useless_text_takes_no_side(world, polarity):
    useless = [text for texts in WORDS["useless"].values() for text in texts]
    assert [text for text in [*NEUTRAL, *useless, WORDS["rambling"]] if world.stances(polarity, text)] == []


@pytest.mark.parametrize(("polarity", "said", "stances"), [
    ("do", "Never add refunds to the sum.", {"refund_sign": 1}),
    ("do", "Don\u2019t add refunds to the sum.", {"refund_sign": 1}),
    ("do", "Subtract refunds instead of adding refunds.", {"refund_sign": 1}),
    ("do", "Never forget to subtract the refund.", {"refund_sign": 1}),
    ("avoid", "Never add refunds to the sum.", {"refund_sign": 1}),  # not turned twice
    ("avoid", "Adding a refund; subtract the refund.", {"refund_sign": 1}),  # its first sentence is what to avoid
    ("do", "Subtract a refund. Add a refund.", {}),
])  # fmt: skip
def test_negations_and_polarity_turn_the_advice_round(polarity, said, stances):
    assert ARITHMETIC.stances(polarity, said) == stances


def test_only_lines_of_the_lessons_block_are_advice_and_contradicting_ones_weigh_against_each_other():
    texts = ("Subtract every refund.", "Add every refund.", "Deduct each refund.")
    system = with_lessons([*(Advice("do", text) for text in texts), Advice("avoid", "Adding a tip.")])
    assert [lesson.polarity for lesson in advice_in(system)] == ["do", "do", "do", "avoid"]
    assert ARITHMETIC.advice(system) == {"refund_sign": pytest.approx(1 / 3)}
    assert ARITHMETIC.advice("- Do: Subtract refunds from the sum.") == {}
    assert ARITHMETIC.advice("<lessons>\nSubtract refunds from the sum.\n</lessons>") == {}
