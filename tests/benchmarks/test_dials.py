"""Each dial of the simulated model does what its docstring says, and none changes an answer unless it is turned."""

from __future__ import annotations

import json

import pytest

from benchmarks.dials import DialledEngine, Dials, lesson_gain, turned_rules
from benchmarks.generated_items import generate_items
from tests.support.models.players import with_lessons
from tests.support.models.simulated_calls import request
from tfgrpo.pipelines.settings.tree import SimulatedSettings
from tfgrpo.tasks.models.simulated.engine import Engine, digest_of
from tfgrpo.tasks.models.simulated.protocol import ChatBody
from tfgrpo.tasks.models.simulated.puzzle import answer_of, open_world

PITFALLS = open_world("arithmetic").pitfalls
OPTIONS = SimulatedSettings(seed=3)
PLAIN = "Solve it."
RIGHT, WRONG = (with_lessons(getattr(p, kind)[0] for p in PITFALLS.values()) for kind in ("good_advice", "bad_advice"))


def said(bodies, **dials):
    engine = DialledEngine(OPTIONS, Dials(**dials))
    answers = [engine.answer(ChatBody.model_validate(body), digest_of(body)) for body in bodies]
    return [answer["choices"][0]["message"]["content"] for answer in answers]


def asked(system, items, seeds=1):
    return [request(i["prompt"], system, temperature=0.3, seed=seed) for seed in range(seeds) for i in items]


def gained(before, after, **dials):
    """Points by which the second system prompt succeeds more often than the first at temperature 0.3."""
    items = generate_items("arithmetic", 300, seed=5)
    shares = []
    for system in (before, after):
        texts = said(asked(system, items, 4), **dials)
        shares.append(sum(answer_of(text) == item["answer"] for text, item in zip(texts, items * 4, strict=True)))
    return 100.0 * (shares[1] - shares[0]) / (len(items) * 4)


def test_without_a_dial_the_answers_are_those_of_the_product():
    bodies, engine = asked(RIGHT, generate_items("arithmetic", 30)), Engine(OPTIONS)
    plain = [engine.answer(ChatBody.model_validate(body), digest_of(body)) for body in bodies]
    assert said(bodies) == [answer["choices"][0]["message"]["content"] for answer in plain]


@pytest.mark.parametrize("effect", [0.0, 20.0])
def test_right_lessons_together_gain_the_effect_that_was_set(effect):
    assert gained(PLAIN, RIGHT, effect=effect) == pytest.approx(effect, abs=4.0)
    assert lesson_gain("arithmetic", 5.0) < lesson_gain("arithmetic", 20.0)


def test_noise_turns_answers_round_and_leaves_the_work_shown_as_it_is():
    items = generate_items("arithmetic", 40)
    for item, plain, noisy in zip(items, *(said(asked(PLAIN, items), label_noise=n) for n in (0.0, 1.0)), strict=True):
        assert (answer_of(plain) == item["answer"]) is not (answer_of(noisy) == item["answer"])
        assert plain.rpartition("Answer:")[0] == noisy.rpartition("Answer:")[0]


def test_after_the_drift_a_third_of_the_rules_help_the_other_way_round_and_look_so():
    turned = turned_rules("arithmetic", 3)
    assert len(turned) == len(PITFALLS) // 3
    adapted = with_lessons((p.bad_advice if name in turned else p.good_advice)[0] for name, p in PITFALLS.items())
    assert gained(RIGHT, adapted, drifted=True) > 15.0
    assert gained(RIGHT, adapted) < -15.0
    items = generate_items("arithmetic", 25)
    before, after = (said(asked(PLAIN, items), drifted=drifted) for drifted in (False, True))
    assert before != after
    assert list(map(answer_of, before)) == list(map(answer_of, after))


@pytest.mark.parametrize(("share", "wrong"), [(0.0, 0.05), (0.2, 0.21), (1.0, 0.85)])
def test_a_misjudging_reflection_names_the_wrong_direction_in_its_share_of_cases(share, wrong):
    name, pitfall = next(iter(PITFALLS.items()))
    shown = [{"reward": 1.0, "transcript": pitfall.shown_avoided[0]}, {"reward": 0.0, "transcript": pitfall.shown_hit[0]}]
    ask = json.dumps({"attempts": shown, "max_lessons": 1})
    answers = said([request(ask, seed=seed) for seed in range(300)], misjudged=share)
    lessons = [lesson for answer in answers for lesson in json.loads(answer)["lessons"]]
    found = [open_world("arithmetic").lexicon.stances(each["polarity"], each["text"]).get(name) for each in lessons]
    assert found.count(-1) / len(found) == pytest.approx(wrong, abs=0.06)
