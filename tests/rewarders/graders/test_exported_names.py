"""The public door of the graders."""

from __future__ import annotations

from rewarders import graders


def test_the_listed_names_are_in_order_and_can_be_imported():
    assert graders.__all__ == sorted(graders.__all__)
    assert [name for name in graders.__all__ if not (name.isupper() or getattr(graders, name).__doc__)] == []
