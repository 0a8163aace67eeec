"""Lessons are ordered by BM25: scores as the formula gives them, in any script, the same every time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.records.records import make_batch, make_record
from tfgrpo.stores.experiences.retrieval import by_likeness, likeness, words_of


def test_scores_are_those_of_the_formula():
    documents = ("fee fee total", "total sum", "sum of all fees and totals here now")
    words = [list(words_of(document)) for document in documents]
    average = sum(map(len, words)) / 3

    def score(place, word):  # Robertson's formula with Lucene's idf, k1 = 1.5, b = 0.75
        count, having = words[place].count(word), sum(word in each for each in words)
        idf = math.log(1 + (3 - having + 0.5) / (having + 0.5))
        return idf * count / (count + 1.5 * (1 - 0.75 + 0.75 * len(words[place]) / average))

    expected = [score(place, "fee") + score(place, "total") for place in range(3)]
    assert likeness(documents, "Fee, TOTAL; unknown") == pytest.approx(expected, rel=1e-5)


def test_inflected_words_agree_and_case_and_width_do_not_matter():
    assert list(words_of("Discounts don't x²_y")) == ["discounts", "disco", "don", "t", "x2", "y"]
    assert list(words_of("Die Straße, в Москве")) == ["die", "strasse", "stras", "в", "москве", "москв"]
    assert likeness(("Discounts first.",), "a DISCOUNTED price") > [0.0]


@pytest.mark.parametrize(
    ("asked", "fitting"),
    [("請退還手續費", "先扣除手續費再計稅。"), ("この税金の計算", "税金は最後に足す。"), ("ราคาภาษี", "คิดภาษีทีหลัง")],
)
def test_scripts_without_spaces_are_compared_by_neighbouring_characters(asked, fitting):
    others = [make_record(f"r{number}", summary32=f"数える {number} 回 {number}") for number in range(5)]
    record = make_record("fits", summary32=fitting)
    assert by_likeness([*others, record], asked)[0] is record
    assert list(words_of("税金は")) == ["税金", "金は"]


def test_the_cause_of_a_lesson_counts_like_its_text():
    records = [*make_batch(5), make_record("told", summary32="Look twice.", cause="The invoice had a second page.")]
    assert by_likeness(records, "An invoice of two pages")[0].experience_id == "told"


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=8), st.text(max_size=30))
def test_any_text_orders_all_lessons_the_same_way_every_time(texts, asked):
    documents = tuple(texts)
    scores = likeness(documents, asked)
    assert scores == likeness(documents, asked)
    assert len(scores) == len(documents)
    assert all(math.isfinite(score) and score >= 0.0 for score in scores)


@pytest.mark.parametrize("asked", ["", "…!", "entirely unlike"])
def test_lessons_that_are_equally_alike_keep_their_order(asked):
    records = make_batch(9)
    assert by_likeness(records, asked) == records
    assert by_likeness([], asked) == []
