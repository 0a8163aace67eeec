from __future__ import annotations

import asyncio
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.agents import agents
from tfgrpo.pipelines.settings.actor import ActorSettings
from tfgrpo.stores.errors import SettingsError
from tfgrpo.tasks.actors.registry import tools_of
from tfgrpo.tasks.tools.schema import ToolResult, priced, run_tool, tool_from_function


def told(result):
    return result.text, result.ok, result.cost_usd


HERE = "tests.support.agents.agents"


async def in_place(work):
    return work()


def test_the_signature_gives_the_schema_and_the_docstring_the_description():
    spec = tool_from_function(agents.add).spec
    assert (spec.name, spec.description) == ("add", "Add two whole numbers.")
    assert spec.parameters["required"] == ["left"]
    assert spec.parameters["additionalProperties"] is False
    assert spec.parameters["properties"] == {
        "left": {"type": "integer"},
        "right": {"type": "integer", "default": 1, "description": "what to add"},
    }


async def test_arguments_are_validated_and_the_result_becomes_text():
    tool = tool_from_function(agents.add)
    result = await run_tool(tool, '{"left": 3, "right": 4}', in_place)
    assert told(result) == ("7", True, 0.002)
    assert result.latency_ms > 0
    assert (await run_tool(tool, '{"left": "3"}', in_place)).text == "4"


async def test_parameters_may_be_called_what_pydantic_calls_its_own():
    result = await run_tool(tool_from_function(agents.shout), '{"json": "a", "_x": "?"}', in_place)
    assert told(result) == ('{"loud":"A?"}', True, None)


@pytest.mark.parametrize("raw", ["{", "[1]", "null", '{"left": "x"}', "{}", '{"left": 1, "extra": 2}'])
async def test_bad_arguments_come_back_as_text_for_the_model_and_cost_nothing(raw):
    before = len(agents.CALLS)
    result = await run_tool(tool_from_function(agents.add), raw, in_place)
    assert not result.ok
    assert result.text.startswith("error: bad arguments: ")
    assert result.cost_usd == 0.0
    assert len(agents.CALLS) == before


@given(st.text())
async def test_no_text_of_arguments_raises(raw):
    assert isinstance(await run_tool(tool_from_function(agents.add), raw, in_place), ToolResult)


async def test_what_a_tool_raises_is_told_to_the_model():
    for tool in (agents.breaks, agents.breaks_later, agents.decorated_breaks):
        result = await run_tool(tool_from_function(tool), '{"text": "row"}', in_place)
        assert told(result) == ("error: LookupError: no row", False, None)


async def test_an_asynchronous_tool_behind_an_ordinary_decorator_is_awaited():
    result = await run_tool(tool_from_function(agents.decorated_shout), '{"json": "a"}', asyncio.to_thread)
    assert told(result) == ('{"loud":"A!"}', True, None)
    assert result.latency_ms > 0


async def test_a_time_limit_ends_an_asynchronous_tool_behind_an_ordinary_decorator():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await run_tool(tool_from_function(agents.decorated_sleeps), '{"text": "it"}', asyncio.to_thread)
    assert agents.CALLS.pop() == "it was cancelled"


async def test_an_oversized_result_keeps_both_ends_and_says_what_is_missing():
    result = await run_tool(tool_from_function(agents.huge), '{"size": 1000000}', in_place)
    assert len(result.text) < 17_000
    assert "characters left out" in result.text


async def test_a_result_that_is_no_json_is_shown_as_python_shows_it():
    result = await run_tool(tool_from_function(agents.odd_object), '{"size": 1}', in_place)
    assert result.ok
    assert result.text.startswith("<object")


def test_results_survive_the_journal():
    result = ToolResult("7", ok=True, cost_usd=None, latency_ms=1.5)
    assert ToolResult(**asdict(result)) == result


@pytest.mark.parametrize("name", ["untyped", "by_position", "many", "strange", "unresolved", "instance", "no_schema"])
def test_a_function_that_cannot_be_a_tool_is_refused(name):
    with pytest.raises(ValueError, match=r"annotation|by name|schema|named function"):
        tool_from_function(getattr(agents, name))


@pytest.mark.parametrize("price", [-1.0, float("inf"), float("nan")])
def test_a_price_is_a_finite_amount(price):
    with pytest.raises(ValueError, match="a price is"):
        priced(price)


def test_tools_are_loaded_by_reference_in_order():
    tools = tools_of(ActorSettings(kind="tools", tools=(f"{HERE}:shout", f"{HERE}:add")))
    assert [tool.spec.name for tool in tools] == ["shout", "add"]


def test_every_problem_with_the_tools_is_named_at_once():
    references = (f"{HERE}:untyped", "nowhere:x", f"{HERE}:missing", "no reference", f"{HERE}:add", f"{HERE}:add")
    with pytest.raises(SettingsError) as caught:
        tools_of(ActorSettings(kind="tools", tools=references))
    assert len(caught.value.problems) == 5
    assert "two tools named 'add'" in str(caught.value.problems[-1])
