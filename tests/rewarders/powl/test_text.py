"""A model's answer is read for the model it means; prose and broken answers are refused, with the place."""

import pickle
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rewards.powl_models import attempt, brief
from tests.support.vectors import rows_of
from tfgrpo.rewarders.powl import Activity, Operator, PowlError, Silent, parse_text, to_text
from tfgrpo.rewarders.powl.model import MAX_DEPTH, OPERATORS
from tfgrpo.rewarders.powl.text import MAX_DOCUMENT_CHARS

AB = "SEQUENCE(a, b)"


def test_the_last_expression_of_a_text_is_parsed():
    for text in (*rows_of("powl_text", "the_last_expression_of_a_text_is_parsed"), AB):
        assert brief(parse_text(text)) == AB, text


def test_labels_are_kept_as_they_are_written():
    for text, label in rows_of("powl_text", "labels_are_kept_as_they_are_written"):
        assert parse_text(text) == Activity(label), text


def test_silent_steps_and_orders_are_read():
    found = parse_text("PARTIAL_ORDER(a, XOR(b, SILENT()), c, d, ORDER(0->1->3, 2 -> 3))")
    assert found == Operator(
        "PARTIAL_ORDER",
        (Activity("a"), Operator("XOR", (Activity("b"), Silent())), Activity("c"), Activity("d")),
        frozenset({(0, 1), (1, 3), (2, 3)}),
    )
    assert parse_text("PARTIAL_ORDER(a, b)") == Operator("PARTIAL_ORDER", (Activity("a"), Activity("b")))
    assert parse_text("SILENT( )") == Silent()
    assert brief(parse_text("SEQUENCE(check credit, x-y z_1 3.5 ☕)")) == "SEQUENCE(check, credit, x-y, z_1, 3.5, ☕)"


def test_a_broken_text_is_refused_with_its_position():
    broken = rows_of("powl_text", "a_broken_text_is_refused_with_its_position")
    for bad in ("", "0->", "0->1 1", "a->b", "0,1"):
        broken.append((f"PARTIAL_ORDER(a, b, ORDER({bad}))", 1, 27, "numbers of children, from 0, with ->"))
    for text, line, column, reason in (*broken, (f"XOR({'a ' * 2_000})", 1, 4_003, "more than 2,000 nodes")):
        with pytest.raises(PowlError, match=reason) as caught:
            parse_text(text)
        error = caught.value
        assert (error.line, error.column, error.pointer) == (line, column, None), text
        shown, caret = str(error).splitlines()[1:]
        assert (caret.strip(), len(caret) - 1 <= len(shown) + 1) == ("^", True)


def test_what_is_no_text_or_too_large_is_the_same_error():
    for value, reason in (
        *((blank, "there is no text") for blank in (None, "", " \n\t")),
        (b"XOR(a, b)", "expected a text, received bytes"),
        ({"type": "XOR"}, "expected a text, received dict"),
        ("x" * (MAX_DOCUMENT_CHARS + 1), "1,000,001 characters"),
        ("XOR(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1), "more than 100 levels"),
    ):
        with pytest.raises(PowlError, match=reason):
            parse_text(value)


def test_an_error_shows_the_place_in_a_long_line_and_survives_pickling():
    with pytest.raises(PowlError) as caught:
        parse_text(f"<think>Hm.</think> SEQUENCE({'step, ' * 40},, {'more, ' * 40})")
    line, caret = str(caught.value).splitlines()[1:]
    assert (line[0], line[-1], line[caret.index("^")], len(line) <= 122) == ("…", "…", ",", True)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.line, again.column) == (str(caught.value), 1, 269)
    with pytest.raises(PowlError, match=r"\n<think>Hm.</think> XOR\(a,, b\)\n {25}\^$"):  # as it was written
        parse_text("<think>Hm.</think> XOR(a,, b)")


def test_prose_is_no_model():
    for text in rows_of("powl_text", "refusals"):
        for aliases in (False, True):
            assert isinstance(attempt(parse_text, text, aliases=aliases), PowlError), text


PIECES = [*OPERATORS, "ACTIVITY", "SILENT", "ORDER", "SEQ", "->", "b c", "<think>", "</think>", "```"]
PIECES += '(),[]{}01a…→é: \n"\\\x00'


@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=30).map("".join), st.booleans())
def test_any_text_is_a_model_that_round_trips_or_one_error_and_without_a_call_of_an_operator_an_error(text, aliases):
    found = attempt(parse_text, text, aliases=aliases)
    if isinstance(found, PowlError):
        assert found.reason
        assert found.line is not None or not text.strip()
    else:
        assert parse_text(to_text(found)) == found
        assert aliases or re.search(rf"({'|'.join((*OPERATORS, 'ACTIVITY', 'SILENT'))})\s*[\[(]", text)


@pytest.mark.parametrize("kind", ["XOR(", "SEQUENCE(a, ", "f(", "ACTIVITY(", "<think>", "PARTIAL_ORDER(a,"])
def test_endless_nesting_is_refused_and_takes_no_time(kind):
    began = time.process_time()
    for text in (kind * 20_000, kind * 20_000 + ")" * 20_000):
        with pytest.raises(PowlError):
            parse_text(text)
    assert time.process_time() - began < 1.0
