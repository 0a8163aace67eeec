"""Defaults of the dials change no answer, and each dial does what its help says."""

from __future__ import annotations

import hashlib
import json

import pytest

from benchmarks.generated_items import generate_items
from tests.support.models.players import with_lessons
from tests.support.models.simulated_calls import TOOLS, request
from tfgrpo.pipelines.datasets.datasets import load_dataset, shipped_dataset
from tfgrpo.tasks.models.simulated import SimulatedOptions
from tfgrpo.tasks.models.simulated.engine import LESSON_GAIN, Engine, digest_of, lesson_gain, turned_rules
from tfgrpo.tasks.models.simulated.protocol import ChatBody
from tfgrpo.tasks.models.simulated.reflector import USELESS
from tfgrpo.tasks.models.simulated.worlds.puzzle import answer_of, open_world

WORLDS = ("arithmetic", "ledger-tools", "powl", "unlearnable")


def lessons(world, *, good=True):
    """A prompt with one lesson on each pitfall."""
    return with_lessons((p.good_advice if good else p.bad_advice)[0] for p in open_world(world).pitfalls.values())


def answers(world, systems, count, **options):
    """Answers of the service to shipped items, at both temperatures of a run."""
    engine = Engine(SimulatedOptions(world=world, seed=3, **options))
    for number, item in enumerate(load_dataset(shipped_dataset(world))[:count]):
        for system in systems:
            for heat in (0.7, 0.3):
                tools = {"tools": TOOLS} if world == "ledger-tools" else {}
                body = request(item.prompt, system, temperature=heat, seed=number, **tools)
                yield engine.answer(ChatBody.model_validate(body), digest_of(body))[1]


def test_answers_without_dials_are_byte_for_byte_what_they_were_before_there_were_dials():
    said = [answer for world in WORLDS for answer in answers(world, ("Solve it.", lessons(world)), 25)]
    assert len(said) == 400
    digest = hashlib.sha256(json.dumps(said).encode()).hexdigest()
    assert digest == "a9cb77ac466be37a384fc6298fb73a927b484eb0ce5057cee7f2a85629a18939"


def gained(world, systems, **options):
    """Points by which the second system prompt succeeds more often than the first at temperature 0.3."""
    items = generate_items(world, 300, seed=5)
    engine = Engine(SimulatedOptions(world=world, seed=3, **options))
    shares = []
    for system in systems:
        bodies = [request(item["prompt"], system, temperature=0.3, seed=seed) for seed in range(4) for item in items]
        said = [engine.answer(ChatBody.model_validate(body), digest_of(body))[1] for body in bodies]
        texts = [answer["choices"][0]["message"]["content"] for answer in said]
        right = [answer_of(text) == item["answer"] for text, item in zip(texts, items * 4, strict=True)]
        shares.append(sum(right) / len(right))
    return 100.0 * (shares[1] - shares[0])


@pytest.mark.parametrize("effect", [0.0, 5.0, 20.0, 50.0])
def test_right_lessons_together_gain_the_effect_that_was_set(effect):
    found = gained("arithmetic", ["Solve it.", lessons("arithmetic")], effect=effect)
    assert found == pytest.approx(effect, abs=4.0)


@pytest.mark.parametrize("world", ["arithmetic", "ledger-tools", "powl"])
def test_the_gain_grows_with_the_effect_and_never_beyond_what_the_world_leaves(world):
    gains = [lesson_gain(world, effect) for effect in (0.0, 1.0, 5.0, 20.0, 40.0)]
    assert gains == sorted(gains)
    assert gains[0] == pytest.approx(0.0, abs=1e-6)
    assert lesson_gain(world, None) == LESSON_GAIN


@pytest.mark.parametrize("world", ["unlearnable", "arithmetic"])
def test_every_lesson_spoils_its_share_of_the_right_answers(world):
    useless = with_lessons(USELESS[:6])
    left = gained(world, ["Solve it.", useless], attention=0.1)
    assert left == pytest.approx(-0.6 * 45.0, abs=5.0)
    assert gained(world, ["Solve it.", useless]) == pytest.approx(0.0, abs=5.0)


@pytest.mark.parametrize("world", WORLDS)
def test_noise_turns_answers_round_and_leaves_the_work_shown_as_it_is(world):
    systems = ("Solve it.", lessons(world))
    plain, noisy = (list(answers(world, systems, 25, label_noise=share)) for share in (0.0, 1.0))
    items = load_dataset(shipped_dataset(world))[:25]
    ended = 0
    for number, (before, after) in enumerate(zip(plain, noisy, strict=True)):
        (first,), (second,) = before["choices"], after["choices"]
        if first["finish_reason"] == "tool_calls":
            assert first == second
            continue
        puzzle = open_world(world).puzzle.recognise(items[number // 4].prompt)
        texts = [each["message"]["content"] for each in (first, second)]
        assert puzzle.agrees(texts[0]) is not puzzle.agrees(texts[1])
        assert texts[0].rpartition("Answer:")[0] == texts[1].rpartition("Answer:")[0]
        ended += 1
    assert ended >= (0 if world == "ledger-tools" else 100)


def test_after_the_drift_a_third_of_the_rules_help_the_other_way_round_and_look_so():
    turned = turned_rules("arithmetic", 3)
    pitfalls = open_world("arithmetic").pitfalls
    assert len(turned) == len(pitfalls) // 3
    right, wrong = lessons("arithmetic"), lessons("arithmetic", good=False)
    adapted = with_lessons((p.bad_advice if name in turned else p.good_advice)[0] for name, p in pitfalls.items())
    drifted = {"drift": 4, "night": 4}
    assert gained("arithmetic", [right, adapted], **drifted) > 15.0
    assert gained("arithmetic", [right, adapted], drift=4, night=3) < -15.0
    assert gained("arithmetic", [wrong, adapted], **drifted) > 30.0
    before, after = (list(answers("arithmetic", ["Solve it."], 25, drift=4, night=night)) for night in (3, 4))
    texts = [[each["choices"][0]["message"]["content"] for each in said] for said in (before, after)]
    assert texts[0] != texts[1]
    assert [answer_of(text) for text in texts[0]] == [answer_of(text) for text in texts[1]]


def test_a_misjudging_reflection_names_the_wrong_direction_in_its_share_of_cases():
    world = open_world("arithmetic")
    name, pitfall = next(iter(world.pitfalls.items()))
    shown = [
        {"reward": 1.0, "transcript": f"Step 1: {pitfall.shown_avoided[0]}"},
        {"reward": 0.0, "transcript": f"Step 1: {pitfall.shown_hit[0]}"},
    ]
    ask = json.dumps({"attempts": shown, "max_lessons": 1})

    def wrong(share):
        engine = Engine(SimulatedOptions(misjudged=share))
        directions = []
        for seed in range(300):
            body = request(ask, seed=seed)
            answer = engine.answer(ChatBody.model_validate(body), digest_of(body))[1]
            found = json.loads(answer["choices"][0]["message"]["content"])["lessons"]
            directions += [world.lexicon.stances(each["polarity"], each["text"]).get(name) for each in found]
        return directions.count(-1) / len(directions)

    assert wrong(0.0) == pytest.approx(0.05, abs=0.04)
    assert wrong(0.2) == pytest.approx(0.05 + 0.2 * 0.8, abs=0.06)
    assert wrong(1.0) == pytest.approx(0.85, abs=0.06)
