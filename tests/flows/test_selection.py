"""The best of K, over a real HTTP server: what breaks is told, the best of the rest comes back, and rounds are remembered."""

import threading
from datetime import UTC, datetime

import pytest

from tests.support.rewards.rewarder_examples import EXAMPLES
from tests.support.runs.chat_server import ChatServer
from tests.support.runs.running import Server
from tests.support.runs.selections import ITEMS, ask, plan
from tfgrpo.flows.orchestration.request import SelectRequest
from tfgrpo.flows.selection import plan_selection, select
from tfgrpo.stores.errors import ConfigError, EndpointError


def problems(**asked):
    with pytest.raises(ConfigError) as caught:
        plan_selection(SelectRequest(**asked), {}, clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    return {problem.source: str(problem) for problem in caught.value.problems}


# What must be shown.


def test_an_endpoint_that_fails_for_a_third_still_gives_the_best_of_the_rest_with_a_note():
    def answer(number, body):
        return 503 if number % 3 == 0 else f"Answer: {body['temperature']}"

    with ChatServer(answer) as server:
        selected = ask(server, prompt="Which?", answer="Answer: 0.9", rewarders=["gt"], k=6)
    selection = selected.selection
    assert (selected.status, selected.exit_code) == ("finished", 0)
    assert selection.outcomes == {"ok": 4, "transport_error": 2}
    rewards = [each.reward for each in selection.candidates if each.reward is not None]
    assert len(rewards) == 4
    assert selection.best.reward == max(rewards)
    assert "of 6 candidates 2 transport_error (503 from http://127.0.0.1" in selected.message
    assert len(server.bodies) == 6


def test_all_candidates_are_under_way_at_once():
    everybody = threading.Barrier(16, timeout=20)

    def answer(number, body):
        everybody.wait()
        return "Answer: 7"

    with ChatServer(answer) as server:
        selected = ask(server, prompt="3 + 4?", answer="7", k=16)
    assert selected.selection.outcomes == {"ok": 16}


def test_a_key_that_is_refused_is_found_before_anything_is_asked():
    with Server(key="right") as server:
        request = SelectRequest(prompt="x", base_url=server.url, model="simulated")
        with pytest.raises(EndpointError, match="401"):
            select(request, {})
    assert server.bodies == []


# What is asked, and of whom.


def test_a_remote_endpoint_needs_a_model_name_and_warns_without_a_key():
    assert any("endpoint and no model" in text for text in problems(prompt="x", base_url="http://there/v1").values())
    assert any("OPENAI_API_KEY" in text for text in plan(prompt="x", base_url="http://there/v1", model="m").warnings)


def test_an_item_has_its_answer_unless_the_request_has_one(tmp_path):
    assert plan(item=f"{ITEMS}#ar-0007").spec.item.answer == "3660.43"
    assert plan(item=f"{ITEMS}#ar-0007", answer="1").spec.item.answer == "1"
    path = tmp_path / "answer.txt"
    path.write_text("\ufeff42\n", encoding="utf-8")
    assert plan(prompt="x", reference=f"@{path}").spec.item.answer == "42\n"


def test_a_reference_is_text_and_a_file_only_after_an_at_sign(tmp_path):
    path = tmp_path / "answer.txt"
    path.write_text("42", encoding="utf-8")
    for text in ("42", "see answer.txt", "x" * 5_000, "a\x00b"):
        planned = plan(prompt="x", reference=text)
        assert (planned.spec.item.answer, planned.warnings) == (text, ())
    planned = plan(prompt="x", reference=str(path))
    assert planned.spec.item.answer == str(path)
    assert any(f"the file is @{path}" in text for text in planned.warnings)
    assert plan(prompt="x", answer="@home").spec.item.answer == "@home"


def test_an_answer_of_the_request_takes_the_place_of_all_that_the_item_accepts(tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_text('{"id": "a", "prompt": "x", "answer": ["2", "two"]}\n')
    assert plan(item=f"{path}#a").spec.item.accepted == ("2", "two")
    assert plan(item=f"{path}#a", answer="3").spec.item.accepted == ("3",)


@pytest.mark.parametrize(
    ("asked", "source", "told"),
    [
        ({}, "--prompt", "nothing to ask"),
        ({"prompt": "x", "item": "f#1"}, "--item", "one of the two"),
        ({"item": "items.jsonl"}, "--item", "FILE#ID"),
        ({"item": f"{ITEMS}#nobody"}, "--item", "no item 'nobody'"),
        ({"prompt": "x", "reference": "@none.txt"}, "--reference", "No such file"),
        ({"prompt": "x", "reference": " "}, "--reference", "an empty text"),
        ({"prompt": "x", "reference": "prose", "format": "powl"}, "--reference", "no process model"),
        ({"prompt": "x", "answer": "prose", "format": "powl"}, "answer", "no process model"),
        ({"prompt": "x", "reference": "a", "answer": "b"}, "--reference", "one of the two"),
        ({"prompt": "x", "json_schema": "s.json"}, "--json-schema", "--format json"),
        ({"prompt": "x", "json_schema": "s.json", "format": "json"}, "--json-schema", "No such file"),
        ({"prompt": "x", "rewarders": ["gt=much"]}, "--rewarder", "NAME=WEIGHT"),
        ({"prompt": "x", "rewarders": ["nobody"]}, "rewarders.0: name", "nobody"),
        ({"prompt": "x", "k": 1, "rewarders": ["relative"]}, "rewarders", "relative"),
        ({"prompt": "x", "k": 2, "min_success": 3}, "--min-success", "at most 2"),
        ({"prompt": "x", "k": 4, "max_calls": 3}, "--max-calls", "at least 4"),
        ({"prompt": "x", "memory": "exploit", "task_id": "t", "format": "json"}, "--memory", "--format powl"),
        ({"prompt": "x", "memory": "exploit", "format": "powl"}, "--memory", "--task-id"),
        ({"prompt": "x", "stage": "BEHAVIORAL_CONSOLIDATION"}, "--stage", "without a reference"),
        ({"prompt": "x", "actor": "nobody"}, "actor.kind", "nobody"),
        ({"prompt": "x", "pack": "nobody"}, "pack", "nobody"),
        ({"prompt": "x", "task_id": "../up"}, "--task-id", "1 to 100 of A-Z"),
    ],
)
def test_bad_input_is_one_error_that_names_its_source(asked, source, told):
    found = problems(**asked)
    matching = [text for place, text in found.items() if source in place]
    assert matching, found
    assert told in matching[0]


@pytest.mark.parametrize(
    "rewarders", [["gt"], ["gt=0.1", "json_valid"], ["number_match"], ["powl_footprint"], ["powl_equal", "powl_valid"]]
)
def test_rewarders_without_a_reference_are_refused_before_any_call(rewarders):
    with ChatServer(lambda number, body: "7") as server, pytest.raises(ConfigError) as caught:
        ask(server, prompt="3 + 4?", rewarders=rewarders)
    (problem,) = caught.value.problems
    assert problem.source == "--rewarder"
    assert problem.given == f"{rewarders[0].partition('=')[0]} without an answer to compare with"
    assert server.bodies == []
    assert plan(prompt="3 + 4?", answer="SEQUENCE(a, b)", rewarders=rewarders).spec.item.answer
    recorded = [f"{name.partition('=')[0]}=0" for name in rewarders]
    assert plan(prompt="3 + 4?", rewarders=[*recorded, "judge"])


def test_an_object_that_does_not_grade_is_refused_before_any_call():
    with ChatServer(lambda number, body: "7") as server, pytest.raises(ConfigError, match="returned a str, expected a list"):
        ask(server, prompt="3 + 4?", rewarders=[f"{EXAMPLES}:NoGrader"])
    assert server.bodies == []


@pytest.mark.parametrize("text", ["{", '{"type": "nothing"}', "[]"])
def test_a_schema_that_is_none_is_refused(tmp_path, text):
    schema = tmp_path / "schema.json"
    schema.write_text(text, encoding="utf-8")
    assert "--json-schema" in problems(prompt="x", format="json", json_schema=str(schema))


def test_answers_in_json_follow_the_schema(tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "required": ["n"]}', encoding="utf-8")

    def answer(number, body):
        return '{"n": 7}' if "earlier_answer" in body["messages"][-1]["content"] else "{}"

    with ChatServer(answer) as server:
        selected = ask(server, prompt="JSON?", format="json", json_schema=str(schema), answer='{"n": 7}', rewarders=["gt"], k=1)
    assert selected.selection.best.text == '{"n": 7}'
    assert "required" in selected.selection.best.refused[0][1]


# What is rewarded.


def names(planned):
    return [(entry.name, entry.weight) for entry in planned.settings.rewarders]


@pytest.mark.parametrize(("pack", "form"), [(None, "powl"), ("powl", "json"), ("arithmetic", "powl"), ("general", "json")])
def test_a_prompt_has_one_order_about_the_form_of_the_answer(pack, form):
    system = plan(prompt="Model it.", format=form, **({} if pack is None else {"pack": pack})).spec.system.system
    orders = system.count("Answer: <model>") + system.count("In place of any form of answer named above, hand in")
    assert orders == 1 + (pack == "powl" and form == "json")
