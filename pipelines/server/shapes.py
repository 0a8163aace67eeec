"""Requests of the data server; ``openapi.yaml`` describes them, and the replies.

They are read leniently, as by the server that this one replaces: ``"12"``, ``12.0`` and ``true`` are whole numbers, and
unknown keys are ignored.
"""

from __future__ import annotations

from pydantic import BaseModel, StrictBool


class SampleRequest(BaseModel):
    """A request for samples."""

    iteration: int
    batch_size: int
    """None for 0 and below."""


class GradeItem(BaseModel):
    """One completion of a sample."""

    sample_id: str
    completion: str
    completion_tokens: int | None = None
    completion_index: int | None = None


class GradeRequest(BaseModel):
    """A request to grade completions."""

    iteration: int
    """For the log only."""
    items: list[GradeItem]
    parts: StrictBool = False
    """Whether the reply has the reward of every grader."""
