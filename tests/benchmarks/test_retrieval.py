"""Retrieval wins back most of what a prompt with few slots loses, and the page says how much."""

from __future__ import annotations

from benchmarks.learning.retrieval import SLOTS, gains, thirty_lessons
from tests.support.runs.pages import page, table
from tfgrpo.pipelines.settings.learning import RetrievalSettings


def test_with_thirty_lessons_and_twelve_slots_retrieval_recovers_most_of_the_gain():
    default = RetrievalSettings().per_item
    found = gains((0, default), seeds=3, items=60)
    lost = found["all"] - found["0"]
    assert lost > 15.0
    assert found[str(default)] - found["0"] > 0.6 * lost


def test_the_library_of_the_benchmark_outgrows_the_slots_and_no_lesson_repeats():
    texts = [lesson.summary32 for lesson in thirty_lessons(0).entries]
    assert len(texts) == len(set(texts)) == 30 > SLOTS
    assert texts != [lesson.summary32 for lesson in thirty_lessons(1).entries]


def test_both_pages_name_the_same_figures():
    rows = table(page("docs/benchmarks.md"), "lessons in the prompt | points | of the difference won back")
    whole, fixed, *_ = (float(row[1]) for row in rows)
    default = next(row for row in rows if "(the default)" in row[0])
    assert f"{(float(default[1]) - fixed) / (whole - fixed):.0%}".replace("%", " %") == default[2]
    said = (
        f"gain {fixed} points, all thirty in one prompt {whole}, and eight settled with four retrieved {default[1][1:]}"
    )
    assert said in page("docs/learning.md")
