"""Identifiers become file names, so nothing that could leave a directory is one."""

from __future__ import annotations

import pytest

from tfgrpo.stores.text import check_identifier


@pytest.mark.parametrize("good", ["a", "task-1", "A.b_c-9", "0", "x" * 100, "console", "com10", "nullable"])
def test_safe_names_are_accepted_as_they_are(good):
    assert check_identifier(good) == good


@pytest.mark.parametrize(
    "bad",
    [
        "", ".", "..", "../x", "a/b", "a\\b", "a..b", "-a", ".hidden", "_x", "a.", "a b", "a\n", "a\x00", "x" * 101,
        "CON", "con", "nul.txt", "COM1", "lpt9.log", "caf\u00e9", "a:b", "\u202ea", "C:",
    ],
)  # fmt: skip
def test_unsafe_names_are_refused(bad):
    with pytest.raises(ValueError, match="accepted: 1 to 100"):
        check_identifier(bad)
