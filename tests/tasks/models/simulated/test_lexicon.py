"""Advice is recognised by what it says, in whatever words."""

from __future__ import annotations

import pytest

from benchmarks.generated_items import LEDGER, POWL
from tests.support.models.paraphrases import HARMFUL, HELPFUL, NEUTRAL
from tests.support.models.players import with_lessons
from tfgrpo.stores.text import count_words
from tfgrpo.tasks.models.simulated.puzzle import WORDS, Advice, advice_in, open_world

WORLDS = {name: open_world(name) for name in ("arithmetic", "unlearnable", LEDGER, POWL)}
ARITHMETIC = WORLDS["arithmetic"].lexicon


@pytest.mark.parametrize("name", WORLDS)
def test_the_worlds_own_advice_is_recognised_for_one_pitfall_and_its_side(name):
    world = WORLDS[name]
    for pitfall in world.pitfalls.values():
        for side, advice in ((1, pitfall.good_advice), (-1, pitfall.bad_advice)):
            for lesson in advice:
                assert world.lexicon.stances(lesson.polarity, lesson.text) == {pitfall.name: side}, lesson.text
                assert count_words(lesson.text) <= 32
                assert not any(letter.isdigit() for letter in lesson.text)


@pytest.mark.parametrize(("rows", "side"), [(HELPFUL, 1), (HARMFUL, -1)])
def test_paraphrases_by_others_are_recognised(rows, side):
    assert [row for row in rows if ARITHMETIC.stances(row[0], row[1]) != {row[2]: side}] == []


@pytest.mark.parametrize("lexicon", [world.lexicon for world in WORLDS.values()])
@pytest.mark.parametrize("polarity", ["do", "avoid"])
def test_neutral_and_useless_text_takes_no_side(lexicon, polarity):
    useless = [text for texts in WORDS["useless"].values() for text in texts]
    assert [text for text in [*NEUTRAL, *useless, WORDS["rambling"]] if lexicon.stances(polarity, text)] == []


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
