"""Conversations and traces become the items that a reader of them would write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tfgrpo.flows import cli
from tfgrpo.pipelines.datasets.datasets import load_dataset
from tfgrpo.pipelines.datasets.imports import import_items
from tfgrpo.stores.errors import DatasetError

Attributes = dict[str, Any]


def pairs(attributes: Attributes) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"stringValue": value if isinstance(value, str) else json.dumps(value)}}
        for key, value in attributes.items()
    ]


def trace(*spans: tuple[Attributes, list[tuple[str, Attributes]]]) -> dict[str, Any]:
    made = [
        {
            "name": "chat m",
            "attributes": pairs(attributes),
            "events": [{"name": name, "attributes": pairs(held)} for name, held in events],
        }
        for attributes, events in spans
    ]
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": made}]}]}


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


LATEST = {
    "gen_ai.system_instructions": [{"type": "text", "content": "Be brief."}],
    "gen_ai.input.messages": [said("user", "3 + 4?")],
    "gen_ai.output.messages": [{**said("assistant", "7"), "finish_reason": "stop"}],
}
CHOICE = {"index": "0", "message": {"role": "assistant", "content": "7"}}
FORMS = {
    "attributes": (LATEST, []),
    "an event with the details": ({}, [("gen_ai.client.inference.operation.details", LATEST)]),
    "an event for each message": (
        {},
        [
            ("gen_ai.system.message", {"content": "Be brief."}),
            ("gen_ai.user.message", {"content": "3 + 4?"}),
            ("gen_ai.choice", CHOICE),
        ],
    ),
    "an event for each side": (
        {},
        [
            (
                "gen_ai.content.prompt",
                {"gen_ai.prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "3 + 4?"}]},
            ),
            ("gen_ai.content.completion", {"gen_ai.completion": [{"role": "assistant", "content": "7"}]}),
        ],
    ),
    "an attribute for each field": (
        {
            "gen_ai.prompt.0.role": "system",
            "gen_ai.prompt.0.content": "Be brief.",
            "gen_ai.prompt.1.role": "user",
            "gen_ai.prompt.1.content": "3 + 4?",
            "gen_ai.completion.0.content": "7",
        },
        [],
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_span_is_an_item_in_every_form_of_the_conventions(tmp_path: Path, form: str) -> None:
    file = tmp_path / "traces.jsonl"
    file.write_text(json.dumps(trace(FORMS[form], ({"http.method": "GET"}, []))) + "\n")
    [row] = import_items(file).rows
    assert (row["prompt"], row["system_prompt"], row["metadata"]) == ("3 + 4?", "Be brief.", {"reply": "7"})
    assert "answer" not in row


def test_structured_values_and_one_object_over_many_lines_are_read(tmp_path: Path) -> None:
    part = {"kvlistValue": {"values": [{"key": "type", "value": {"stringValue": "text"}},
                                       {"key": "content", "value": {"stringValue": "3 + 4?"}}]}}  # fmt: skip
    message = {"kvlistValue": {"values": [{"key": "role", "value": {"stringValue": "user"}},
                                          {"key": "parts", "value": {"arrayValue": {"values": [part]}}}]}}  # fmt: skip
    value = trace(({}, []))
    value["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"] = [
        {"key": "gen_ai.input.messages", "value": {"arrayValue": {"values": [message]}}}
    ]
    file = tmp_path / "traces.json"
    file.write_text(json.dumps(value, indent=1))
    assert [row["prompt"] for row in import_items(file).rows] == ["3 + 4?"]


def test_a_question_of_several_spans_is_one_item_with_the_last_reply(tmp_path: Path) -> None:
    called = {
        **LATEST,
        "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "tool_call", "name": "f"}]}],
    }
    file = tmp_path / "traces.jsonl"
    file.write_text(json.dumps(trace((called, []), (LATEST, []))))
    imported = import_items(file)
    assert [row["metadata"] for row in imported.rows] == [{"reply": "7"}]
    assert imported.skipped == 1


def test_conversations_become_a_dataset_with_their_last_reply_as_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system = {"role": "system", "content": "Be brief."}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "7"}
    user = {"role": "user", "content": [{"type": "text", "text": "3 + 4?"}, result]}
    seen = {
        "role": "user",
        "content": [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {}}],
    }
    seven, more = {"role": "assistant", "content": "7"}, {"role": "user", "content": "And twice that?"}
    talks = [
        [system, user, seven],
        [user, seven, more, {"role": "assistant", "content": "14"}],
        [system],
        [more],
        [seen, seven],
    ]
    file, target = tmp_path / "chats.jsonl", tmp_path / "items.jsonl"
    file.write_text("".join(json.dumps({"messages": talk, "tools": []}) + "\n" for talk in talks))
    assert cli.main(["items", str(file), "--to", str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(target), "items": 3, "answered": 2, "skipped": 2}
    first, second, third = load_dataset(target)
    assert (first.prompt, first.system_prompt, first.answer) == ("3 + 4?", "Be brief.", "7")
    assert (second.prompt, second.answer) == ("user: 3 + 4?\n\nassistant: 7\n\nuser: And twice that?", "14")
    assert (third.prompt, third.answer) == ("And twice that?", "")
    assert cli.main(["items", str(file), "--to", str(target)]) == 2
    assert "--force" in capsys.readouterr().err
    assert cli.main(["items", str(file), "--to", str(target), "--force"]) == 0


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.jsonl", '{"prompt": "p"}\n', "'messages'"),
        ("a.jsonl", "no json\n", "no JSON"),
        ("a.jsonl", '{"messages": []}\n', "no message of a user"),
        ("a.json", "{", "JSON"),
        ("a.bin", "\x0a", "ends in"),
    ],
)
def test_what_cannot_be_read_is_one_error(tmp_path: Path, name: str, text: str, words: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(DatasetError) as caught:
        import_items(file)
    assert len(caught.value.problems) == 1
    assert words in str(caught.value)
