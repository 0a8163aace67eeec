"""What does a sample's record say, and which part of a completion is graded? Reads; never trusts a shape.

A record comes from a dataset line: any JSON value at all, whatever its type says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfgrpo.rewarders.graders.base import GraderInput


def field(item: GraderInput, name: str) -> Any:
    """A field of the record; None when it is absent, or when the record is no object."""
    return item.record.get(name) if isinstance(item.record, Mapping) else None


def metadata(item: GraderInput, name: str) -> Any:
    """A field of the record's metadata; None when anything on the way to it is missing or no object."""
    found = field(item, "metadata")
    return found.get(name) if isinstance(found, Mapping) else None


def final_answer(item: GraderInput) -> str | None:
    """The final answer; None when there is none, or when it is white space."""
    return item.answer if item.answer and not item.answer.isspace() else None


def answer_or_completion(item: GraderInput, *, require_answer: bool) -> str | None:
    """The final answer, else the whole completion as generated; with ``require_answer`` the first or None."""
    answer = final_answer(item)
    return answer if answer is not None or require_answer else item.completion


def expected_label(item: GraderInput) -> str:
    """``answer`` of the record, else its ``expected_category``, as text and not stripped; empty when it has neither.

    A value that Python cannot write out (an integer of thousands of digits, extreme nesting) is as good as none.
    """
    expected = field(item, "answer") or field(item, "expected_category")
    try:
        return str(expected) if expected else ""
    except (ValueError, RecursionError):
        return ""
