"""``category_match`` gives credit for part of a label, ``label_match`` does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rewards.graders import answered, score
from tfgrpo.stores.errors import PipelineError

ALLOWED = ["Alpha", "Beta", " Gamma ", "Stra\u00dfe"]


def category(completion: str, record, **options) -> float:
    return score("category_match", completion, record, **({"allowed_categories": ALLOWED} | options))


@pytest.mark.parametrize(
    ("answer", "expected_label", "expected"),
    [
        ("Alpha", "Alpha", 1.0),
        (" Alpha\u00a0", "Alpha", 1.0),
        ("ALPHA", "Alpha", 0.8),
        ("Alphabet", "Alpha", 0.5),
        ("not Alpha", "Alpha", 0.5),
        ("Beta", "Alpha", 0.3),
        ("bETA", "Alpha", 0.3),
        ("Gamma", "Alpha", 0.0),
        ("Delta", "Alpha", 0.0),
        ("Alpha", "Alpha ", 0.3),
        ("x Alpha y", "alpha ", 0.5),
        ("a b", " ", 0.5),
        ("STRASSE", "Stra\u00dfe", 0.0),
        ("STRA\u1e9eE", "Stra\u00dfe", 0.8),
        ("Beta", "eta", 0.5),
        ("3.0", 3.0, 1.0),
        ("true", True, 0.8),
        ("['x']", ["x"], 1.0),
        ("Re\u0301sume\u0301", "R\u00e9sum\u00e9", 0.0),
    ],
)
def test_the_first_matching_rule_gives_the_score(answer, expected_label, expected):
    assert category(answered(answer), {"answer": expected_label}) == expected


@pytest.mark.parametrize("nothing", [None, "", 0, False, [], {}, 0.0])
def test_expected_category_replaces_an_empty_answer(nothing):
    assert category(answered("Alpha"), {"answer": nothing, "expected_category": "Alpha"}) == 1.0
    assert category(answered("Alpha"), {"answer": nothing}) == 0.0
    assert score("label_match", answered("ALPHA"), {"answer": nothing, "expected_category": "Alpha"}) == 1.0


@pytest.mark.parametrize("several", [["Beta", "Alpha"], ("Beta", "Alpha")])
def test_any_of_several_labels_is_right(several):
    assert score("label_match", answered("Alpha"), {"answer": several}) == 1.0
    assert score("label_match", answered("Gamma"), {"answer": several}) == 0.0


@pytest.mark.parametrize("record", [[], "Alpha", None, 7, {}])
def test_without_an_expected_label_the_score_is_zero(record):
    assert category(answered("Alpha"), record) == 0.0
    assert score("label_match", answered("Alpha"), record) == 0.0


def test_without_a_final_answer_the_whole_completion_is_searched_unless_that_is_switched_off():
    for completion in ("<think>so alpha it is</think>", "<think>alpha", "alpha?"):
        assert category(completion, {"answer": "Alpha"}) == 0.5
        assert category(completion, {"answer": "Alpha"}, require_answer=True) == 0.0
    assert category("Alpha", {"answer": "Alpha"}) == 1.0
    assert category(" \n", {"answer": " "}) == 0.0
    assert category(answered("Alpha"), {"answer": "Alpha"}, require_answer=True) == 1.0


def test_a_plain_string_of_allowed_labels_is_taken_letter_by_letter():
    assert category(answered("B"), {"answer": "Alpha"}, allowed_categories="abc") == 0.3
    assert category(answered("abc"), {"answer": "Alpha"}, allowed_categories="abc") == 0.0
    assert category(answered("Alpha"), {"answer": "Alpha"}, allowed_categories=[]) == 1.0


def test_labels_that_are_no_texts_are_refused():
    for wrong in ([True, 7], 7, None, {"Alpha": 1}):
        with pytest.raises(PipelineError, match=r"allowed_categories: got .*accepted: a list of texts"):
            category("", {}, allowed_categories=wrong)


@pytest.mark.parametrize(
    ("answer", "label", "expected"),
    [
        ("Alpha", "Alpha", 1.0),
        (" aLPHA ", "Alpha\n", 1.0),
        ("STRASSE", "Stra\u00dfe", 1.0),
        ("not Alpha", "Alpha", 0.0),
        ("Alphabet", "Alpha", 0.0),
        ("Alpha.", "Alpha", 1.0),
        ("The label is Alpha, I think.", "Alpha", 1.0),
        ("Answer: Alpha or Beta", "Alpha", 0.0),
        ("(B)", "B", 1.0),
        ("Answer: B) Paris", "B", 1.0),
        ("Beta", "Alpha", 0.0),
        ("3.0", 3.0, 1.0),
        ("x", " ", 0.0),
    ],
)
def test_label_match_accepts_the_whole_label_alone_or_in_a_sentence(answer, label, expected):
    assert score("label_match", answered(answer), {"answer": label}) == expected


def test_label_match_may_read_a_completion_without_tags_but_never_unfinished_reasoning():
    assert score("label_match", "Alpha", {"answer": "Alpha"}) == 0.0
    assert score("label_match", "Alpha", {"answer": "Alpha"}, require_answer=False) == 1.0
    assert score("label_match", "<think>Alpha", {"answer": "<think>Alpha"}, require_answer=False) == 0.0


@given(st.text(alphabet="abc -", min_size=1, max_size=9), st.text(alphabet="abc -", max_size=9))
def test_labels_that_share_no_word_never_match(left, right):
    wanted, answer = f"x{left}".strip(), f"y{right}".strip()
    assert score("label_match", answered(wanted.upper()), {"answer": wanted}) == 1.0
    if wanted not in answer.split():
        assert score("label_match", answered(answer), {"answer": wanted}) == 0.0


def test_of_a_set_of_labels_exactly_the_expected_one_is_right():
    labels = {"labels": ["spam", "not spam"]}
    assert score("label_match", answered("It is not spam."), {"answer": "not spam"}, **labels) == 1.0
    assert score("label_match", answered("It is not spam."), {"answer": "spam"}, **labels) == 0.0
    assert score("label_match", answered("Answer: spam or not spam"), {"answer": "spam"}, **labels) == 0.0


def test_a_label_that_python_cannot_write_out_is_none():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    for label in (10**5000, deep):
        assert category(answered("Alpha"), {"answer": label}) == 0.0
    while deep:
        deep = deep[0]
