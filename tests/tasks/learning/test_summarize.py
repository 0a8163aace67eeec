"""Attempts are summarised, their tools summed, the better half chosen, and similar lessons found."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.agents.curating import curate, groups, lesson, reasons, unasked
from tests.support.agents.steps import ScriptedModel, proposal
from tfgrpo.stores.experiences.store import Reward, lesson_words, same_lesson
from tfgrpo.stores.text import MAX_CHARS, MAX_WORDS, count_words
from tfgrpo.tasks.learning.curate import ExperiencePolicy, merge_proposals, optimize_experience
from tfgrpo.tasks.rollout import summarize_trajectory
from tfgrpo.tasks.shapes import Frame


def frame(kind="model", text="done", error=None, name="m"):
    return Frame(kind, name, text, 3, None, 1.0, error)


def test_a_summary_counts_turns_tools_and_errors_and_ends_with_the_answer():
    frames = (frame(), frame("tool", name="add"), frame("tool", name="add", error="bad"), frame(text="Answer: 7"))
    summary = summarize_trajectory(frames, "so\nAnswer: 7\n")
    assert summary == "2 model turns, 2 tool calls (add x2), 1 error. Ended: Answer: 7"


def test_ten_megabytes_are_summarised_from_their_end_alone():
    huge = "word " * 2_000_000 + "\nAnswer: 42"
    summary = summarize_trajectory((frame(text=huge),), huge)
    assert summary.endswith("Answer: 42")
    assert count_words(summary) <= MAX_WORDS


@given(
    st.text() | st.text("语言模型 ab", max_size=3_000), st.lists(st.text(max_size=50), max_size=8), st.integers(4, MAX_WORDS)
)
def test_no_output_makes_a_summary_longer_than_the_limits(output, names, words):
    summary = summarize_trajectory([frame("tool", name=name) for name in names], output, max_words=words)
    assert count_words(summary) <= words
    assert len(summary) <= MAX_CHARS
    assert summary == " ".join(summary.split())


def experience(reward, rank):
    return lesson("e1", "Check the sum.", reward=Reward(gt_score=reward, relative_rank=rank))


@pytest.mark.parametrize(
    ("reward", "rank", "accepted"), [(1.0, 1.0, True), (0.5, 1.0, True), (0.4, 1.0, False), (1.0, 0.8, True), (1.0, 0.7, False)]
)
def test_rank_and_reward_both_decide(reward, rank, accepted):
    record = experience(reward, rank)
    policy = ExperiencePolicy(min_reward=0.5, min_rank=0.8)
    assert optimize_experience(record, policy) is (record if accepted else None)


def test_by_itself_any_reward_will_do_and_the_better_half_of_the_group():
    assert optimize_experience(experience(-3.0, 0.5)) is not None
    assert optimize_experience(experience(1.0, 0.49)) is None


async def test_a_lesson_on_the_worse_half_of_a_group_is_not_written(tmp_path):
    model = ScriptedModel(lambda *_: {"answers": [{"class": "new", "proposals": ["P1"], "text": "Check the sum."}]})
    result = await curate(model, tmp_path, groups("Check the sum.", best_rank=0.4))
    assert (result.records, result.words) == ((), ())
    assert reasons(result)["Check the sum."] == "its best attempt is in the worse half of its group"
    assert (await curate(unasked, tmp_path / "none", ())).records == ()


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


@settings(max_examples=20)
@given(st.text(max_size=60), st.text(max_size=60))
def test_similarity_is_symmetric_and_reflexive(first, second):
    assert same(first, first)
    assert same(first, second) == same(second, first)


TEXTS = ["Carry the tens.", "Carry the tens!", "Check units.", "Never guess.", "Count twice."]
PROPOSALS = st.tuples(*map(st.sampled_from, (TEXTS, range(6), [0.1, 0.5], ["do", "avoid"]))).map(
    lambda drawn: proposal(drawn[0], group=f"g{drawn[1]}", name=f"q{drawn[1]}", spread=drawn[2], polarity=drawn[3])
)


@given(st.lists(PROPOSALS, max_size=12), st.randoms(use_true_random=False))
def test_merging_loses_no_proposal_counts_groups_once_and_does_not_depend_on_their_order(given_proposals, chance):
    merged, shuffled = merge_proposals(given_proposals), list(given_proposals)
    chance.shuffle(shuffled)
    assert merge_proposals(shuffled) == merged
    kept = [source for candidate in merged for source in candidate.sources]
    assert sorted(map(repr, kept)) == sorted(map(repr, given_proposals))
    for candidate in merged:
        assert candidate.support == len({source.contrast.group_id for source in candidate.sources})
        assert {source.polarity for source in candidate.sources} == {candidate.polarity}
    assert [c.support for c in merged] == sorted((c.support for c in merged), reverse=True)
