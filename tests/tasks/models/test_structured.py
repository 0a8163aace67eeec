from __future__ import annotations

import json

import pytest

from tfgrpo.stores.errors import ModelTimeout, RepairExhausted
from tfgrpo.tasks.models.base import AnswerSchema, ChatReply, Message
from tfgrpo.tasks.models.structured import complete_entries, parse_answer, repair

SCHEMA = AnswerSchema(
    "thing",
    {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False},
)
ANYTHING = AnswerSchema("any", {})


def reply(text: str | None, finish: str = "stop") -> ChatReply:
    return ChatReply(Message("assistant", text), finish, None, 0.0, None, "m")  # type: ignore[arg-type]


class Asked:
    def __init__(self, *replies: ChatReply) -> None:
        self.replies = list(replies)
        self.conversations: list[tuple[Message, ...]] = []

    async def __call__(self, messages: tuple[Message, ...]) -> ChatReply:
        self.conversations.append(messages)
        return self.replies.pop(0)


def parse(text: str) -> int:
    return int(parse_answer(text, SCHEMA.schema)["n"])


@pytest.mark.parametrize(
    "text",
    [
        '{"n": 3}',
        ' \n{"n": 3}\n',
        '\ufeff{"n": 3}',
        '```json\n{"n": 3}\n```',
        'Here you are:\n```\n{"n": 3}\n```\nAnything else?',
    ],
)
def test_an_answer_is_found_bare_or_in_one_fence(text: str) -> None:
    assert parse(text) == 3


def test_a_fence_inside_a_json_string_is_text() -> None:
    text = json.dumps({"s": "```\n{}\n```\n"})
    assert parse_answer(text, ANYTHING.schema) == {"s": "```\n{}\n```\n"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("null", "null"),
        ("```\nnull\n```", "null"),
        ("three", "no JSON"),
        ('{"n": 3,}', "no JSON"),
        ('{"n": 3} {"n": 4}', "no JSON"),
        ('{"n": "3"}', r"\$\.n"),
        ('{"n": true}', r"\$\.n"),
        ('{"n": null}', r"\$\.n"),
        ("{}", "required"),
        ('{"n": 3, "m": 1}', "m"),
        ("[3]", "object"),
        ('{"n": NaN}', "NaN"),
        ('{"n": 1, "n": 2}', "twice"),
        ('```\n{"n": 1}\n```\n```\n{"n": 2}\n```\n', "2 fenced blocks"),
        ("[" * 100_000, "nested"),
    ],
)
def test_an_invalid_answer_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse(text)


async def test_a_valid_answer_needs_one_call() -> None:
    ask = Asked(reply('{"n": 1}'))
    assert await repair(parse, ask, (Message("user", "q"),), SCHEMA, 3) == 1
    assert ask.conversations == [(Message("user", "q"),)]


async def test_reply_reason_and_schema_are_appended_to_the_conversation() -> None:
    ask = Asked(reply("oops"), reply('{"n": "x"}'), reply('{"n": 2}'))
    assert await repair(parse, ask, (Message("user", "q"),), SCHEMA, 3) == 2
    last = ask.conversations[-1]
    assert [message.role for message in last] == ["user", "assistant", "user", "assistant", "user"]
    assert last[1].content == "oops"
    complaint = json.loads(last[2].content or "")
    assert complaint["schema"] == SCHEMA.schema
    assert "no JSON" in complaint["error"]
    assert last[:3] == ask.conversations[1]


async def test_exhaustion_carries_every_attempt() -> None:
    ask = Asked(reply("one"), reply(None), reply('{"n": ', "length"))
    with pytest.raises(RepairExhausted) as caught:
        await repair(parse, ask, (), SCHEMA, 3)
    assert [text for text, _ in caught.value.attempts] == ["one", "", '{"n": ']
    assert "cut off at the token limit" in caught.value.attempts[2][1]
    assert ask.replies == []


async def test_a_broken_call_is_not_a_broken_answer() -> None:
    async def ask(messages: tuple[Message, ...]) -> ChatReply:
        raise ModelTimeout("late")

    with pytest.raises(ModelTimeout):
        await repair(parse, ask, (), SCHEMA, 3)


async def test_at_least_one_attempt_is_needed() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        await repair(parse, Asked(), (), SCHEMA, 0)


CUT = [
    ('{"operations": [{"op": "keep"}, {"op": "add", "text": "a', [{"op": "keep"}]),
    ('```json\n{"operations": [{"op": "keep"}, {"op"', [{"op": "keep"}]),
    ('<think>[{</think>{ "operations" : [ {"text": "]}{"} ,', [{"text": "]}{"}]),
    ('{"operations": [{"op": "keep"}]', [{"op": "keep"}]),
    ('{"operations": [{"op": "keep"}, {"op": 1, "op": 2}', [{"op": "keep"}]),
    ('{"operations": [{"op": "ke', None),
    ('{"lessons": [{"op": "keep"}', None),
    ('<think>{"operations": [{"op": "keep"}', None),
    ("", None),
]


@pytest.mark.parametrize(("text", "entries"), CUT)
def test_the_complete_entries_of_a_cut_off_list_are_read(text, entries):
    assert complete_entries(text, "operations") == (entries and {"operations": entries})
