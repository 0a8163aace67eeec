"""Promises of ``tfgrpo.stores.text``: one word count for every script, and identifiers that can leave no directory."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.stores.text import check_identifier, clean_text, count_words, first_words, suggested


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 0), ("   ", 0), ("check the sum", 3), ("a\u00a0b", 2), ("a\u3000b", 2), ("a\u2003b\tc\nd", 4),
        ("\ufeffa\ufeffb", 2), ("\x1ca\x1fb", 2), ("don't stop, ever.", 3), ("well-known", 1), ("a\u200bb", 1),
        ("read \u2014 then write", 4), ("\U0001f642 good", 2), ("good\U0001f642", 1), ("\u65e5\u672c\u8a9e", 3),
        ("\u65e5\u672c\u8a9e\u3001abc def", 5), ("abc\u4e2ddef", 3), ("\u30c6\u30b9\u30c8\u3002", 3),
        ("\U00020000\U00020001", 2), ("\uc548\ub155 \uc138\uc0c1", 2), ("\u0e01\u0e34\u0e19\u0e02\u0e49\u0e32\u0e27", 2),
        ("\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440", 2),
    ],
)  # fmt: skip
def test_every_script_has_a_known_number_of_words(text, words):
    assert count_words(text) == words


def test_cleaning_removes_invisible_characters_folds_white_space_and_composes_letters():
    assert clean_text("  cafe\u0301\n\n au\u00a0lait\ufeff ") == "caf\u00e9 au lait"
    hidden = "\u202eevil\u202c zero\u200bwidth\u2066 \x07bell\x1b[31m tag\U000e0041s \ud800"
    assert clean_text(hidden) == "evil zerowidth bell[31m tags"


@given(st.text(max_size=120), st.integers(min_value=0, max_value=8))
def test_cleaning_is_idempotent_and_first_words_never_exceed_the_limit(text, limit):
    once = clean_text(text)
    assert clean_text(once) == once
    assert all(unicodedata.category(char) not in {"Cc", "Cf", "Cs"} for char in once)
    assert count_words(first_words(text, limit)) <= limit


def test_first_words_keep_a_short_text_and_cut_a_long_one():
    assert first_words("one  two", 5) == "one two"
    assert first_words("one two three", 2) == "one two"
    assert first_words("see \u65e5\u672c\u8a9e\u3092\u8a71\u3059", 4) == "see \u65e5\u672c\u8a9e"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Skill MD", "skill-md"),
        ("skil-md", "skill-md"),
        ("ace", "ace-playbook"),
        ("Prose", "text (plain)"),
        ("markdown", None),
        ("md", None),
        ("e", None),
        ("", None),
    ],
)
def test_the_name_that_fits_comes_before_those_that_are_accepted(name, meant):
    known = ("text", "skill-md", "agents-md", "ace-playbook")
    aliases = {"prose": "text (plain)", "markdown": "html"}
    lead = "" if meant is None else f"{meant} (did you mean that?), or "
    assert suggested(name, known, "these", aliases) == f"{lead}these"


UNSAFE = (
    "", ".", "..", "../x", "a/b", "a\\b", "a..b", "-a", ".hidden", "_x", "a.", "a b", "a\n", "a\x00", "x" * 101,
    "CON", "con", "nul.txt", "COM1", "lpt9.log", "caf\u00e9", "a:b", "\u202ea", "C:",
)  # fmt: skip


def test_unsafe_names_are_refused():
    for good in ("a", "task-1", "A.b_c-9", "0", "x" * 100, "console", "com10", "nullable"):
        assert check_identifier(good) == good
    for bad in UNSAFE:
        with pytest.raises(ValueError, match="accepted: 1 to 100"):
            check_identifier(bad)
