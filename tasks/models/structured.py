"""How does text become a checked value? Strict parsing, and a conversation in which a model is asked again with the error.

Mends nothing by itself: no trailing comma, no guess at a missing brace. Knows no particular schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn, TypeVar

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from tfgrpo.rewarders.repairing import corrected
from tfgrpo.rewarders.text.fences import fenced_blocks
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.tasks.models.base import AnswerSchema, ChatReply, Message

T = TypeVar("T")

_OPENING = re.compile(r"[ \t]*(```)[^\n`]*")
_CLOSING = re.compile(r"[ \t]*(```)[ \t]*")
_THOUGHT = re.compile(r"\A<think>.*?</think>", re.DOTALL)
"""What reasoning models say to themselves, where the server does not take it out of the answer."""
_ENTRY = re.compile(r"\s*,?\s*\{")
_MAX_REASON = 300


def parse_answer(text: str, schema: AnswerSchema) -> Any:
    """The JSON value a reply consists of, valid under the schema.

    A reply may wrap the value in one fenced block, with prose around it; two are ambiguous. Raises ``ValueError``
    with a reason the model can act on. ``null`` is never an answer, even where the schema forgets to exclude it.
    """
    value = _load(_unfenced(text))
    if value is None:
        raise ValueError("the answer is null")
    fault = best_match(Draft202012Validator(schema.schema).iter_errors(value))
    if fault is not None:
        where = fault.json_path
        raise ValueError(f"at {where}: {fault.message}"[:_MAX_REASON])
    return value


def complete_entries(text: str, name: str) -> dict[str, list[Any]] | None:
    """The object ``{name: [...]}`` of a text that ends in the middle of that list, without the entry that was cut.

    None when there is no such list or no complete entry. Entries are objects; anything else ends the list.
    """
    stripped = _THOUGHT.sub("", text.strip().lstrip("\ufeff")).strip()
    opening = re.match(rf'(?:```[^\n]*\n)?\s*\{{\s*"{re.escape(name)}"\s*:\s*\[', stripped)
    decoder = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    entries: list[Any] = []
    at = opening.end() if opening is not None else len(stripped)
    while (entry := _ENTRY.match(stripped, at)) is not None:
        try:
            value, at = decoder.raw_decode(stripped, entry.end() - 1)
        except (ValueError, RecursionError):
            break
        entries.append(value)
    return {name: entries} if entries else None


async def repair(
    parse: Callable[[str], T],
    ask: Callable[[tuple[Message, ...]], Awaitable[ChatReply]],
    messages: tuple[Message, ...],
    schema: AnswerSchema,
    max_attempts: int,
) -> T:
    """``rewarders.repairing`` in a conversation: reply, reason and schema go back to the model behind the messages so far.

    Errors of ``ask`` pass through. Raises ``RepairExhausted`` with every (reply, reason) pair.
    """
    replies: list[ChatReply] = []

    async def fix(refused: Sequence[tuple[str, str]]) -> str:
        behind = (
            message
            for text, reason in refused
            for message in (Message("assistant", text), Message("user", _complaint(reason, schema)))
        )
        replies.append(await ask((*messages, *behind)))
        return replies[-1].message.content or ""

    def read(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise ValueError(_reason(error, replies[-1])) from error

    return await corrected(read, fix, max_attempts, schema.name)


def _reason(error: ValueError, reply: ChatReply) -> str:
    cut = "the reply was cut off at the token limit; " if reply.finish_reason == "length" else ""
    return f"{cut}{error}"[:_MAX_REASON]


def _complaint(reason: str, schema: AnswerSchema) -> str:
    return canonical_json({"error": reason, "schema": schema.schema})


def _unfenced(text: str) -> str:
    stripped = _THOUGHT.sub("", text.strip().lstrip("\ufeff")).strip()
    if stripped.startswith(("{", "[")):
        return stripped
    blocks = [stripped[slice(*each)] for each in fenced_blocks(stripped, _OPENING, _CLOSING)]
    if len(blocks) > 1:
        raise ValueError(f"the answer holds {len(blocks)} fenced blocks, one JSON value was asked for")
    return blocks[0] if blocks else stripped


def _load(text: str) -> Any:
    if not text.strip():
        raise ValueError("the answer is empty")
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        raise ValueError(f"the answer is no JSON: {error}") from None
    except RecursionError:
        raise ValueError("the answer is nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("an object of the answer names a key twice")
    return made
