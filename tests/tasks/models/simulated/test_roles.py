"""The learning roles: they read what they are given, and err as often as they are meant to."""

from __future__ import annotations

import json
import random
from collections import Counter

import jsonschema
import pytest

from tests.support.models.simulated_calls import ask, content_of, in_process, request, schema
from tfgrpo.stores.text import count_words
from tfgrpo.tasks.learning.ask import LESSONS, OPERATIONS, SHORTENED
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
    return {"id": name, "polarity": advice.polarity, "text": advice.text, "support": support}


def curation(library=(), proposals=(), **changes):
    return {"library": list(library), "proposals": list(proposals), "rejected_before": [], "capacity": 12,
            "edit_budget": 12, "max_words": 32, **changes}  # fmt: skip


def decide(seed=0, **question):
    return curate(WORLD.lexicon, CurationAsk.model_validate(curation(**question)), random.Random(seed))["operations"]


def usual(**question):
    """The decision most often come to."""
    counted = Counter(json.dumps(decide(seed, **question)) for seed in range(40))
    return json.loads(counted.most_common(1)[0][0])


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


def test_new_subjects_are_added_best_supported_first():
    days, refund, other = DAYS.good_advice[0], REFUND.good_advice[0], REFUND.good_advice[1]
    done = usual(proposals=[entry("P1", days), entry("P2", refund, 2), entry("P3", other, 3)])
    assert [(op["op"], op["from"], op["text"]) for op in done] == [
        ("add", ["P2", "P3"], other.text), ("add", ["P1"], days.text),
    ]  # fmt: skip


def test_a_lesson_already_in_the_library_is_kept():
    done = usual(library=[entry("L1", REFUND.good_advice[0])], proposals=[entry("P1", REFUND.good_advice[1])])
    assert [(op["op"], op["targets"], op["from"]) for op in done] == [("keep", ["L1"], ["P1"])]


def test_the_side_with_more_support_wins_and_an_even_split_changes_nothing():
    right, wrong = REFUND.good_advice[0], REFUND.bad_advice[0]
    done = usual(library=[entry("L1", wrong)], proposals=[entry("P1", right, 3)])
    assert [(op["op"], op["targets"], op["text"]) for op in done] == [("modify", ["L1"], right.text)]
    assert usual(library=[entry("L1", wrong, 2)], proposals=[entry("P1", right, 1)]) == []
    assert usual(proposals=[entry("P1", right), entry("P2", wrong)]) == []


def test_sometimes_the_minority_wins():
    sides = {"proposals": [entry("P1", REFUND.good_advice[0], 5), entry("P2", REFUND.bad_advice[0])]}
    added = Counter(op["from"][0] for seed in range(500) for op in decide(seed, **sides) if op["op"] == "add")
    assert 3 <= added["P2"] <= 35 < added["P1"]


def test_near_duplicates_in_the_library_are_merged():
    library = [entry("L1", REFUND.good_advice[0]), entry("L2", REFUND.good_advice[1], 4)]
    (done,) = usual(library=library, proposals=[])
    assert (done["op"], done["targets"], done["text"]) == ("merge", ["L1", "L2"], REFUND.good_advice[1].text)


def test_useless_proposals_are_seldom_added():
    added = sum(op["op"] == "add" for seed in range(400) for op in decide(seed, proposals=[entry("P1", USELESS[0])]))
    assert 0.08 < added / 400 < 0.23


def test_rejected_or_too_long_proposals_are_not_added():
    advice = REFUND.good_advice[0]
    assert usual(proposals=[entry("P1", advice)], rejected_before=[advice.text.upper()]) == []
    assert usual(proposals=[entry("P1", advice)], max_words=3) == []


def test_capacity_and_edit_budget_are_kept():
    proposals = [entry(f"P{n}", pitfall.good_advice[0]) for n, pitfall in enumerate(PITFALLS.values())]
    for seed in range(30):
        assert sum(op["op"] == "add" for op in decide(seed, proposals=proposals, capacity=4)) <= 4
        edits = [
            op for op in decide(seed, proposals=proposals, edit_budget=3) if op["op"] in {"add", "modify", "merge"}
        ]
        assert len(edits) <= 3
    assert usual(proposals=proposals, capacity=0) == []


def test_a_useless_lesson_makes_room_in_a_full_library():
    done = usual(library=[entry("L1", USELESS[0])], proposals=[entry("P1", REFUND.good_advice[0])], capacity=1)
    assert [(op["op"], op["targets"]) for op in done] == [("delete", ["L1"]), ("add", [])]


def test_sometimes_an_operation_is_invalid():
    invalid = sum(any("nobody" in target for op in decide(seed) for target in op["targets"]) for seed in range(600))
    assert 0.01 < invalid / 600 < 0.06


@pytest.mark.parametrize("told", ["json_schema", "json_object", "none"])
@pytest.mark.parametrize(("answer_schema", "question"), [
    (LESSONS, reflection((1.0, GOOD), (0.0, BAD))),
    (OPERATIONS, curation(proposals=[entry("P1", REFUND.good_advice[0])])),
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
        json.dumps(reflection((1.0, GOOD), (0.0, BAD))), response_format=schema(LESSONS.name, LESSONS.schema)
    )
    body["messages"] += [
        {"role": "assistant", "content": '{"lessons": [{"polarity": "do", "te'},
        {"role": "user", "content": json.dumps({"error": "no JSON", "schema": {"text": 1, "max_words": 2}})},
    ]
    async with in_process() as client:
        value = content_of(await ask(client, body))
    jsonschema.validate(value, dict(LESSONS.schema))
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
