"""Tools of typed functions: their schema, their arguments, and results and errors as the model reads them."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.support.agents import agents, rogues
from tests.support.agents import steps as kit
from tfgrpo.pipelines.settings.tree import ActorSettings
from tfgrpo.stores.errors import SettingsError
from tfgrpo.tasks.actors.registry import ToolActor, tools_of
from tfgrpo.tasks.models.base import ToolCall
from tfgrpo.tasks.rollout import run_rollout
from tfgrpo.tasks.tools.schema import ToolResult, priced, run_tool, tool_from_function

HERE = "tests.support.agents.agents"


async def called(function, raw):
    return await run_tool(tool_from_function(function), raw, asyncio.to_thread)


@pytest.mark.parametrize(("function", "raw", "text", "ok", "cost"), [
    (agents.add, '{"left": 3, "right": 4}', "7", True, 0.002), (agents.add, '{"left": "3"}', "4", True, 0.002),
    (agents.shout, '{"json": "a", "_x": "?"}', '{"loud":"A?"}', True, None),
    (agents.decorated_shout, '{"json": "a"}', '{"loud":"A!"}', True, None),
    *((tool, '{"text": "row"}', "error: LookupError: no row", False, None)
      for tool in (agents.breaks, agents.breaks_later, agents.decorated_breaks)),
])  # fmt: skip
async def test_arguments_are_validated_and_result_or_error_becomes_text(function, raw, text, ok, cost):
    result = await called(function, raw)
    assert (result.text, result.ok, result.cost_usd) == (text, ok, cost)
    assert result.latency_ms > 0


@pytest.mark.parametrize("raw", [
    "{", "[1]", "null", '{"left": "x"}', "{}", '{"left": 1, "extra": 2}', "[" * 100_000, '{"left": ' + "[" * 100_000,
    '{"left": 1' + "0" * 10_000 + "}", json.dumps({"x" * 3_000_000: 1}),
])  # fmt: skip
async def test_bad_arguments_come_back_as_short_text_for_the_model_and_cost_nothing(raw):
    before = len(agents.CALLS)
    result = await called(agents.add, raw)
    assert (result.ok, result.cost_usd, len(agents.CALLS)) == (False, 0.0, before)
    assert result.text.startswith("error: bad arguments: ")
    assert len(result.text) <= 16_000


@given(st.text())
async def test_no_text_of_arguments_raises(raw):
    assert isinstance(await called(agents.add, raw), ToolResult)


@pytest.mark.parametrize(("function", "said"), [
    (rogues.tool_that_exits, "SystemExit: bye"), (rogues.tool_that_exits_asynchronously, "SystemExit: bye"),
    (rogues.tool_that_cancels_itself, "CancelledError"), (rogues.tool_that_raises_what_cannot_be_shown, "NoText"),
])  # fmt: skip
async def test_whatever_a_tool_raises_is_told_to_the_model(function, said):
    result = await called(function, '{"text": "bye"}')
    assert not result.ok
    assert result.text.startswith("error: ")
    assert said in result.text


async def test_a_time_limit_ends_an_asynchronous_tool_behind_an_ordinary_decorator_and_its_attempt(tmp_path):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await called(agents.decorated_sleeps, '{"text": "it"}')
    assert agents.CALLS.pop() == "it was cancelled"
    call = kit.reply(None, calls=(ToolCall("c1", "tool_that_hangs", '{"text": "x"}'),), finish="tool_calls")
    actor = ToolActor([tool_from_function(rogues.tool_that_hangs)], max_turns=3)
    made = kit.runtime(lambda request, key: call, tmp_path, actor=actor, limits={"timeout_s": 0.1})
    assert (await run_rollout(kit.spec(), 0, made)).loss.error_type == "ModelTimeout"


async def test_an_oversized_result_keeps_both_ends_and_what_is_no_json_is_shown_as_python_shows_it():
    result = await called(agents.huge, '{"size": 1000000}')
    assert result.ok
    assert len(result.text) <= 16_000
    assert "characters left out" in result.text
    assert (await called(agents.odd_object, '{"size": 1}')).text.startswith("<object")


class Node(BaseModel):
    value: int
    children: list[Node] = []


def count(tree: Node) -> int:
    """Count the nodes of a tree."""
    return 1 + sum(count(child) for child in tree.children)


TOO_LONG = rogues.a_name_that_is_far_longer_than_any_vendor_takes_for_the_name_of_a_tool


@pytest.mark.parametrize(("function", "said"), [
    *((getattr(agents, name), r"annotation|by name|schema|named function")
      for name in ("untyped", "by_position", "many", "strange", "unresolved", "instance", "no_schema")),
    (rogues.measure, "64 letters"), (TOO_LONG, "64 letters"),
])  # fmt: skip
def test_a_function_that_cannot_be_a_tool_is_refused_before_anything_is_spent(function, said):
    with pytest.raises(ValueError, match=said):
        tool_from_function(function)


@pytest.mark.parametrize("price", [-1.0, float("inf"), float("nan")])
def test_a_price_is_a_finite_amount(price):
    with pytest.raises(ValueError, match="a price is"):
        priced(price)


def test_tools_are_loaded_by_reference_in_order_with_every_problem_at_once():
    tools = tools_of(ActorSettings(kind="tools", tools=(f"{HERE}:shout", f"{HERE}:add")))
    assert [tool.spec.name for tool in tools] == ["shout", "add"]
    references = (f"{HERE}:untyped", "nowhere:x", f"{HERE}:missing", "no reference", f"{HERE}:add", f"{HERE}:add")
    with pytest.raises(SettingsError) as caught:
        tools_of(ActorSettings(kind="tools", tools=references))
    assert len(caught.value.problems) == 5
    assert "two tools named 'add'" in str(caught.value.problems[-1])
