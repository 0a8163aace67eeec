"""The reflecting role judges what it sees: mostly right, and as wrong as it is meant to be."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from tests.support.models.simulated_calls import request
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.tasks.learning.ask import DIGEST, RECURRING, REFLECTION, Question
from tfgrpo.tasks.models.simulated.protocol import ChatBody
from tfgrpo.tasks.models.simulated.reflector import USELESS
from tfgrpo.tasks.models.simulated.roles import learned_answer
from tfgrpo.tasks.models.simulated.worlds.puzzle import open_world

WORLD = open_world("arithmetic")
REFUND, DAYS = WORLD.pitfalls["refund_sign"], WORLD.pitfalls["inclusive_days"]
GOOD = f"Step 1: {REFUND.shown_avoided[0]}: 90\nAnswer: 90"
BAD = f"Step 1: {REFUND.shown_hit[1]}: 110\nAnswer: 110"
IN_FORCE = (REFUND.good_advice[0], REFUND.bad_advice[0], DAYS.good_advice[0], USELESS[0])
"""Labelled L1 to L4."""


def question(*texts, digests=("", "")):
    attempts = [
        {"label": label, "reward": reward, "transcript": text, "digest": digest}
        for label, reward, text, digest in zip("AB", (1.0, 0.0), texts, digests, strict=True)
    ]
    return {"task": "t", "attempts": attempts, "max_lessons": 2, "max_words": 32}


def answered(asked, seed=0, system="Compare.", **dials):
    body = ChatBody.model_validate(request(json.dumps(asked), system=system))
    return learned_answer(WORLD, body, random.Random(seed), **dials)


def with_lessons(advice=IN_FORCE):
    labelled = enumerate(advice, start=1)
    shown = [{"lesson": f"L{number}", "polarity": each.polarity, "text": each.text} for number, each in labelled]
    return f"Compare.\n\n{canonical_json({'lessons_in_force': shown})}\n\nRepair."


def judgements(asked, seed=0, **dials):
    answer = answered(asked, seed, with_lessons(), **dials)
    return {each["lesson"]: each["judgement"] for each in answer["judgements"]}


def test_every_answer_has_the_whole_form_and_without_lessons_in_force_none_is_judged():
    answer = answered(question(GOOD, BAD))
    assert list(answer) == ["first_difference", "cause", "judgements", "lessons"]
    assert answer["judgements"] == []
    assert answer["lessons"] == answered(question(GOOD, BAD), system=with_lessons())["lessons"]


def test_lessons_that_bear_on_the_difference_are_judged_and_others_left_out_or_unused():
    counted = Counter(json.dumps(judgements(question(GOOD, BAD), seed)) for seed in range(40))
    assert json.loads(counted.most_common(1)[0][0]) == {"L1": "helped", "L2": "misled", "L4": "unused"}


@pytest.mark.parametrize(("texts", "expected"), [((GOOD, BAD), "helped"), ((BAD, GOOD), "misled")])
def test_it_judges_by_what_it_sees_and_errs_seldom(texts, expected):
    judged = [judgements(question(*texts), seed)["L1"] for seed in range(600)]
    assert judged.count(expected) / 600 == pytest.approx(0.95, abs=0.03)


def test_a_reflection_that_misjudges_judges_the_wrong_way_round():
    judged = [judgements(question(GOOD, BAD), seed, misjudged=0.5)["L1"] for seed in range(600)]
    assert judged.count("helped") / 600 == pytest.approx(0.5, abs=0.07)


def test_without_a_difference_nothing_is_said_to_have_helped():
    answer = answered(question(GOOD, GOOD), system=with_lessons())
    assert {each["judgement"] for each in answer["judgements"]} == {"unused"}
    assert answer["cause"] == ""


def test_its_answers_are_read_by_the_parser():
    labels = ("L1", "L2", "L3", "L4")
    reading = Question(REFLECTION.name, REFLECTION.schema, "reflect", REFLECTION.shape, labels=labels)
    for seed in range(50):
        read = reading.read(json.dumps(answered(question(GOOD, BAD), seed, with_lessons())))
        assert read.first_difference == "SIMULATED: they part at refund sign."


def test_a_digest_keeps_what_the_attempt_shows_so_that_it_can_be_reflected_on():
    told = [answered({"task": "t", "transcript": f"{'hm ' * 5_000}{text}{' hm' * 500}"}) for text in (GOOD, BAD)]
    digests = [DIGEST.read(json.dumps(each)).digest for each in told]
    assert max(map(len, digests)) < 1_000
    assert judgements(question("x", "y", digests=digests))["L1"] == "helped"


def recurring(*causes, seed=0, **changes):
    shown = [{"group": f"G{number}", "cause": cause} for number, cause in enumerate(causes, start=1)]
    return answered({"causes": shown, "max_lessons": 2, "max_words": 32, **changes}, seed)["lessons"]


def test_what_recurs_in_the_causes_of_several_groups_is_named_with_them_and_mostly_the_right_way_round():
    cause = answered(question(GOOD, BAD))["cause"]
    turned = answered(question(BAD, GOOD))["cause"]
    [told] = recurring(cause, "SIMULATED: something else.", cause, turned)
    assert told["groups"] == ["G1", "G3"]
    for causes, expected in (((cause, cause), 1), ((turned, turned), -1)):
        lessons = [lesson for seed in range(300) for lesson in recurring(*causes, seed=seed)]
        stances = [WORLD.lexicon.stances(each["polarity"], each["text"]).get(REFUND.name, 0) for each in lessons]
        assert stances.count(expected) / 300 == pytest.approx(0.85, abs=0.06)


def test_what_one_group_alone_says_does_not_recur_and_the_number_of_lessons_is_kept():
    cause = answered(question(GOOD, BAD))["cause"]
    assert recurring(cause, "") == []
    assert recurring(cause, cause, max_lessons=0) == []
    read = RECURRING.read(json.dumps({"lessons": recurring(cause, cause)}))
    assert read.lessons[0].groups == ["G1", "G2"]
