from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.stores.text import MAX_CHARS, MAX_WORDS, count_words
from tfgrpo.tasks.rollout import summarize_trajectory
from tfgrpo.tasks.shapes import Frame


def frame(kind="model", text="done", error=None, name="m"):
    return Frame(kind, name, text, 3, None, 1.0, error)


def test_a_summary_counts_turns_tools_and_errors_and_ends_with_the_answer():
    frames = (frame(), frame("tool", name="add"), frame("tool", name="add", error="bad"), frame(text="Answer: 7"))
    summary = summarize_trajectory(frames, "so\nAnswer: 7\n")
    assert summary == "2 model turns, 2 tool calls (add x2), 1 error. Ended: Answer: 7"


def test_without_an_output_the_last_frame_is_summarised():
    assert summarize_trajectory((frame(text="Answer: 9"),)).endswith("Answer: 9")


def test_an_attempt_without_calls_has_a_summary_too():
    assert summarize_trajectory(()) == "0 model turns."


def test_ten_megabytes_are_summarised_from_their_end_alone():
    huge = "word " * 2_000_000 + "\nAnswer: 42"
    summary = summarize_trajectory((frame(text=huge),), huge)
    assert summary.endswith("Answer: 42")
    assert count_words(summary) <= MAX_WORDS


@given(st.text(), st.lists(st.text(max_size=50), max_size=8))
def test_no_output_makes_a_summary_longer_than_the_limits(output, names):
    summary = summarize_trajectory([frame("tool", name=name) for name in names], output)
    assert count_words(summary) <= MAX_WORDS
    assert len(summary) <= MAX_CHARS
    assert summary == " ".join(summary.split())


@given(st.text(alphabet="语言模型 ab", min_size=1, max_size=3_000), st.integers(4, 32))
def test_text_without_spaces_obeys_a_lowered_limit(output, words):
    summary = summarize_trajectory((), output, max_words=words)
    assert count_words(summary) <= words
    assert len(summary) <= MAX_CHARS
