"""What goes over the wire? Requests as a trainer's client sends them, replies as it reads them; nothing is done here.

Requests are read leniently, as the client's other server reads them: ``"12"``, ``12.0`` and ``true`` are whole numbers,
and keys that nobody knows are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, Field, StrictBool, WithJsonSchema

SPACE: Final = r"[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*"
WHOLE_NUMBER: Final = rf"^{SPACE}[+-]?[0-9]+(_[0-9]+)*(\.0+)?{SPACE}$"
"""Texts that are read as a whole number."""
_LENIENT: Final[list[dict[str, Any]]] = [
    {"type": "integer"},
    {"type": "boolean"},
    {"type": "string", "pattern": WHOLE_NUMBER},
]

Whole = Annotated[int, WithJsonSchema({"anyOf": _LENIENT})]
"""A whole number, or what is read as one."""
WholeOrNull = Annotated[int | None, WithJsonSchema({"anyOf": [*_LENIENT, {"type": "null"}]})]


class Stage(BaseModel):
    """One stage of the data mix."""

    name: str
    until_step: int = Field(description="First iteration that the stage is no longer in force at.")


class MetaReply(BaseModel):
    """What is served."""

    total_iterations: int
    stages: list[Stage]


class SampleRequest(BaseModel):
    """So many samples, please."""

    iteration: Whole = Field(description="Decides the stage that is drawn from.")
    batch_size: Whole = Field(description="How many samples; none for 0 and below.")


class Sample(BaseModel):
    """One prompt. All keys are always there."""

    sample_id: str
    dataset_id: str
    system_prompt: str | None
    prompt: str
    metadata: dict[str, Any] | None


class SampleReply(BaseModel):
    """The samples drawn."""

    samples: list[Sample]


class GradeItem(BaseModel):
    """One completion of a sample."""

    sample_id: str
    completion: str
    completion_tokens: WholeOrNull = None
    completion_index: WholeOrNull = Field(default=None, description="Handed back with the reward.")


class GradeRequest(BaseModel):
    """Completions to be graded."""

    iteration: Whole = Field(description="For the log only: any sample may be graded at any iteration.")
    items: list[GradeItem]
    parts: StrictBool = Field(default=False, description="Whether the reply tells the reward of every grader.")


class GradeReplyItem(BaseModel):
    """The reward of one completion."""

    sample_id: str
    reward: float = Field(description="Finite. 0.0 where a grader failed, and then `error` says so.")
    completion_index: int | None
    error: str | None = Field(default=None, description="Why there is no reward; absent when there is one.")
    parts: dict[str, float] | None = Field(
        default=None,
        description="Rewards by name of the grader, neither weighted nor multiplied; absent when not asked for.",
    )


class GradeReply(BaseModel):
    """The rewards, in the order of the request's items."""

    results: list[GradeReplyItem]


class Refusal(BaseModel):
    """Why a request was refused."""

    detail: str


class FieldProblem(BaseModel):
    """One thing wrong with a body."""

    type: str
    loc: list[str | int] = Field(description="Where in the request.")
    msg: str


class BadBody(BaseModel):
    """Everything wrong with a body."""

    detail: list[FieldProblem]


class Health(BaseModel):
    """The server is up."""

    status: str
