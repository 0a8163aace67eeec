"""Groups from the project's own actors and rewarders: everything they said and got, nothing learned, nothing paid twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.agents.steps import ScriptedModel, item, reply, runtime, spec
from tfgrpo.stores.batch.lines import lines_of_group
from tfgrpo.stores.errors import (
    ActorError,
    BudgetRefused,
    ModelAuthRefused,
    ModelServerFault,
    ModelTimeout,
    RunAborted,
    ShapeError,
)
from tfgrpo.tasks.collector.actors import ActorCollector
from tfgrpo.tasks.models.base import Message, TokenUsage, ToolCall
from tfgrpo.tasks.shapes import Trajectory


def attempts(*answers):
    return ScriptedModel(lambda _, key: answers[key.rollout])


async def collected(script, tmp_path, *specs, **more):
    options = {
        name: more.pop(name) for name in ("ragged", "min_group_size", "on_group", "logprob_kind") if name in more
    }
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    result = await ActorCollector(runtime(model, tmp_path, **more), **options).collect(specs or (spec(2),))
    return model, result


async def test_a_group_has_every_accepted_answer_of_its_item(tmp_path):
    _, result = await collected(attempts("7", "8"), tmp_path, spec(2, of=item(alternatives=("seven",))))
    (group,) = result.batch
    assert (group.metadata["answer"], group.metadata["alternatives"]) == ("7", ("seven",))


async def test_a_group_has_what_was_sent_answered_and_scored(tmp_path):
    with_values = replace(reply("Answer: 7"), token_logprobs=(-0.5, -0.25, 0.0, -0.125, -0.125))
    model, result = await collected(attempts(with_values, "Answer: 8"), tmp_path, logprob_kind="raw")
    (group,) = result.batch
    first, second = group.rollouts
    assert group.rewards == (1.0, 0.0)
    assert group.state == ({"role": "system", "content": "Be careful."}, {"role": "user", "content": "3 + 4?"})
    assert group.bare_state == ({"role": "user", "content": "3 + 4?"},)
    assert (group.policy_version, group.experience_version) == ("m", f"arithmetic:{spec().pack.digest}")
    assert (group.metadata["answer"], group.metadata["item_id"], group.metadata["run_id"]) == ("7", "q1", "run")
    assert (first.id, first.completion, first.status, first.reward_parts) == (
        "run/1/group/q1/0",
        "Answer: 7",
        "ok",
        {"gt": 1.0},
    )
    assert (first.logprob.total, first.logprob.count, first.logprob.kind) == (-1.0, 5, "raw")
    assert second.logprob is None
    assert (first.usage.prompt_tokens, first.usage.completion_tokens, first.usage.cost_usd) == (10, 5, 0.001)
    assert (first.sampling.model, first.sampling.temperature, first.sampling.finish_reason) == ("m", 0.7, "stop")
    assert len(model.requests) == 2
    assert [request.messages[0].content for request, _ in model.requests] == ["Be careful."] * 2
    lines_of_group(group)


async def test_there_is_no_reflection_and_collecting_again_costs_no_call(tmp_path):
    model = attempts("Answer: 7", "Answer: 8")
    collector = ActorCollector(runtime(model, tmp_path))
    first, again = await collector.collect([spec(2)]), await collector.collect([spec(2)])
    assert {key.role for _, key in model.requests} == {"rollout"}
    assert len(model.requests) == 2
    assert [(made.completion, made.reward) for made in again.batch.rollouts()] == [
        (made.completion, made.reward) for made in first.batch.rollouts()
    ]


async def test_a_long_answer_is_kept_whole(tmp_path):
    text = "so " * 3_000 + "Answer: 7"
    _, result = await collected(attempts(text, text), tmp_path)
    assert result.batch.groups[0].rollouts[0].completion == text


class TwoTurns:
    """Asks twice, showing the model its first answer."""

    def __init__(self, output=None):
        self.output = output

    async def attempt(self, attempt):
        first = await attempt.chat(attempt.opening())
        again = (*attempt.opening(), first.message, Message("user", "Sure?"))
        last = await attempt.chat(again)
        return Trajectory(self.output or last.message.content, attempt.frames)


async def test_a_conversation_is_kept_turn_by_turn(tmp_path):
    tokens = TokenUsage(10, 1)
    said = [replace(reply(text), token_logprobs=(-1.0,), usage=tokens) for text in ("Hm.", "Answer: 7")]
    _, result = await collected(lambda _, key: said[key.turn], tmp_path, actor=TwoTurns())
    made = result.batch.groups[0].rollouts[0]
    assert [turn["content"] for turn in made.completion] == ["Hm.", "Sure?", "Answer: 7"]
    assert made.text == "Answer: 7"
    assert (made.logprob.tokens, made.logprob.total, made.logprob.complete) == ((-1.0, -1.0), -2.0, True)


class ToolTurns:
    """Lets the model call a tool of its own making, and shows it the result."""

    async def attempt(self, attempt):
        first = await attempt.chat(attempt.opening())
        told = Message("tool", "7", tool_call_id=first.message.tool_calls[0].id)
        last = await attempt.chat((*attempt.opening(), first.message, told))
        return Trajectory(last.message.content, attempt.frames)


async def test_tool_calls_and_their_results_are_among_the_turns(tmp_path):
    said = [reply(None, calls=(ToolCall("c1", "add", '{"a": 3}'),), finish="tool_calls"), reply("Answer: 7")]
    _, result = await collected(lambda _, key: said[key.turn], tmp_path, actor=ToolTurns())
    assert result.batch.groups[0].rollouts[0].completion == (
        {
            "role": "assistant",
            "content": None,
            "tool_calls": ({"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 3}'}},),
        },
        {"role": "tool", "content": "7", "tool_call_id": "c1"},
        {"role": "assistant", "content": "Answer: 7"},
    )


async def test_log_probabilities_of_some_turns_only_are_incomplete(tmp_path):
    said = [replace(reply("Hm."), token_logprobs=(-1.0,)), reply("Answer: 7")]
    _, result = await collected(lambda _, key: said[key.turn], tmp_path, actor=TwoTurns())
    made = result.batch.groups[0].rollouts[0].logprob
    assert (made.total, made.tokens, made.count, made.complete) == (None, None, 1, False)


async def test_log_probabilities_of_a_reply_without_usage_are_incomplete(tmp_path):
    unknown = replace(reply("Answer: 7"), token_logprobs=(-1.0,), usage=None)
    _, result = await collected(lambda _, key: unknown, tmp_path)
    made = result.batch.groups[0].rollouts[0].logprob
    assert (made.total, made.count, made.complete) == (None, 1, False)


async def test_an_output_made_by_the_actor_is_the_completion(tmp_path):
    _, result = await collected(lambda *_: "Answer: 8", tmp_path, actor=TwoTurns("Answer: 7"))
    assert [made.completion for made in result.batch.rollouts()] == ["Answer: 7"] * 2


class Silent:
    async def attempt(self, attempt):
        return Trajectory("Answer: 7", ())


async def test_an_actor_without_model_calls_has_the_opening_as_its_state(tmp_path):
    _, result = await collected(attempts("", ""), tmp_path, spec(2, of=item(system_prompt="Short.")), actor=Silent())
    (group,) = result.batch
    assert group.state[1]["content"] == "Short.\n\n3 + 4?"
    assert group.rollouts[0].usage.completion_tokens is None
    assert group.rollouts[0].sampling.model == "m"


class Nothing:
    async def attempt(self, attempt):
        return None


async def test_an_actor_that_returns_nothing_is_an_error(tmp_path):
    _, result = await collected(attempts("", ""), tmp_path, actor=Nothing())
    assert {(made.status, made.completion) for made in result.batch.rollouts()} == {("error", None)}


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (ModelTimeout("late"), "timeout"),
        (ModelServerFault("500"), "transport_error"),
        (ActorError("bad"), "error"),
        (ValueError("worse"), "error"),
        (BudgetRefused("max_calls"), "refused"),
        (reply("cut", finish="length"), "ok"),
        (reply("", finish="stop"), "parse_error"),
        (reply("cut", finish="content_filter"), "filtered"),
    ],
)
async def test_a_rollout_without_a_reward_has_a_status(failure, status, tmp_path):
    _, result = await collected(attempts("Answer: 7", failure), tmp_path)
    lost = result.batch.groups[0].rollouts[1]
    assert (lost.status, lost.reward) == (status, None)
    assert lost.error


async def test_short_groups_are_kept_dropped_or_refused(tmp_path):
    specs = (spec(2), spec(2, of=item("q2")))

    def script(_, key):
        return ModelServerFault("500") if key.group.item == "q2" and key.rollout else "Answer: 7"

    _, kept = await collected(script, tmp_path / "a", *specs)
    assert [len(group.scored) for group in kept.batch] == [2, 1]
    _, dropped = await collected(script, tmp_path / "b", *specs, ragged="drop_group")
    assert [lost.group_id for lost in dropped.dropped] == ["run/1/group/q2"]
    seen = []
    with pytest.raises(ShapeError, match="id 'run/1/group/q2'"):
        await collected(script, tmp_path / "c", *specs, ragged="strict", on_group=seen.append)
    assert len(seen) == 2


async def test_a_refused_key_ends_the_collection(tmp_path):
    with pytest.raises(RunAborted, match="401"):
        await collected(lambda *_: ModelAuthRefused("401"), tmp_path)


@pytest.mark.parametrize("specs", [[], [spec(2), spec(2)]])
async def test_specs_are_checked_before_any_call(specs, tmp_path):
    model = attempts("a", "b")
    with pytest.raises(ShapeError, match="specs"):
        await ActorCollector(runtime(model, tmp_path)).collect(specs)
    assert model.requests == []


def test_resample_is_refused_for_journalled_calls(tmp_path):
    with pytest.raises(ShapeError, match=r"strict \| pad \| drop_group"):
        ActorCollector(runtime(attempts("a"), tmp_path), ragged="resample")


async def test_a_collected_batch_streams_on(tmp_path):
    _, result = await collected(attempts("Answer: 7", "Answer: 8"), tmp_path)
    assert [len(part) for part in result.batch.split(1)] == [1]
