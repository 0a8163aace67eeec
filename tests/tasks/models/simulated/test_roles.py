"""The learning roles: they read what they are given, and err as often as they are meant to."""

from __future__ import annotations

import json
import random
from collections import Counter

import jsonschema
import pytest

from tests.support.models.simulated_calls import ask, content_of, in_process, request, schema
from tfgrpo.stores.text import count_words
from tfgrpo.tasks.learning.ask import CURATION, REFLECTION, SHORTENED
from tfgrpo.tasks.models.simulated.curator import CurationAsk, curate
from tfgrpo.tasks.models.simulated.reflector import RAMBLING, USELESS, ReflectionAsk, contrasts, reflect
from tfgrpo.tasks.models.simulated.roles import ShortenAsk, minimal_instance, shorten
from tfgrpo.tasks.models.simulated.worlds.puzzle import open_world

WORLD = open_world("arithmetic")
PITFALLS = WORLD.pitfalls
REFUND, DAYS = PITFALLS["refund_sign"], PITFALLS["inclusive_days"]
GOOD = f"Step 1: {REFUND.shown_avoided[0]}: 90\nAnswer: 90"
BAD = f"Step 1: {REFUND.shown_hit[1]}: 110\nAnswer: 110"


def reflection(*attempts, **changes):
    shown = [{"label": chr(65 + n), "reward": reward, "transcript": text} for n, (reward, text) in enumerate(attempts)]
    return {"task": "t", "attempts": shown, "max_lessons": 2, "max_words": 32, **changes}


def lessons(*attempts, seed=0, **changes):
    question = ReflectionAsk.model_validate(reflection(*attempts, **changes))
    return reflect(WORLD, question, random.Random(seed))["lessons"]


def entry(name, advice, support=1):
    return {"id": name, "polarity": advice.polarity, "text": advice.text, "support": support, "for": support}


def curation(known=(), proposals=(), **changes):
    return {"known": list(known), "proposals": list(proposals), "rejected_before": {}, "max_words": 32, **changes}


def decide(seed=0, **question):
    return curate(WORLD.lexicon, CurationAsk.model_validate(curation(**question)), random.Random(seed))["answers"]


def usual(**question):
    """The decision most often come to: class, proposals, targets and text of every entry."""
    counted = Counter(json.dumps(decide(seed, **question)) for seed in range(40))
    return [
        tuple(each[key] for key in ("class", "proposals", "targets", "text"))
        for each in json.loads(counted.most_common(1)[0][0])
    ]


def stance(lesson):
    return WORLD.lexicon.stances(lesson["polarity"], lesson["text"]).get(REFUND.name, 0)


def test_reflection_mostly_names_what_separated_the_attempts():
    told = [lesson for seed in range(600) for lesson in lessons((1.0, GOOD), (0.0, BAD), seed=seed)]
    shares = Counter(stance(lesson) for lesson in told)
    assert shares[1] / 600 == pytest.approx(0.85, abs=0.05)
    assert shares[0] / 600 == pytest.approx(0.10, abs=0.04)
    assert shares[-1] / 600 == pytest.approx(0.05, abs=0.03)
    assert len({lesson["text"] for lesson in told if stance(lesson) == 1}) >= len(REFUND.good_advice)


def test_reflection_follows_the_transcripts_and_not_the_truth():
    told = [stance(lesson) for seed in range(200) for lesson in lessons((1.0, BAD), (0.0, GOOD), seed=seed)]
    assert Counter(told).most_common(1)[0][0] == -1


def test_reflection_ignores_line_breaks_of_the_transcript():
    broken = GOOD.replace(" the ", "\n the ")
    assert contrasts(PITFALLS.values(), ReflectionAsk.model_validate(reflection((1.0, broken), (0.0, BAD))).attempts)


@pytest.mark.parametrize(
    "attempts", [[(1.0, GOOD), (0.0, GOOD)], [(1.0, GOOD), (1.0, BAD)], [(1.0, "x"), (0.0, "y")], [(1.0, GOOD)]]
)
def test_without_a_visible_difference_there_is_no_lesson_or_a_useless_one(attempts):
    told = [tuple(lesson["text"] for lesson in lessons(*attempts, seed=seed)) for seed in range(60)]
    useless = {advice.text for advice in USELESS} | {f"{advice.text} {RAMBLING}" for advice in USELESS}
    assert {len(texts) for texts in told} == {0, 1}
    assert all(text in useless for texts in told for text in texts)


def test_reflection_keeps_to_the_number_of_lessons():
    good = f"{GOOD}\nStep 2: {DAYS.shown_avoided[0]}: 9"
    bad = f"{BAD}\nStep 2: {DAYS.shown_hit[0]}: 8"
    assert len(lessons((1.0, good), (0.0, bad))) == 2
    assert len(lessons((1.0, good), (0.0, bad), max_lessons=1)) == 1
    assert lessons((1.0, good), (0.0, bad), max_lessons=0) == []


def test_all_attempts_are_weighed_when_all_are_shown():
    told = [
        stance(x) for seed in range(100) for x in lessons((1.0, GOOD), (0.6, GOOD), (0.5, BAD), (0.0, BAD), seed=seed)
    ]
    assert Counter(told).most_common(1)[0][0] == 1


def test_lessons_fit_but_for_a_few_that_ramble():
    told = [lesson["text"] for seed in range(1500) for lesson in lessons((1.0, GOOD), (0.0, BAD), seed=seed)]
    long = [text for text in told if count_words(text) > 32]
    assert 0.008 < len(long) / len(told) < 0.04
    for world in map(open_world, ("arithmetic", "ledger-tools", "powl", "unlearnable")):
        for pitfall in world.pitfalls.values():
            for advice in (*pitfall.good_advice, *pitfall.bad_advice):
                assert count_words(advice.text) <= 32
                assert not any(letter.isdigit() for letter in advice.text)


def test_shortening_keeps_whole_sentences_where_it_can():
    text = f"{REFUND.good_advice[0].text} {RAMBLING}"
    assert shorten(ShortenAsk(text=text, max_words=32)) == {"text": REFUND.good_advice[0].text}
    assert shorten(ShortenAsk(text="one two three four", max_words=2)) == {"text": "one two"}
    assert shorten(ShortenAsk(text="one, two three", max_words=1)) == {"text": "one"}
    assert shorten(ShortenAsk(text="abcdefgh", max_words=32, max_chars=3)) == {"text": "abc"}
    assert shorten(ShortenAsk(text="short", max_words=32)) == {"text": "short"}


def test_new_subjects_are_named_best_supported_first():
    days, refund, other = DAYS.good_advice[0], REFUND.good_advice[0], REFUND.good_advice[1]
    proposals = [entry("P1", days), entry("P2", refund, 2), entry("P3", other, 3)]
    assert usual(proposals=proposals) == [("new", ["P2", "P3"], [], other.text), ("new", ["P1"], [], days.text)]


def test_a_proposal_confirms_the_lesson_that_says_the_same_and_contradicts_its_opposite():
    right, wrong = REFUND.good_advice, REFUND.bad_advice
    known = [entry("L1", right[0], 3), entry("L2", wrong[0])]
    assert usual(known=known[:1], proposals=[entry("P1", right[1])]) == [("confirms", ["P1"], ["L1"], "")]
    assert usual(known=known[:1], proposals=[entry("P1", wrong[0])]) == [("contradicts", ["P1"], ["L1"], "")]
    assert usual(known=known, proposals=[entry("P1", wrong[0])]) == [
        ("confirms", ["P1"], ["L2"], ""),
        ("contradicts", ["P1"], ["L1"], ""),
    ]
    assert usual(proposals=[entry("P1", right[0], 2), entry("P2", wrong[0])]) == [
        ("new", ["P1"], [], right[0].text),
        ("contradicts", ["P2"], ["P1"], ""),
    ]


def test_sometimes_both_sides_are_confused():
    sides = {"known": [entry("L1", REFUND.good_advice[0]), entry("L2", REFUND.bad_advice[0])]}
    proposed = {"proposals": [entry("P1", REFUND.good_advice[0])]}
    confirmed = Counter(
        one["targets"][0]
        for seed in range(500)
        for one in decide(seed, **sides, **proposed)
        if one["class"] == "confirms"
    )
    assert 3 <= confirmed["L2"] <= 35 < confirmed["L1"]


def test_near_duplicates_among_known_lessons_are_merged():
    known = [entry("L1", REFUND.good_advice[0]), entry("L2", REFUND.good_advice[1], 4)]
    assert usual(known=known) == [("merge", [], ["L1", "L2"], REFUND.good_advice[1].text)]


def test_useless_and_too_long_proposals_are_seldom_taken_for_new():
    for question in (
        {"proposals": [entry("P1", USELESS[0])]},
        {"proposals": [entry("P1", DAYS.good_advice[0])], "max_words": 3},
    ):
        classes = Counter(one["class"] for seed in range(400) for one in decide(seed, **question) if one["proposals"])
        assert 0.08 < classes["new"] / 400 < 0.23
        assert classes["new"] + classes["useless"] == 400


def test_sometimes_an_entry_cannot_be_carried_out():
    invalid = sum(any("nobody" in target for one in decide(seed) for target in one["targets"]) for seed in range(600))
    assert 0.01 < invalid / 600 < 0.06


@pytest.mark.parametrize("told", ["json_schema", "json_object", "none"])
@pytest.mark.parametrize(("answer_schema", "question"), [
    (REFLECTION, reflection((1.0, GOOD), (0.0, BAD))),
    (CURATION, curation(proposals=[entry("P1", REFUND.good_advice[0])])),
    (SHORTENED, {"text": "word " * 40, "max_words": 32, "max_chars": 280}),
])  # fmt: skip
async def test_the_service_answers_learning_questions_by_their_schemas(answer_schema, question, told):
    wanted = {"json_schema": schema(answer_schema.name, answer_schema.schema), "json_object": {"type": "json_object"}}
    async with in_process() as client:
        body = request(json.dumps(question), response_format=wanted.get(told))
        value = content_of(await ask(client, body))
    jsonschema.validate(value, dict(answer_schema.schema))


async def test_a_repair_is_answered_like_the_question_it_repairs():
    body = request(
        json.dumps(reflection((1.0, GOOD), (0.0, BAD))), response_format=schema(REFLECTION.name, REFLECTION.schema)
    )
    body["messages"] += [
        {"role": "assistant", "content": '{"lessons": [{"polarity": "do", "te'},
        {"role": "user", "content": json.dumps({"error": "no JSON", "schema": {"text": 1, "max_words": 2}})},
    ]
    async with in_process() as client:
        value = content_of(await ask(client, body))
    jsonschema.validate(value, dict(REFLECTION.schema))
    assert value["lessons"]


async def test_unknown_schemas_get_a_minimal_instance():
    wanted = {
        "type": "object",
        "required": ["verdict", "why", "score"],
        "properties": {
            "verdict": {"enum": ["yes", "no"]},
            "why": {"type": "string", "maxLength": 9},
            "score": {"type": "number"},
        },
    }
    async with in_process() as client:
        value = content_of(await ask(client, request("Judge this.", response_format=schema("judge", wanted))))
        free = content_of(await ask(client, request("Judge this.", response_format={"type": "json_object"})))
        text = content_of(await ask(client, request("Judge this.", response_format={"type": "text"})))
    assert value == {"verdict": "yes", "why": "SIMULATED", "score": 0}
    assert free["answer"] == text


@pytest.mark.parametrize("wanted", [
    {"const": 3}, {"default": "d", "type": "string"}, {"anyOf": [{"type": "null"}, {"type": "string"}]},
    {"type": ["integer", "null"], "minimum": 4}, {"type": "boolean"}, {"type": "string"},
    {"type": "array", "items": {"type": "integer"}, "minItems": 2}, {},
])  # fmt: skip
def test_minimal_instances_follow_their_schema(wanted):
    jsonschema.validate(minimal_instance(wanted, "text"), wanted)
