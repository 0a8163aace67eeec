"""Read conversations and OpenTelemetry traces of GenAI calls as items.

Conversations are objects with ``messages``, as in files for fine-tuning: the last assistant message is the answer, and other
columns stay. Traces are OTLP in JSON: what a model replied there is no reference, and becomes ``metadata.reply``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from tfgrpo.pipelines.datasets.sources import open_source
from tfgrpo.pipelines.problems import CappedProblems
from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.stores.canonical import sha256_hex
from tfgrpo.stores.errors import DatasetError, Problem
from tfgrpo.stores.frozen_json import json_of
from tfgrpo.stores.text import quoted_names

_MESSAGES: Final = ("messages", "conversations", "conversation", "prompt", "input")
_ACCEPTED: Final = "objects with 'messages' (conversations), or with 'resourceSpans' (OTLP traces in JSON)"
_SYSTEM: Final = frozenset({"system", "developer"})
_EVENT: Final = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message")
_INDEXED: Final = re.compile(r"gen_ai\.(prompt|completion)\.(\d+)\.(role|content)")


class _Turn(NamedTuple):
    role: str
    text: str


class Imported(NamedTuple):
    """Items as rows of a dataset."""

    rows: list[dict[str, Any]]
    skipped: int
    """Spans and conversations without a message of a user, or with one that is not of text, and repetitions."""


def import_items(path: Path) -> Imported:
    """Return the items of a file. Raise ``DatasetError`` for one that cannot be read."""
    problems, found, read = CappedProblems(), dict[str, dict[str, Any]](), 0
    for where, value in _values(path, problems):
        conversations = list(_conversations(value))
        if not conversations and not {"resourceSpans", "resource_spans"} & set(value):
            problems.add(Problem(where, f"an object with {quoted_names(value)}", _ACCEPTED))
        for turns, replied in conversations:
            read += 1
            item = _item(turns, replied)
            item = item if item is None or replied else {**_beside_messages(value), **item}
            if item is not None and (item["id"] not in found or item.get("metadata") or item.get("answer")):
                found[item["id"]] = item  # of a conversation in several spans the last reply counts
    problems.raise_problems(DatasetError, str(path))
    if not found:
        raise DatasetError.one(str(path), "no message of a user in it", f"{_ACCEPTED}, with the texts of messages")
    return Imported(list(found.values()), read - len(found))


def _values(path: Path, problems: CappedProblems) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects of JSON lines or of an array, or the one object that a file is."""
    whole = None
    if path.suffix == ".json":
        with suppress(OSError):  # what cannot be read, the reader of lines explains
            whole = json_of(path.read_bytes())
    if isinstance(whole, dict):
        yield str(path), whole
        return
    for row in open_source(str(path), FieldMap()).rows():
        if isinstance(row, Problem):
            problems.add(row)
        else:
            yield f"{path}:{row.line}", row.values


def _conversations(value: Mapping[str, Any]) -> Iterator[tuple[list[_Turn], bool]]:
    """Yield the turns of each conversation, and whether the last ones are replies of a model in a trace."""
    for name in _MESSAGES:
        if isinstance(value.get(name), list):
            yield _turns(value[name]), False
            break
    for resource in _rows(value, "resourceSpans", "resource_spans"):
        for scope in _rows(resource, "scopeSpans", "scope_spans"):
            for span in _rows(scope, "spans"):
                if turns := _turns_of_span(span):
                    yield turns, True


def _beside_messages(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the other columns of a conversation: its answer, where that is none of the messages."""
    return {name: held for name, held in value.items() if name not in (*_MESSAGES, "id")}


def _item(turns: Sequence[_Turn], replied: bool) -> dict[str, Any] | None:
    """Return one item: a single question as it is, a longer conversation as its transcript."""
    system = "\n\n".join(turn.text for turn in turns if turn.role in _SYSTEM and turn.text)
    talk = [turn for turn in turns if turn.role in {"user", "assistant"} and turn.text.strip()]
    last = max((place for place, turn in enumerate(talk) if turn.role == "user"), default=None)
    if last is None:
        return None
    asked, reply = talk[: last + 1], "\n\n".join(turn.text for turn in talk[last + 1 :][-1:])
    single = len(asked) == 1
    prompt = asked[0].text if single else "\n\n".join(f"{turn.role}: {turn.text}" for turn in asked)
    item: dict[str, Any] = {"id": sha256_hex(f"{system}\n{prompt}")[:16], "prompt": prompt}
    if system:
        item["system_prompt"] = system
    if reply:
        item |= {"metadata": {"reply": reply}} if replied else {"answer": reply}
    return item


def _turns_of_span(span: Mapping[str, Any]) -> list[_Turn]:
    """Return the messages of a span: of its attributes or events, in any form of the GenAI conventions."""
    own = _attributes(span)
    events = [(str(event.get("name")), _attributes(event)) for event in _rows(span, "events")]
    for held in (own, *(attributes for _, attributes in events)):
        if "gen_ai.input.messages" in held:
            system = _Turn("system", _text(_parsed(held.get("gen_ai.system_instructions"))))
            asked, replied = (_parsed(held.get(f"gen_ai.{side}.messages")) for side in ("input", "output"))
            return [system, *_turns(asked), *_turns(replied)]
    turns: list[_Turn] = []
    for name, held in events:
        if match := _EVENT.fullmatch(name):
            turns.append(_Turn(match[1], _text(_parsed(held.get("content")))))
        elif name == "gen_ai.choice":
            message = _parsed(held.get("message"))
            said = message.get("content") if isinstance(message, Mapping) else message or held.get("content")
            turns.append(_Turn("assistant", _text(_parsed(said))))
        elif name == "gen_ai.content.prompt":
            turns += _turns(_parsed(held.get("gen_ai.prompt")))
        elif name == "gen_ai.content.completion":
            turns += _turns(_parsed(held.get("gen_ai.completion")))
    return turns or _indexed(own)


def _indexed(attributes: Mapping[str, Any]) -> list[_Turn]:
    """Return messages whose fields are attributes each: ``gen_ai.prompt.0.content``."""
    found: dict[tuple[bool, int], dict[str, Any]] = {}
    for name, value in attributes.items():
        if match := _INDEXED.fullmatch(name):
            found.setdefault((match[1] == "completion", int(match[2])), {})[match[3]] = value
    return [
        _Turn(str(held.get("role", "assistant" if replied else "user")), _text(_parsed(held.get("content"))))
        for (replied, _), held in sorted(found.items())
    ]


def _turns(messages: object) -> list[_Turn]:
    rows = [_named(row) for row in _objects(messages)]
    if any(_shows_more(row.get("content", row.get("parts"))) for row in rows if row.get("role") == "user"):
        return []  # without its image it would be another question
    return [_Turn(str(row.get("role", "user")), _text(row.get("content", row.get("parts")))) for row in rows]


def _named(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message in the form of ShareGPT, ``from`` and ``value``, as one with a role and a content."""
    if "from" not in message:
        return message
    role = str(message["from"])
    return {"role": {"human": "user", "gpt": "assistant"}.get(role, role), "content": message.get("value")}


def _shows_more(content: object) -> bool:
    """Whether a message has parts that are neither text nor results of tools."""
    kinds = (str(each.get("type", "text")) for each in _objects(content))
    return any("text" not in kind and "tool" not in kind for kind in kinds)


def _text(content: object) -> str:
    """Return a text, or the texts among the parts of a message."""
    if isinstance(content, str):
        return content
    parts = (part for part in _objects(content) if "text" in str(part.get("type", "text")))  # input_text, output_text
    texts = (part.get("text", part.get("content")) for part in parts)
    return "\n".join(text for text in texts if isinstance(text, str))


def _parsed(value: object) -> Any:
    """Return what JSON in a text stands for; any other text as it is."""
    held = json_of(value) if isinstance(value, str) and value.lstrip()[:1] in {"[", "{"} else None
    return value if held is None else held


def _attributes(holder: Mapping[str, Any]) -> dict[str, Any]:
    return {str(pair.get("key")): _any_value(pair.get("value")) for pair in _rows(holder, "attributes")}


def _any_value(value: object) -> Any:
    """Return an ``AnyValue`` of OTLP as JSON."""
    if not isinstance(value, Mapping):
        return value
    array, pairs = (value.get(f"{kind}Value") for kind in ("array", "kvlist"))
    if isinstance(array, Mapping):
        return [_any_value(each) for each in array.get("values", [])]
    if isinstance(pairs, Mapping):
        return {str(each.get("key")): _any_value(each.get("value")) for each in _rows(pairs, "values")}
    return next(iter(value.values()), None)


def _rows(holder: Mapping[str, Any], *names: str) -> list[Mapping[str, Any]]:
    return _objects(next((holder[name] for name in names if name in holder), None))


def _objects(value: object) -> list[Mapping[str, Any]]:
    """Return the objects of a list; none for anything else."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
