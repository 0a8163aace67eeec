from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.agents.steps import proposal
from tfgrpo.stores.experiences.store import lesson_words, same_lesson
from tfgrpo.tasks.learning.curate import merge_proposals


def same(first, second):
    return same_lesson(lesson_words(first), lesson_words(second))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("Carry the tens before adding.", "carry the TENS, before adding", True),
        ("Carry tens before adding hundreds.", "Always carry the tens before adding hundreds.", True),
        ("Carry the tens before adding.", "Convert units first.", False),
        ("Always round the final figure up.", "Never round the final figure up.", False),
        ("Don't round the final figure up.", "Round the final figure up.", False),
        ("Don't round the final figure up.", "Do not round the final figure up.", True),
        ("Take 5 percent of the total price.", "Take 10 percent of the total price.", False),
        ("先进位再相加", "先进位再相加", True),
        ("先进位再相加", "先相加再进位", False),
        ("the", "of", False),
        ("", "", True),
    ],
)
def test_lessons_are_the_same_when_they_share_words_negations_and_numbers(first, second, expected):
    assert same(first, second) is expected


@given(st.text(max_size=60), st.text(max_size=60))
def test_similarity_is_symmetric_and_reflexive(first, second):
    assert same(first, first)
    assert same(first, second) == same(second, first)


texts = st.sampled_from(["Carry the tens.", "Carry the tens!", "Check units.", "Never guess.", "Count twice."])
proposals = st.lists(
    st.builds(
        lambda text, group, spread, polarity: proposal(
            text, group=f"g{group}", name=f"q{group}", spread=spread, polarity=polarity
        ),
        texts,
        st.integers(0, 5),
        st.sampled_from([0.1, 0.5]),
        st.sampled_from(["do", "avoid"]),
    ),
    max_size=12,
)


@given(proposals, st.randoms(use_true_random=False))
def test_merging_does_not_depend_on_the_order_in_which_groups_came_back(given_proposals, chance):
    shuffled = list(given_proposals)
    chance.shuffle(shuffled)
    assert merge_proposals(shuffled) == merge_proposals(given_proposals)


@given(proposals)
def test_merging_loses_no_proposal_and_counts_groups_once(given_proposals):
    merged = merge_proposals(given_proposals)
    kept = [source for candidate in merged for source in candidate.sources]
    assert sorted(map(repr, kept)) == sorted(map(repr, given_proposals))
    for candidate in merged:
        assert candidate.support == len({source.contrast.group_id for source in candidate.sources})
        assert {source.polarity for source in candidate.sources} == {candidate.polarity}
    assert [c.support for c in merged] == sorted((c.support for c in merged), reverse=True)


def test_two_items_with_the_same_text_stay_two_groups():
    merged = merge_proposals([proposal("Carry.", group="g1", name="q1"), proposal("Carry.", group="g2", name="q2")])
    assert [candidate.support for candidate in merged] == [2.0]
    assert merged[0].group_ids == ("g1", "g2")
