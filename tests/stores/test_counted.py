"""Promises of ``tfgrpo.stores.counted``."""

from __future__ import annotations

import pytest

from tfgrpo.stores.counted import counted


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 lessons"), (1, "1 lesson"), (2, "2 lessons"), (12_345, "12,345 lessons")]
)
def test_the_noun_is_in_the_number_that_it_has(count: int, said: str) -> None:
    assert counted(count, "lesson") == said
