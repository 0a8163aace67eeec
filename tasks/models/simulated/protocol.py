"""Schema of the chat completion requests that the service accepts.

A fake that accepts more than the original hides faults of its clients: names of functions and schemas, and schemas that are
to be followed strictly, keep OpenAI's rules here. What an answer would have to show and cannot is refused; options that only
shape a sample are accepted and change nothing, as agents send what their authors like.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tfgrpo.stores.frozen_json import mapping_of

MODEL_NAME = "simulated"
NAME: Final = r"^[A-Za-z0-9_-]{1,64}$"


def strict_fault(schema: Mapping[str, Any]) -> str | None:
    """Return why a schema cannot be followed strictly: every object is closed, and all of its properties are required."""
    if schema.get("type") != "object":
        return "a strict schema is an object at its root"
    for path, node in _objects(schema, "schema"):
        if node.get("additionalProperties") is not False:
            return f"{path}: 'additionalProperties' is required to be supplied and to be false"
        missing = node.get("properties", {}).keys() - set(node.get("required", ()))
        if missing:
            return f"{path}: 'required' is required to include every key in properties; missing {min(missing)!r}"
    return None


def _objects(value: object, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, dict):
        if value.get("type") == "object":
            yield path, value
        for key, inner in value.items():
            yield from _objects(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _objects(inner, f"{path}.{index}")


class Wire(BaseModel):
    """Part of a request, with no field beyond those named."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


class WireBody(Wire):
    """A whole request."""

    without_effect: ClassVar[frozenset[str]] = frozenset()
    """Names of options that are accepted with any value."""

    @model_validator(mode="before")
    @classmethod
    def _leave_out_what_has_no_effect(cls, value: Any) -> Any:
        dropped = cls.without_effect.intersection(value) if isinstance(value, dict) else ()
        return {name: part for name, part in value.items() if name not in dropped} if dropped else value


class _TextPart(Wire):
    type: Literal["text"]
    text: str


class _CalledFunction(Wire):
    name: str = Field(pattern=NAME)
    arguments: str


class _WireToolCall(Wire):
    id: str
    type: Literal["function"] = "function"
    function: _CalledFunction


class WireMessage(Wire):
    """One message of the dialogue."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_TextPart] | None = None
    name: str | None = None
    tool_calls: list[_WireToolCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None

    @property
    def text(self) -> str:
        """Return the content as one text."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"a message of role {self.role} has no tool_calls")
        if self.content is None and not self.tool_calls:
            raise ValueError("content is required")
        if (self.tool_call_id is None) is (self.role == "tool"):
            raise ValueError("tool_call_id belongs to messages of role tool, and to no other")
        return self


class _Named(Wire):
    name: str = Field(pattern=NAME)
    body: dict[str, Any] = Field(default_factory=dict)
    strict: bool | None = None

    @model_validator(mode="after")
    def _can_be_followed(self) -> Self:
        if self.strict and (fault := strict_fault(self.body)):
            raise ValueError(fault)
        return self


class OfferedFunction(_Named):
    """A function that may be called."""

    description: str = ""
    body: dict[str, Any] = Field(alias="parameters", default_factory=dict)


class _OfferedTool(Wire):
    type: Literal["function"]
    function: OfferedFunction


class _NamedSchema(_Named):
    description: str | None = None
    body: dict[str, Any] = Field(alias="schema", default_factory=dict)


class _ResponseFormat(Wire):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _NamedSchema | None = None

    @model_validator(mode="after")
    def _has_its_schema(self) -> Self:
        if (self.json_schema is None) is (self.type == "json_schema"):
            raise ValueError("json_schema belongs to the type json_schema, and to no other")
        return self


class _StreamOptions(Wire):
    include_usage: bool = False
    include_obfuscation: bool | None = None


class ChatBody(WireBody):
    """The body of ``POST /v1/chat/completions``."""

    without_effect = frozenset({
        "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "service_tier", "reasoning_effort", "verbosity",
        "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user", "metadata", "store", "prediction",
        "web_search_options",
    })  # fmt: skip
    model: str
    messages: list[WireMessage] = Field(min_length=1)
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    seed: int | None = None
    tools: list[_OfferedTool] | None = None
    tool_choice: Literal["auto", "none", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: _ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: Literal[0] | None = None
    stop: str | Annotated[list[str], Field(max_length=4)] | None = None
    modalities: list[Literal["text"]] | None = None
    n: Literal[1] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None

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
        return frozenset(tool.function.name for tool in self.tools or ())

    @property
    def demanded(self) -> OfferedFunction | None:
        """Return the function that has to be called: the one that is named, or the last where any will do."""
        if self.tool_choice in (None, "auto", "none"):
            return None
        chosen = mapping_of(mapping_of(self.tool_choice).get("function")).get("name")
        functions = (tool.function for tool in reversed(self.tools or []))
        return next((each for each in functions if chosen in (None, each.name)), None)

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options are only allowed when stream is true")
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise ValueError("max_tokens and max_completion_tokens exclude each other")
        if self.tool_choice not in (None, "auto", "none") and self.demanded is None:
            raise ValueError("tool_choice asks for a tool that is not offered")
        if self.parallel_tool_calls is False and self.demanded is None:
            raise ValueError("parallel_tool_calls may be false only where tool_choice demands a call")
        return self

    @model_validator(mode="after")
    def _calls_are_answered(self) -> Self:
        open_calls: set[str] = set()
        for message in self.messages:
            if message.role == "tool":
                if message.tool_call_id not in open_calls:
                    raise ValueError(f"no call {message.tool_call_id!r} waits for a message of role tool")
                open_calls.discard(message.tool_call_id)
            elif open_calls:
                raise ValueError(f"tool calls without an answer: {', '.join(sorted(open_calls))}")
            open_calls |= {call.id for call in message.tool_calls or ()}
        if open_calls:
            raise ValueError(f"tool calls without an answer: {', '.join(sorted(open_calls))}")
        return self


def error_body(
    message: str, *, kind: str = "invalid_request_error", param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """Return the body of an answer whose status is not 200."""
    return {"error": {"message": f"SIMULATED: {message}", "type": kind, "param": param, "code": code}}


def refusal(error: ValidationError) -> dict[str, Any]:
    """Return the error body for an invalid request; it names the first field at fault."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    param = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return error_body(f"Unrecognized request argument supplied: {param}", param=param, code="unknown_parameter")
    return error_body(
        f"Invalid value for {param or 'the request'}: {first['msg']}", param=param or None, code="invalid_value"
    )
