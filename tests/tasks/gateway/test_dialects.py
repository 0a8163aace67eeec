"""Each protocol: where lessons go, what a reply says, and that a stream says the same as the whole reply."""

import json
from typing import Any

import pytest

from tests.support.agents.endpoint import (
    USAGE,
    chat_body,
    chat_events,
    event,
    message_body,
    message_events,
    response_body,
    response_events,
)
from tfgrpo.stores.json_values import compact_json
from tfgrpo.tasks.gateway.call import data_of, events_in, read_reply
from tfgrpo.tasks.gateway.dialects import CHAT, MESSAGES, RESPONSES, Document, is_usage_alone, tool_names, tool_results
from tfgrpo.tasks.gateway.session import Additions, outgoing
from tfgrpo.tasks.models.base import TokenUsage, ToolCall

ADDED = Additions(lessons="L")
USER = {"role": "user", "content": "hi"}
BLOCK = {"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}
NEW_BLOCK = {"type": "text", "text": "L"}
CALLS = [("call_1", "add", '{"left": 1}'), ("call_2", "shout", "{}")]


def forwarded(dialect, body, additions=ADDED):
    value: dict[str, Any] = json.loads(outgoing(dialect, Document(json.dumps(body).encode()), additions).raw)
    return value


def system(content, role="system"):
    return {"role": role, "content": content}


IN_CHAT = [
    ([USER], [system("L"), USER]),
    ([], [system("L")]),
    ([system("S"), USER], [system("S\n\nL"), USER]),
    ([system(""), USER], [system("L"), USER]),
    ([system(None), USER], [system("L"), USER]),
    ([{"role": "system"}, USER], [system("L"), USER]),
    ([system("S", "developer"), USER], [system("S\n\nL", "developer"), USER]),
    ([system("A"), system("B"), USER, system("C")], [system("A"), system("B\n\nL"), USER, system("C")]),
    ([USER, system("S"), USER], [USER, system("S\n\nL"), USER]),
    ([system([BLOCK]), USER], [system([BLOCK, NEW_BLOCK]), USER]),
]
IN_MESSAGES = [({}, "L"), ({"system": "S"}, "S\n\nL"), ({"system": [BLOCK]}, [BLOCK, NEW_BLOCK]), ({"system": []}, [NEW_BLOCK])]
IN_RESPONSES = [({}, "L"), ({"instructions": None}, "L"), ({"instructions": "S"}, "S\n\nL")]


@pytest.mark.parametrize(("dialect", "before", "after"), [
    *((CHAT, {"messages": before, "n": 1}, {"messages": after}) for before, after in IN_CHAT),
    *((RESPONSES, {"input": "hi", **before}, {"instructions": after}) for before, after in IN_RESPONSES),
    *((MESSAGES, {"messages": [USER], **before}, {"system": after}) for before, after in IN_MESSAGES),
])  # fmt: skip
def test_lessons_follow_the_agents_own_system_text(dialect, before, after):
    assert forwarded(dialect, before) == {**before, **after}


@pytest.mark.parametrize("role", ["system", "developer"])
def test_lessons_follow_the_system_messages_of_an_agent_that_keeps_its_conversation_and_has_no_instructions(role):
    blocks = [{"type": "input_text", "text": "S"}]
    taught = system([*blocks, {"type": "input_text", "text": "L"}], role)
    asked = [system("A", role), system(blocks, role), USER, system("B", role)]
    assert forwarded(RESPONSES, {"input": asked, "store": False}) == {"input": [asked[0], taught, *asked[2:]], "store": False}
    assert forwarded(RESPONSES, {"input": asked[:1], "store": False})["input"] == [system("A\n\nL", role)]
    for kept in ({"store": True}, {}, {"store": False, "instructions": "S"}):  # else a later request had lessons twice
        sent = forwarded(RESPONSES, {"input": asked, **kept})
        assert (sent["input"], sent["instructions"][-1]) == (asked, "L")
    assert forwarded(RESPONSES, {"input": [USER, *asked], "store": False})["instructions"] == "L"


def test_requests_that_differ_by_ids_of_the_client_alone_ask_the_same():
    def digest(dialect, body):
        return outgoing(dialect, Document(json.dumps(body).encode()), ADDED).digest

    def asked(session, model="1", text="hi"):
        turn = {"internal_chat_message_metadata_passthrough": {"turn_id": session}}
        given = {"type": "message", "id": f"msg_{session}", **turn, "role": "user", "content": text}
        call = {"type": "function_call", "id": f"fc_{model}", "call_id": "c", "name": "add", "arguments": "{}", **turn}
        output = {"type": "function_call_output", "id": f"fco_{session}", "call_id": "c", "output": "7", **turn}
        referred = {"type": "item_reference", "id": f"msg_{model}"}
        labels = {"prompt_cache_key": session, "client_metadata": {"turn": session}, "safety_identifier": session}
        return {"model": "m", "input": [given, call, output, referred, "?"], "store": False, **labels}

    assert digest(RESPONSES, asked("a")) == digest(RESPONSES, asked("b"))
    assert len({digest(RESPONSES, each) for each in (asked("a"), asked("a", model="2"), asked("a", text="ho"))}) == 3
    for dialect in (CHAT, MESSAGES):
        first, second = ({"messages": [USER], "metadata": {"user_id": each}, "user": each} for each in "ab")
        assert digest(dialect, first) == digest(dialect, second) != digest(dialect, {**first, "messages": [USER, USER]})
        raw = outgoing(dialect, Document(json.dumps(first).encode()), ADDED).raw
        assert json.loads(raw)["metadata"] == {"user_id": "a"}


def test_tools_are_offered_as_functions_within_namespaces_and_in_items_of_the_input():
    add, shout = {"type": "function", "name": "add"}, {"type": "custom", "name": "shout"}
    books, search = {"type": "namespace", "name": "mcp__books", "tools": [add]}, {"type": "web_search"}
    assert list(tool_names({"input": "hi", "tools": [shout, books, search]})) == ["shout", "add", "web_search"]
    offered = {"type": "additional_tools", "role": "developer", "tools": [books]}
    body = {"input": [offered, system("S", "developer"), USER], "store": False}
    assert list(tool_names(body)) == ["add"]
    assert forwarded(RESPONSES, body)["input"] == [offered, system("S\n\nL", "developer"), USER]


@pytest.mark.parametrize("dialect", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize("body", [{"messages": "?"}, {"messages": 7, "instructions": [1], "system": {}}])
def test_a_request_that_lessons_do_not_fit_passes_unchanged_or_with_a_new_field(dialect, body):
    sent = forwarded(dialect, body)
    assert {name: sent[name] for name in body} == body


def test_a_request_that_holds_lessons_gets_no_others():
    block = "<lessons>\nMy own words.\n- Do: add.\n</lessons>"
    body = {"messages": [{"role": "user", "content": f"Heed this: {block}"}]}
    assert forwarded(CHAT, body) == body
    escaped = json.dumps(body).replace("<", "\\u003c").encode()
    assert outgoing(CHAT, Document(escaped), ADDED).raw == escaped


def test_models_are_mapped_by_pattern():
    additions = Additions(lessons="L", models={"gpt-*": "qwen", "*": "other"})
    assert forwarded(CHAT, {"model": "gpt-5", "messages": []}, additions) == {"model": "qwen", "messages": [system("L")]}
    assert forwarded(MESSAGES, {"model": "claude", "system": "S"}, additions)["model"] == "other"


def test_sampling_is_written_into_what_the_protocol_has():
    additions = Additions(sampling={"temperature": 0.3, "seed": 7})
    for dialect, seed in ((CHAT, {"seed": 7}), (RESPONSES, {}), (MESSAGES, {})):
        assert forwarded(dialect, {"model": "m", "temperature": 1}, additions) == {"model": "m", "temperature": 0.3, **seed}


@pytest.mark.parametrize(("before", "after", "hidden"), [
    ({}, {}, True), ({"stream_options": None}, {}, True), ({"stream_options": {"include_usage": False}}, {}, True),
    ({"stream_options": {"include_obfuscation": False}}, {"include_obfuscation": False}, True),
    ({"stream_options": {"include_usage": True}}, {}, False),
])  # fmt: skip
def test_a_streamed_chat_is_asked_for_its_usage(before, after, hidden):
    out = outgoing(CHAT, Document(json.dumps({"stream": True, "messages": [], **before}).encode()), Additions())
    assert json.loads(out.raw)["stream_options"] == {**after, "include_usage": True}
    assert out.hides_usage is hidden


def test_only_the_chunk_that_is_there_for_its_usage_is_hidden():
    asked = chat_events("one two", {"stream_options": {"include_usage": True}})
    hidden = [is_usage_alone(data_of(event)) for event in asked]
    assert hidden == [*[False] * (len(asked) - 2), True, False]
    assert [CHAT.marks.search(event) is None for event in asked] == [*[True] * (len(asked) - 2), False, False]
    assert CHAT.marks.search(b'data: {"choices":\ndata:  [\ndata: ], "usage": {}}\n\n')
    said = {"choices": [{"delta": {"content": '"choices": [], "usage"'}}], "usage": USAGE}
    assert not is_usage_alone(json.dumps(said).encode())


@pytest.mark.parametrize(("dialect", "last"), [(RESPONSES, "response.completed"), (MESSAGES, "message_stop")])
def test_an_event_whose_type_is_no_text_is_passed_on_as_any_other(dialect, last):
    assert dialect.ends(compact_json({"type": last}).encode())
    assert not dialect.ends(compact_json({"type": ["?"], "within": {"type": last}}).encode())


def joined(dialect, stream):
    events = events_in(b"".join(stream))
    assert [dialect.ends(data_of(event)) for event in events] == [*[False] * (len(events) - 1), True]
    assert dialect.marks.search(b"".join(events))
    return read_reply(dialect, "text/event-stream", b"".join(stream))


TOOLS = [{"id": each, "type": "function", "function": {"name": name, "arguments": text}} for each, name, text in CALLS]
ASKS_USAGE = {"stream_options": {"include_usage": True}}
PAIRS: list[Any] = [
    (CHAT, chat_body("onetwo", tool_calls=TOOLS), chat_events("one two", ASKS_USAGE, CALLS), TokenUsage(10, 5)),
    (CHAT, chat_body("one"), chat_events("one", ASKS_USAGE), TokenUsage(10, 5)),
    (RESPONSES, response_body("one two", CALLS), response_events("one two", CALLS), TokenUsage(10, 5, 4, 2)),
    (MESSAGES, message_body("onetwo", CALLS), message_events("one two", CALLS), TokenUsage(10, 5, 4)),
]


@pytest.mark.parametrize(("dialect", "whole", "stream", "usage"), PAIRS)
def test_a_stream_says_what_the_whole_reply_says(dialect, whole, stream, usage):
    read = dialect.read(whole)
    assert read is not None
    assert read == joined(dialect, stream)
    assert read.usage == usage
    assert read.model == "m"
    expected = [ToolCall(each, name, json.dumps(json.loads(text))) for each, name, text in CALLS]
    given = [ToolCall(call.id, call.name, json.dumps(json.loads(call.arguments))) for call in read.message.tool_calls]
    assert given in ([], expected)
    assert read.finish_reason == ("tool_calls" if given else "stop")


def pieces(*calls):
    deltas = [{"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]} for call in calls]
    return b"".join(event(delta) for delta in deltas) + b"data: [DONE]\n\n"


def piece(name, arguments, **more):
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return {"type": "function", "function": function, **more}


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (pieces(piece("f", '{"a":', id="1"), piece(None, " 1}")), [("1", "f", '{"a": 1}')]),
        (pieces(piece("f", '{"a":', id="1"), piece("g", "{}", id="2"), piece(None, " 1}", id="1")),
         [("1", "f", '{"a": 1}'), ("2", "g", "{}")]),
        (pieces(piece("f", {"a": 1}, index=0, id="1")), [("1", "f", '{"a": 1}')]),
        (pieces(piece("f", '{"a":', index=0, id="1"), piece("f", " 1}", index=0)), [("1", "f", '{"a": 1}')]),
        (pieces(piece("get_", "", index=0, id="1"), piece("it", "{}", index=0)), [("1", "get_it", "{}")]),
        (pieces(piece("f", "{}", id="1"), piece("f", "{}", id="2")), [("1", "f", "{}"), ("2", "f", "{}")]),
    ],
)  # fmt: skip
def test_pieces_of_calls_with_one_meaning_are_read(stream, expected):
    reply = read_reply(CHAT, "text/event-stream", stream)
    assert reply is not None
    assert [(call.id, call.name, call.arguments) for call in reply.message.tool_calls] == expected
    assert reply.finish_reason == "tool_calls"


def test_a_chat_that_ends_without_a_reason_has_ended_and_one_that_says_nothing_has_not():
    said = event({"choices": [{"delta": {"content": "seven"}}]})
    reply = read_reply(CHAT, "text/event-stream", said + b"data: [DONE]\n\n")
    assert reply is not None
    assert (reply.message.content, reply.finish_reason) == ("seven", "stop")
    for broken in (said, b"data: [DONE]\n\n", event({"error": {"message": "no"}}) + b"data: [DONE]\n\n"):
        assert read_reply(CHAT, "text/event-stream", broken) is None


USER_LESSONS = Additions(lessons="L", lessons_in="user")
TEXT, INPUT_TEXT = [{"type": "text", "text": "q"}], [{"type": "input_text", "text": "q"}]


@pytest.mark.parametrize(("dialect", "turns", "changed"), [
    (CHAT, [system("S"), USER, USER], [system("S"), system("hi\n\nL", "user"), USER]),
    (CHAT, [], []), (RESPONSES, "q", "q\n\nL"),
    (MESSAGES, [system(TEXT, "user")], [system([*TEXT, NEW_BLOCK], "user")]),
    (RESPONSES, [system(INPUT_TEXT, "user")], [system([*INPUT_TEXT, {"type": "input_text", "text": "L"}], "user")]),
])  # fmt: skip
def test_lessons_follow_the_first_user_message_where_that_is_asked_for(dialect, turns, changed):
    name = "input" if dialect is RESPONSES else "messages"
    assert forwarded(dialect, {name: turns}, USER_LESSONS) == {name: changed}
    kept = {name: turns, "previous_response_id": "r"}
    assert forwarded(dialect, kept, USER_LESSONS) == kept


@pytest.mark.parametrize(("dialect", "stream"), [(pair[0], pair[2]) for pair in PAIRS])
def test_a_stream_with_an_error_is_no_answer_even_if_it_goes_on(dialect, stream):
    error = event({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    assert read_reply(dialect, "text/event-stream", b"".join([*stream[:2], error, *stream[2:]])) is None


@pytest.mark.parametrize(("dialect", "body"), [
    (CHAT, {"error": {"message": "no", "code": 502}}), (CHAT, {"choices": [], "error": "no"}),
    (CHAT, {"choices": [{"message": {"content": ""}, "error": {"code": 500}}]}),
    (RESPONSES, response_body("", status="failed")), (RESPONSES, response_body("", status="in_progress")),
    (RESPONSES, response_body("7", error={"code": "server_error", "message": "no"})), (RESPONSES, {}),
    (MESSAGES, {"type": "error", "error": {"type": "overloaded_error"}}), (MESSAGES, {}),
])  # fmt: skip
def test_a_failure_behind_a_success_status_is_no_answer(dialect, body):
    assert dialect.read(body) is None


def test_an_empty_answer_is_an_answer_and_unknown_usage_stays_unknown():
    for dialect, body in ((CHAT, chat_body("")), (RESPONSES, response_body("")), (MESSAGES, message_body(""))):
        reply = dialect.read({**body, "usage": None})
        assert reply is not None
        assert (reply.message.content, reply.usage) == (None, None)


def test_a_cut_off_answer_says_so():
    cut = response_body("one", status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    replies = [
        CHAT.read({**chat_body("one"), "choices": [{"message": {"content": "one"}, "finish_reason": "length"}]}),
        RESPONSES.read(cut),
        joined(RESPONSES, response_events("one", status="incomplete", incomplete_details={"reason": "content_filter"})),
        MESSAGES.read(message_body("one", stop_reason="max_tokens")),
    ]
    assert [reply.finish_reason for reply in replies if reply] == ["length", "length", "content_filter", "length"]


def test_results_of_tools_are_read_from_the_next_request():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    chat = {"messages": [USER, {"role": "tool", "tool_call_id": "1", "content": parts}]}
    outputs = [
        {"type": "function_call_output", "call_id": "1", "output": "ab"},
        {"type": "custom_tool_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "c"}]},
    ]
    blocks = [
        {"type": "tool_result", "tool_use_id": "1", "content": parts, "is_error": True},
        {"type": "text", "text": "and"},
        {"type": "tool_result", "tool_use_id": "2"},
    ]
    assert list(tool_results(chat)) == [("1", "ab", False)]
    assert list(tool_results({"input": [USER, *outputs]})) == [("1", "ab", False), ("2", "c", False)]
    assert list(tool_results({"input": "hi"})) == []
    assert list(tool_results({"messages": [USER, {"role": "user", "content": blocks}]})) == [
        ("1", "ab", True),
        ("2", "", False),
    ]
