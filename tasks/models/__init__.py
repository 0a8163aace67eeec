"""How are language models called? One protocol, a client for OpenAI-compatible endpoints, the journal in front of it.

The simulated model, a server of the same protocol, is in ``tasks.models.simulated``.
"""

from __future__ import annotations

from tasks.models.base import (
    AnswerSchema,
    ChatModel,
    ChatReply,
    ChatRequest,
    FinishReason,
    Message,
    Role,
    ToolCall,
    ToolSpec,
    Usage,
)
from tasks.models.chat import ChatClient
from tasks.models.endpoint import ApiKey, Endpoint, endpoint_of
from tasks.models.journaled import JournaledModel, call_key_of
from tasks.models.limiter import AdaptiveLimiter
from tasks.models.preflight import check_endpoint
from tasks.models.retry import RetryPolicy
from tasks.models.structured import parse_answer, repair
from tasks.models.transport import open_transport
from tasks.models.wire import WireOptions, request_digest

__all__ = [
    "AdaptiveLimiter",
    "AnswerSchema",
    "ApiKey",
    "ChatClient",
    "ChatModel",
    "ChatReply",
    "ChatRequest",
    "Endpoint",
    "FinishReason",
    "JournaledModel",
    "Message",
    "RetryPolicy",
    "Role",
    "ToolCall",
    "ToolSpec",
    "Usage",
    "WireOptions",
    "call_key_of",
    "check_endpoint",
    "endpoint_of",
    "open_transport",
    "parse_answer",
    "repair",
    "request_digest",
]
