"""Schema of the chat completion requests that the service accepts.

Options that only shape a sample change nothing, as agents send what their authors like. What an answer would have to show and
cannot is refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tfgrpo.stores.frozen_json import mapping_of

MODEL_NAME: Final = "simulated"


class _Part(BaseModel):
    """Part of a request; fields beyond those named are ignored."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True)


class _TextPart(_Part):
    type: Literal["text"]
    text: str


class MadeCall(NamedTuple):
    """A call that the assistant made."""

    id: str
    name: str
    arguments: str


class ChatMessage(_Part):
    """One message of the dialogue."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_TextPart] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    invalid_request: str | None = None

    @property
    def text(self) -> str:
        """Return the content as one text."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""

    @property
    def calls(self) -> list[MadeCall]:
        """Return its calls. Raises ``LookupError`` or ``TypeError`` for what is none."""
        functions = [(call["id"], call["function"]) for call in self.tool_calls or ()]
        return [MadeCall(key, function["name"], function["arguments"]) for key, function in functions]


class ChatBody(_Part):
    """The body of ``POST /v1/chat/completions``."""

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    seed: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["auto", "none", "required"] | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: Literal[0] | None = None
    stop: str | list[str] | None = None
    n: Literal[1] | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None

    @property
    def system(self) -> str:
        """Return the system messages as one text."""
        return "\n".join(message.text for message in self.messages if message.role in {"system", "developer"})

    @property
    def limit(self) -> int | None:
        """Return the largest number of completion tokens."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def stopped(self, text: str) -> str:
        """Return the text before the first stop sequence."""
        for stop in [self.stop] if isinstance(self.stop, str) else self.stop or ():
            text = text.partition(stop)[0] if stop else text
        return text

    @property
    def offered(self) -> frozenset[str]:
        """Return the names of the tools that may be called."""
        if self.tool_choice == "none":
            return frozenset()
        return frozenset(tool["function"]["name"] for tool in self.tools or ())

    @property
    def demanded(self) -> dict[str, Any] | None:
        """Return the function that has to be called: the one that is named, or the last where any will do."""
        if self.tool_choice in (None, "auto", "none"):
            return None
        chosen = mapping_of(mapping_of(self.tool_choice).get("function")).get("name")
        functions = (tool["function"] for tool in reversed(self.tools or []))
        return next((each for each in functions if chosen in (None, each["name"])), None)

    @property
    def schema_body(self) -> dict[str, Any] | None:
        """Return the schema that the answer has to follow."""
        wanted = mapping_of(self.response_format).get("json_schema")
        return None if wanted is None else wanted.get("schema", {})

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        offered = self.offered  # also what is no tool fails here
        if self.tool_choice not in (None, "auto", "none") and not (offered and self.demanded):
            raise ValueError("tool_choice asks for a tool that is not offered")
        waiting: set[str] = set()
        for message in self.messages:
            if message.role == "tool":
                if message.tool_call_id not in waiting:
                    raise ValueError(f"no call {message.tool_call_id!r} waits for a message of role tool")
                waiting.discard(message.tool_call_id)
            elif waiting:
                break
            waiting |= {call.id for call in message.calls}
        if waiting:
            raise ValueError(f"tool calls without an answer: {', '.join(sorted(waiting))}")
        return self


def error_body(message: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """Return the body of an answer whose status is not 200."""
    return {
        "error": {"message": f"SIMULATED: {message}", "type": "invalid_request_error", "param": param, "code": code}
    }


def invalid_request(error: ValidationError) -> dict[str, Any]:
    """Return the error body for an invalid request; it names the first field at fault."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    param = ".".join(str(part) for part in first["loc"])
    message = f"Invalid value for {param or 'the request'}: {first['msg']}"
    return error_body(message, param=param or None, code="invalid_value")
