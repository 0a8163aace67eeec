"""A run's own files give back its groups: prompts as they were sent, answers in full, and never a made-up number."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.agents.exports import read, recorded_run, stream
from tests.support.agents.steps import item, reply, spec
from tests.support.records.line_files import seal
from tfgrpo.stores.errors import ActorError, BudgetRefused, CorruptFile, ModelServerFault, ModelTimeout, SettingsError
from tfgrpo.stores.json_values import sha256_hex
from tfgrpo.tasks.actors.own import CallableActor
from tfgrpo.tasks.actors.registry import ToolActor
from tfgrpo.tasks.exports.run_reading import facts_of_run
from tfgrpo.tasks.models.base import TokenUsage, ToolCall
from tfgrpo.tasks.models.wire import encode_tool
from tfgrpo.tasks.shapes import PackText
from tfgrpo.tasks.tools.schema import tool_from_function

LONG = "step\n" * 1_000 + "Answer: 7"


def edit(path: Path, change: Callable[[dict], dict | None]) -> None:
    rows = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows if row is not None))
    seal(path)


def answers(request, key):
    return f"{LONG}{key.rollout}" if key.rollout else "Answer: 7"


async def test_prompts_are_those_that_were_sent_and_answers_are_whole(tmp_path):
    asked = item(system_prompt="Add.", domain="sums", alternatives=("seven",))
    run = await recorded_run(tmp_path, answers, [spec(2, of=asked)])
    (group,) = read(run)
    assert group.state == ({"role": "system", "content": "Be careful."}, {"role": "user", "content": "Add.\n\n3 + 4?"})
    assert group.bare_state == ({"role": "system", "content": "Add."}, {"role": "user", "content": "3 + 4?"})
    assert [rollout.completion for rollout in group.rollouts] == ["Answer: 7", f"{LONG}1"]
    assert [rollout.reward for rollout in group.rollouts] == [1.0, 0.0]
    assert group.rollouts[0].reward_parts == {"gt": 1.0}
    sampling = group.rollouts[0].sampling
    assert (sampling.model, sampling.temperature, sampling.finish_reason) == ("m", 0.7, "stop")
    assert (group.policy_version, group.experience_version.split("+")[0]) == ("m", f"arithmetic@{'ab' * 8}")
    assert (group.metadata["answer"], group.metadata["alternatives"]) == ("7", ("seven",))
    assert group.metadata["item_id"] == "q1"


async def test_a_conversation_with_tools_comes_back_turn_by_turn(tmp_path):
    def add(left: int, right: int) -> int:
        """Add."""
        return left + right

    tool = tool_from_function(add)

    def script(request, key):
        if key.turn == 0:
            calls = (("c1", "add", '{"left":3,"right":4}'), ("c2", "guess", "{}"), ("c3", "add", '{"left":3,"right":4}'))
            return reply("Adding.", finish="tool_calls", calls=tuple(ToolCall(*call) for call in calls))
        return "Answer: 7"

    run = await recorded_run(tmp_path, script, [spec(2)], actor=ToolActor([tool], max_turns=3))
    manifest = json.loads(run.manifest.read_text())
    run.manifest.write_text(json.dumps({**manifest, "tools": [encode_tool(tool.spec)]}))
    (group,) = read(run)
    turns = group.rollouts[0].completion
    assert [(turn["role"], turn["content"], turn.get("tool_call_id")) for turn in turns] == [
        ("assistant", "Adding.", None),
        ("tool", "7", "c1"),
        ("tool", "error: no tool named 'guess'; there are: add", "c2"),
        ("tool", "7", "c3"),
        ("assistant", "Answer: 7", None),
    ]
    assert turns[0]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"left":3,"right":4}'}
    assert group.metadata["tools"][0]["function"]["name"] == "add"


async def test_log_probabilities_are_complete_only_with_one_for_every_counted_token(tmp_path):
    counted = [TokenUsage(10, 3), TokenUsage(10, 4), TokenUsage(10, 3, reasoning=1), None]

    def script(request, key):
        return dataclasses.replace(reply("Answer: 7"), token_logprobs=(-0.5, -0.25, -0.25), usage=counted[key.rollout])

    (group,) = read(await recorded_run(tmp_path, script, [spec(4)]))
    known = [rollout.logprob for rollout in group.rollouts]
    assert {(each.tokens, each.total, each.count, each.kind) for each in known} == {((-0.5, -0.25, -0.25), -1.0, 3, "unknown")}
    assert [each.complete for each in known] == [True, False, False, False]
    assert [rollout.usage.completion_tokens for rollout in group.rollouts] == [3, 4, 3, None]


@pytest.mark.parametrize(("further", "top_p", "ready"), [
    ({}, None, False), ({"top_p": 1}, 1, True), ({"top_p": 0.9}, 0.9, False), ({"top_p": "1"}, None, False),
    ({"top_p": 1, "top_k": 20}, 1, False), ({"top_p": 1, "reasoning_effort": "low"}, 1, True),
])  # fmt: skip
async def test_what_was_asked_for_beside_the_settings_shapes_the_distribution_too(further, top_p, ready, tmp_path):
    asked = {"model": {"extra_body": further}, "tfgrpo": {"temperature": {"train": 1.0}}}

    def script(request, key):
        return dataclasses.replace(reply("Answer: 7", tokens=1), token_logprobs=(-0.5,))

    (group,) = read(await recorded_run(tmp_path, script, [spec(1)], **asked))
    assert (group.rollouts[0].sampling.top_p, group.rollouts[0].ratio_ready) == (top_p, ready)


async def test_of_several_turns_only_the_sum_of_log_probabilities_is_known(tmp_path):
    async def one() -> str:
        """One."""
        return "1"

    def script(request, key):
        calls = (ToolCall("c", "one", "{}"),) if key.turn == 0 else ()
        told = reply("Answer: 7", finish="tool_calls" if calls else "stop", calls=calls, tokens=1)
        return dataclasses.replace(told, token_logprobs=(-0.5,) if key.turn == 0 or key.rollout == 0 else None)

    actor = ToolActor([tool_from_function(one)], max_turns=3)
    (group,) = read(await recorded_run(tmp_path, script, [spec(2)], actor=actor))
    whole, part = (rollout.logprob for rollout in group.rollouts)
    assert (whole.tokens, whole.total, whole.count, whole.complete) == (None, -1.0, 2, True)
    assert (part.total, part.complete) == (None, False)


LOST = (
    (ModelTimeout("late"), "timeout"), (ModelServerFault("500"), "transport_error"), (ActorError("broke"), "error"),
    (reply("", finish="stop"), "parse_error"), (reply("half", finish="content_filter"), "filtered"),
    (reply("half", finish="length"), "ok"), (BudgetRefused("spent"), "refused"),
)  # fmt: skip


async def test_an_attempt_without_a_reward_has_a_status_and_no_number(tmp_path):
    answers = ("Answer: 7", *(error for error, _ in LOST))
    (group,) = read(await recorded_run(tmp_path, lambda _, key: answers[key.rollout], [spec(len(answers))]))
    scored, *lost = group.rollouts
    assert scored.reward == 1.0
    assert [(each.status, each.reward, bool(each.error)) for each in lost] == [(status, None, True) for _, status in LOST]


def swapped(line):
    return line.replace('"Answer: 7"', '"Answer: 8"')


@pytest.mark.parametrize(
    ("change", "completions"),
    [
        (None, ["Answer: 7", None]),  # without a journal only short answers are known
        (lambda lines: map(swapped, lines), [None, f"{LONG}1"]),  # not the answer that was graded
        (lambda lines: [*map(swapped, lines), *lines], ["Answer: 7", f"{LONG}1"]),  # the later entry counts
        (lambda lines: [*lines, "[" * 100_000], ["Answer: 7", f"{LONG}1"]),  # a damaged line is none
    ],
)
async def test_an_answer_is_used_only_when_the_journal_has_the_one_that_was_graded(tmp_path, change, completions):
    run = await recorded_run(tmp_path, answers, [spec(2)])
    if change is None:
        run.journal.unlink()
    else:
        text = "".join(f"{line}\n" for line in change(run.journal.read_text().splitlines()))
        run.journal.write_text(text)
        if "[[" not in text:  # a damaged line has no checksum
            seal(run.journal)
    (group,) = read(run)
    assert [rollout.completion for rollout in group.rollouts] == completions
    assert group.rollouts[0].sampling.model == "m"


FIRST = PackText("Be careful, first.", sha256_hex("first"), "arithmetic", "ab" * 32, ())


async def test_a_side_of_a_split_group_is_a_group_with_the_prompt_of_its_own_arm(tmp_path):
    run = await recorded_run(tmp_path, answers, [spec(5, first_half=FIRST, split=2)])
    sides = before, _ = read(run)
    assert [(side.id, side.state[0]["content"], side.metadata["arm"], side.metadata["phase"]) for side in sides] == [
        ("run/1/group/q1/one", FIRST.system, "one", "train"),
        ("run/1/group/q1/other", "Be careful.", "other", "train"),
    ]
    completions = [[rollout.completion for rollout in side.rollouts] for side in sides]
    assert completions == [["Answer: 7", f"{LONG}1"], [f"{LONG}{index}" for index in (2, 3, 4)]]
    assert [side.target_size for side in sides] == [2, 3]
    assert [rollout.metadata["relative_rank"] for rollout in before.rollouts] == [1.0, 0.0]


async def test_a_group_in_several_places_is_refused_and_a_lost_line_may_be_of_either_side(tmp_path):
    run = await recorded_run(tmp_path, answers, [spec(2), spec(2, of=item("q2"))])
    lines = run.rollouts.read_text().splitlines()
    run.rollouts.write_text("\n".join(lines[::2] + lines[1::2]) + "\n")
    seal(run.rollouts)
    with pytest.raises(CorruptFile, match="'run/1/group/q1' are in several places"):
        read(run)
    run.rollouts.write_text("\n".join(lines[1:]) + "\n")
    seal(run.rollouts)
    assert [(len(group.rollouts), group.target_size) for group in read(run)] == [(1, 2), (2, 2)]
    run = await recorded_run(tmp_path / "split", answers, [spec(5, first_half=FIRST, split=3)])
    run.rollouts.write_text("".join(run.rollouts.read_text().splitlines(keepends=True)[1:]))
    seal(run.rollouts)
    assert [(len(group.rollouts), group.target_size) for group in read(run)] == [(2, 3), (2, 3)]


async def test_a_run_without_one_of_its_files_is_refused(tmp_path):
    run = await recorded_run(tmp_path, answers, [spec(2)])
    manifest = json.loads(run.manifest.read_text())
    run.manifest.write_text(json.dumps({**manifest, "settings": {}}))
    with pytest.raises(SettingsError, match="its manifest has no valid settings"):
        facts_of_run(run)
    unfinished = "no batch of it was finished"
    for path, says in (
        (run.items, "it has no items.jsonl"), (run.rollouts, unfinished), (run.groups, unfinished),
        (run.manifest, "it has no manifest"),
    ):  # fmt: skip
        path.rename(tmp_path / "kept")
        with pytest.raises(SettingsError, match=says):
            facts_of_run(run)
        (tmp_path / "kept").rename(path)


@pytest.mark.parametrize(("name", "line", "says"), [
    ("rollouts", '{"group_id":7}', "a line names no group"), ("rollouts", '{"group_id":"g"}', "lacks"),
    ("groups", "{", "line 1 is damaged"), pytest.param("groups", "[" * 100_000, "line 1 is damaged", id="nested"),
    ("items", '{"item_id":"another"}', "no line about 'q1'"), ("items", '{"item_id":7}', "line 1 has no item_id"),
    ("prompts", '{"digest":"another"}', "no line about"), ("items", '{"item_id":"q1"}', "lacks 'system_prompt'"),
])  # fmt: skip
async def test_inconsistent_files_are_named(tmp_path, name, line, says):
    run = await recorded_run(tmp_path, answers, [spec(2)])
    path = getattr(run, name)
    path.write_text(line + "\n")
    if line.endswith("}"):
        seal(path)
    if line == '{"group_id":"g"}':
        edit(run.groups, lambda row: {**row, "group_id": "g"})
    with pytest.raises(CorruptFile, match=says):
        read(run)


async def test_a_damaged_journal_entry_is_named(tmp_path):
    run = await recorded_run(tmp_path, answers, [spec(2)])
    edit(run.journal, lambda row: {**row, "payload": None})
    with pytest.raises(CorruptFile, match="entry of the journal about attempt 1/group/0/q1/0"):
        read(run)


async def test_what_a_run_appends_meanwhile_is_not_seen(tmp_path):
    specs = [spec(2), spec(2, of=item("q2"))]
    run = await recorded_run(tmp_path, answers, specs)
    groups = stream(run)
    next(groups)
    whole = run.rollouts.read_text()
    with run.rollouts.open("a") as file:
        file.write(whole.replace('"run/1/group/', '"later/1/group/'))
    assert [known.metadata["item_id"] for known in groups] == ["q2"]


@pytest.mark.parametrize("text", ["Answer: 7", None])
async def test_an_agent_without_model_calls_has_an_answer_and_unknown_usage(tmp_path, text):
    async def agent(prompt):
        if text is None:
            raise ActorError("lost")
        return text

    (group,) = read(await recorded_run(tmp_path, answers, [spec(2)], actor=CallableActor(agent)))
    assert [rollout.completion for rollout in group.rollouts] == [text] * 2
    assert group.rollouts[0].usage.completion_tokens is None


async def test_the_answer_of_an_agent_is_what_it_returned_and_has_no_log_probabilities(tmp_path):
    async def agent(prompt, chat):
        return f"Answer: 7, after {await chat(prompt)}"

    def script(request, key):
        return dataclasses.replace(reply("thinking"), token_logprobs=(-0.1, -0.2, -0.3, -0.4, -0.5))

    run = await recorded_run(tmp_path, script, [spec(2)], actor=CallableActor(agent))
    (group,) = read(run)
    assert [rollout.completion for rollout in group.rollouts] == ["Answer: 7, after thinking"] * 2
    assert group.rollouts[0].logprob is None
    assert group.rollouts[0].sampling.model == "m"


@pytest.mark.parametrize(("bare", "sizes"), [(False, [1, 1]), (True, [2])])
async def test_sides_of_a_single_attempt_stay_together_where_the_prompt_is_the_same(tmp_path, bare, sizes):
    run = await recorded_run(tmp_path, answers, [spec(2, first_half=FIRST, split=1)])
    groups = list(stream(run, bare=bare))
    assert [len(group.rollouts) for group in groups] == sizes
    assert [rollout.completion for group in groups for rollout in group.rollouts] == ["Answer: 7", f"{LONG}1"]
