"""What models and tools may do to each other without harm to the rollout."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from tests.support.agents import rogues
from tests.support.agents import steps as kit
from tests.support.agents.agents import add, shout
from tfgrpo.tasks.actors.registry import ToolActor
from tfgrpo.tasks.models.base import ToolCall
from tfgrpo.tasks.rollout import run_rollout
from tfgrpo.tasks.tools.schema import run_tool, tool_from_function


async def in_thread(work: Any) -> Any:
    return await asyncio.to_thread(work)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (rogues.tool_that_exits, "SystemExit: bye"),
        (rogues.tool_that_exits_asynchronously, "SystemExit: bye"),
        (rogues.tool_that_cancels_itself, "CancelledError"),
        (rogues.tool_that_raises_what_cannot_be_shown, "NoText"),
    ],
)
async def test_whatever_a_tool_raises_is_told_to_the_model(function: Any, said: str) -> None:
    result = await run_tool(tool_from_function(function), '{"text": "bye"}', in_thread)
    assert not result.ok
    assert result.text.startswith("error: ")
    assert said in result.text


@pytest.mark.parametrize("raw", ["[" * 100_000, '{"left": ' + "[" * 100_000, '{"left": 1' + "0" * 10_000 + "}"])
async def test_arguments_nested_or_numbered_beyond_reason_are_refused(raw: str) -> None:
    result = await run_tool(tool_from_function(add), raw, in_thread)
    assert not result.ok
    assert result.text.startswith("error: bad arguments: ")


async def test_the_complaint_about_huge_arguments_is_short() -> None:
    result = await run_tool(tool_from_function(add), json.dumps({"x" * 3_000_000: 1}), in_thread)
    assert not result.ok
    assert len(result.text) <= 16_000


async def test_a_huge_result_is_cut_before_anything_else_sees_it() -> None:
    result = await run_tool(tool_from_function(shout), json.dumps({"json": "y" * 10_000_000}), in_thread)
    assert result.ok
    assert len(result.text) <= 16_000


@pytest.mark.parametrize(
    "function", [rogues.measure, rogues.a_name_that_is_far_longer_than_any_vendor_takes_for_the_name_of_a_tool]
)
def test_a_name_that_vendors_refuse_is_refused_before_anything_is_spent(function: Any) -> None:
    with pytest.raises(ValueError, match="64 letters"):
        tool_from_function(function)


class Node(BaseModel):
    value: int
    children: list[Node] = []


def count(tree: Node) -> int:
    """Count the nodes of a tree."""
    return 1 + sum(count(child) for child in tree.children)


async def test_a_type_that_contains_itself_is_a_schema_and_an_argument() -> None:
    tool = tool_from_function(count)
    Draft202012Validator.check_schema(tool.spec.parameters)
    tree = {"tree": {"value": 1, "children": [{"value": 2, "children": [{"value": 3}]}]}}
    assert not list(Draft202012Validator(tool.spec.parameters).iter_errors(tree))
    assert (await run_tool(tool, json.dumps(tree), in_thread)).text == "3"


async def test_a_tool_that_hangs_costs_its_rollout_and_is_named_in_no_other(tmp_path: Any) -> None:
    def script(request: Any, key: Any) -> Any:
        return kit.reply(None, calls=(ToolCall("c1", "tool_that_hangs", '{"text": "x"}'),), finish="tool_calls")

    actor = ToolActor([tool_from_function(rogues.tool_that_hangs)], max_turns=3)
    runtime = kit.runtime(script, tmp_path, actor=actor, limits={"timeout_s": 0.1})
    rollout = await run_rollout(kit.spec(), 0, runtime)
    assert rollout.loss is not None
    assert rollout.loss.error_type == "ModelTimeout"


@pytest.mark.parametrize("name", ["", "a b", "tool/../../x", "\N{SNOWMAN}", "x" * 5000])
async def test_a_tool_the_model_made_up_is_answered_and_shown_in_short(tmp_path: Any, name: str) -> None:
    def script(request: Any, key: Any) -> Any:
        if key.turn == 0:
            return kit.reply(None, calls=(ToolCall("c1", name, "{}"),), finish="tool_calls")
        return request.messages[-1].content

    actor = ToolActor([tool_from_function(add)], max_turns=3)
    rollout = await run_rollout(kit.spec(), 0, kit.runtime(script, tmp_path, actor=actor))
    assert rollout.loss is None
    assert "there are: add" in rollout.output
    assert len(rollout.output) < 300
