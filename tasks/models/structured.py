"""Turn text into checked values: strict JSON parsing, and a conversation that returns the error to the model.

No syntax is mended here: no trailing comma is dropped, no missing brace guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from tfgrpo.rewarders.judge.model import corrected
from tfgrpo.rewarders.text.answers import fenced_blocks
from tfgrpo.stores.canonical import canonical_json
from tfgrpo.tasks.models.base import AnswerSchema, ChatReply, Message

_T = TypeVar("_T")

_OPENING = re.compile(r"[ \t]*(```)[^\n`]*")
_CLOSING = re.compile(r"[ \t]*(```)[ \t]*")
_REASONING = re.compile(r"\A<think>.*?</think>", re.DOTALL)
"""Reasoning that the server left in the answer."""
_ENTRY = re.compile(r"\s*,?\s*\{")
_MAX_REASON = 300


def parse_answer(text: str, schema: Mapping[str, Any]) -> Any:
    """Return the JSON value of a reply, valid under the JSON schema; ``null`` is never valid.

    The value may be in one fenced block with prose around it; two are ambiguous. Raises ``ValueError`` with a reason that
    the model can act on.
    """
    value = _load(_unfenced(text))
    if value is None:
        raise ValueError("the answer is null")
    fault = best_match(Draft202012Validator(schema).iter_errors(value))
    if fault is not None:
        raise ValueError(f"at {fault.json_path}: {fault.message}"[:_MAX_REASON])
    return value


def complete_entries(text: str, name: str) -> dict[str, Any] | None:
    """Return the object ``{..., name: [...]}`` of a text that was cut within that list, with its complete entries only.

    None when there is no such list or no complete entry. Entries are objects; anything else ends the list.
    """
    stripped = _without_reasoning(text)
    opening = re.match(rf'(?:```[^\n]*\n)?\s*(\{{.*?)"{re.escape(name)}"\s*:\s*\[', stripped, re.DOTALL)
    if opening is None:
        return None
    decoder = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    entries: list[Any] = []
    at = opening.end()
    while (entry := _ENTRY.match(stripped, at)) is not None:
        try:
            value, at = decoder.raw_decode(stripped, entry.end() - 1)
        except (ValueError, RecursionError):
            break
        entries.append(value)
    try:
        before: dict[str, Any] = decoder.decode(f'{opening[1]}"{name}": null}}')
    except (ValueError, RecursionError):
        return None
    return before | {name: entries} if entries else None


async def repair(
    parse: Callable[[str], _T],
    ask: Callable[[tuple[Message, ...]], Awaitable[ChatReply]],
    messages: tuple[Message, ...],
    schema: AnswerSchema,
    max_attempts: int,
) -> _T:
    """Ask until ``parse`` accepts the reply: each rejected one is sent back with the reason and the schema.

    Errors of ``ask`` pass through. Raises ``RepairExhausted`` with every (reply, reason) pair.
    """
    replies: list[ChatReply] = []

    async def fix(rejected: Sequence[tuple[str, str]]) -> str:
        conversation = list(messages)
        for text, reason in rejected:
            complaint = canonical_json({"error": reason, "schema": schema.schema})
            conversation += [Message("assistant", text), Message("user", complaint)]
        replies.append(await ask(tuple(conversation)))
        return replies[-1].message.content or ""

    def read(text: str) -> _T:
        try:
            return parse(text)
        except ValueError as error:
            cut = "the reply was cut off at the token limit; " if replies[-1].finish_reason == "length" else ""
            raise ValueError(f"{cut}{error}"[:_MAX_REASON]) from error

    return await corrected(read, fix, max_attempts, schema.name)


def _without_reasoning(text: str) -> str:
    return _REASONING.sub("", text.strip().lstrip("\ufeff")).strip()


def _unfenced(text: str) -> str:
    stripped = _without_reasoning(text)
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
