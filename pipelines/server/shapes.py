"""Define the requests and replies of the data server.

Requests are read leniently, as by the server that it replaces: ``"12"``, ``12.0`` and ``true`` are whole numbers, and
unknown keys are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, Field, StrictBool, WithJsonSchema

SPACE: Final = r"[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*"
WHOLE_NUMBER: Final = rf"^{SPACE}[+-]?[0-9]+(_[0-9]+)*(\.0+)?{SPACE}$"
"""Pattern of texts that are read as a whole number."""
_LENIENT: Final[list[dict[str, Any]]] = [
    {"type": "integer"},
    {"type": "boolean"},
    {"type": "string", "pattern": WHOLE_NUMBER},
]

Whole = Annotated[int, WithJsonSchema({"anyOf": _LENIENT})]
"""A whole number, or a value that is read as one."""
WholeOrNull = Annotated[int | None, WithJsonSchema({"anyOf": [*_LENIENT, {"type": "null"}]})]


class Stage(BaseModel):
    """One stage of the data mix."""

    name: str
    until_step: int = Field(description="First iteration after the stage.")


class MetaReply(BaseModel):
    """The served mix."""

    total_iterations: int
    stages: list[Stage]


class SampleRequest(BaseModel):
    """A request for samples."""

    iteration: Whole = Field(description="Decides the stage.")
    batch_size: Whole = Field(description="Number of samples; none for 0 and below.")


class Sample(BaseModel):
    """One prompt. All keys are always present."""

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
    completion_index: WholeOrNull = Field(default=None, description="Returned with the reward.")


class GradeRequest(BaseModel):
    """A request to grade completions."""

    iteration: Whole = Field(description="For the log only: any sample may be graded at any iteration.")
    items: list[GradeItem]
    parts: StrictBool = Field(default=False, description="Whether the reply has the reward of every grader.")


class GradeReplyItem(BaseModel):
    """The reward of one completion."""

    sample_id: str
    reward: float = Field(description="Finite. 0.0 if a grader failed, with the reason in `error`.")
    completion_index: int | None
    error: str | None = Field(default=None, description="Why there is no reward; absent when there is one.")
    parts: dict[str, float] | None = Field(
        default=None,
        description="Rewards by grader, neither weighted nor multiplied; absent without `parts` in the request.",
    )


class GradeReply(BaseModel):
    """The rewards, in the order of the request's items."""

    results: list[GradeReplyItem]


class Refusal(BaseModel):
    """The reason of a refusal."""

    detail: str


class FieldProblem(BaseModel):
    """One problem of a body."""

    type: str
    loc: list[str | int] = Field(description="Path within the request.")
    msg: str


class BadBody(BaseModel):
    """All problems of a body."""

    detail: list[FieldProblem]


class Health(BaseModel):
    """The server is up."""

    status: str
