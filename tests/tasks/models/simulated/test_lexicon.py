"""Advice is recognised by what it says, in whatever words."""

from __future__ import annotations

import random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.models.paraphrases import (
    HARMFUL,
    HARMFUL_LEDGER,
    HARMFUL_POWL,
    HELPFUL,
    HELPFUL_LEDGER,
    HELPFUL_POWL,
    NEUTRAL,
)
from tests.support.models.players import with_lessons
from tfgrpo.tasks.models.simulated.reflector import RAMBLING, USELESS
from tfgrpo.tasks.models.simulated.worlds.data import Advice
from tfgrpo.tasks.models.simulated.worlds.lexicon import Lexicon, lessons_in, reads_as_language
from tfgrpo.tasks.models.simulated.worlds.puzzle import WorldName, open_world

WORLDS = {name: open_world(name) for name in sorted(get_args(WorldName))}
ARITHMETIC = WORLDS["arithmetic"].lexicon
LEDGER = WORLDS["ledger-tools"].lexicon
POWL = WORLDS["powl"].lexicon


@pytest.mark.parametrize("name", WORLDS)
def test_the_worlds_own_advice_is_recognised_for_one_pitfall_and_its_side(name):
    world = WORLDS[name]
    for pitfall in world.pitfalls.values():
        for side, advice in ((1, pitfall.good_advice), (-1, pitfall.bad_advice)):
            for lesson in advice:
                assert world.lexicon.stances(lesson.polarity, lesson.text) == {pitfall.name: side}, lesson.text


@pytest.mark.parametrize(("lexicon", "rows", "side"), [
    (ARITHMETIC, HELPFUL, 1), (LEDGER, HELPFUL_LEDGER, 1), (ARITHMETIC, HARMFUL, -1), (LEDGER, HARMFUL_LEDGER, -1),
    (POWL, HELPFUL_POWL, 1), (POWL, HARMFUL_POWL, -1),
])  # fmt: skip
def test_paraphrases_by_others_are_recognised(lexicon, rows, side):
    missed = [row for row in rows if lexicon.stances(row[0], row[1]) != {row[2]: side}]
    assert not missed


@pytest.mark.parametrize("lexicon", [world.lexicon for world in WORLDS.values()])
@pytest.mark.parametrize("polarity", ["do", "avoid"])
def test_neutral_and_useless_text_takes_no_side(lexicon, polarity):
    texts = [*NEUTRAL, *(lesson.text for lesson in USELESS), RAMBLING]
    assert [text for text in texts if lexicon.stances(polarity, text)] == []


@pytest.mark.parametrize("said", [
    "Never add refunds to the sum.", "Do not add refunds to the sum.", "Don\u2019t add refunds to the sum.",
    "Subtract refunds instead of adding refunds.", "Never forget to subtract the refund.",
])  # fmt: skip
def test_a_negation_turns_the_advice_round(said):
    assert ARITHMETIC.stances("do", said) == {"refund_sign": 1}


def test_a_lesson_to_avoid_that_negates_itself_is_not_turned_twice():
    assert ARITHMETIC.stances("avoid", "Never add refunds to the sum.") == {"refund_sign": 1}


def test_only_the_first_sentence_of_a_lesson_to_avoid_is_what_to_avoid():
    assert ARITHMETIC.stances("avoid", "Adding a refund; subtract the refund.") == {"refund_sign": 1}


def test_phrases_for_both_sides_cancel_out():
    assert ARITHMETIC.stances("do", "Subtract a refund. Add a refund.") == {}


@pytest.mark.parametrize("plain", [True, False])
def test_shuffled_words_are_rarely_recognised(plain):
    rng = random.Random(5)
    tried = heard = 0
    for world in WORLDS.values():
        for pitfall in world.pitfalls.values():
            for lesson in pitfall.good_advice * 20:
                words = lesson.text.split()
                rng.shuffle(words)
                text = " ".join(words)
                text = text.lower().translate(str.maketrans("", "", ",.;:")) if plain else text
                tried += 1
                heard += bool(world.lexicon.stances(lesson.polarity, text))
    assert heard / tried < (0.2 if plain else 0.02)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "...",
        "the of price",
        "sum the subtract. refunds From",
        "take it to",
        "and subtract it",
        "subtract it,",
        "pay a owner",
        "pay an person",
        "count a posts",
        "check every posts",
        "the add of it",
    ],
)
def test_text_in_no_sensible_order_is_not_recognised(text):
    assert not reads_as_language(text)


@pytest.mark.parametrize(
    "text", ["an hour", "a unit", "a one-off", "a euro", "an honest mistake", "every bus", "a bonus"]
)
def test_articles_before_ordinary_words_are_fine(text):
    assert reads_as_language(f"Count {text}.")


@given(st.text(max_size=60), st.sampled_from(["do", "avoid"]))
def test_any_text_can_be_judged(text, polarity):
    assert set(ARITHMETIC.stances(polarity, text).values()) <= {-1, 1}


def test_only_lines_of_the_lessons_block_are_advice():
    system = with_lessons([Advice("do", "Subtract refunds from the sum."), Advice("avoid", "Adding a refund.")])
    assert [lesson.polarity for lesson in lessons_in(system)] == ["do", "avoid"]
    assert ARITHMETIC.advice(system) == {"refund_sign": 1.0}
    assert ARITHMETIC.advice("- Do: Subtract refunds from the sum.") == {}
    assert ARITHMETIC.advice("<lessons>\nSubtract refunds from the sum.\n</lessons>") == {}


def test_contradicting_lessons_weigh_against_each_other():
    lessons = [
        Advice("do", "Subtract every refund."),
        Advice("do", "Add every refund."),
        Advice("do", "Deduct each refund."),
    ]
    assert ARITHMETIC.advice(with_lessons(lessons)) == {"refund_sign": pytest.approx(1 / 3)}


def test_the_memory_of_prompts_is_bounded():
    lexicon = Lexicon(WORLDS["arithmetic"].pitfalls)
    for index in range(300):
        lexicon.advice(f"prompt {index}")
    assert lexicon.advice.cache_info().currsize == 256
