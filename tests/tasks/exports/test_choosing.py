"""What stays out of an export stays out for a reason that is counted, and nothing without a reward ever becomes a number."""

import json
import math
import tracemalloc

import pytest

from benchmarks.parts.export import write_run
from tests.support.agents.exports import export, group, logprobs, rollout, stream
from tfgrpo.stores.batch.shapes import Sampling
from tfgrpo.stores.errors import CorruptFile, ShapeError, StoreError
from tfgrpo.tasks.exports.choosing import TARGETS, ExportOptions, ExportReport
from tfgrpo.tasks.exports.exporting import export_groups

TRAINERS = [target for target in TARGETS if target != "jsonl"]
LOST = "fewer than two attempts with a reward and their whole answer"
NO_TURNS = "its answer is neither a text nor messages that begin with the assistant"


@pytest.mark.parametrize("target", TRAINERS)
@pytest.mark.parametrize(("rewards", "why"), [
    ((1.0, 1.0), "flat: every attempt has the full reward"), ((0.0, 0.0), "flat: no attempt has any reward"),
    ((0.5, 0.5), "flat: all attempts have the same reward"), ((1.0, None), LOST),
])  # fmt: skip
def test_degenerate_groups_are_omitted_and_counted_and_no_file_is_written(target, rewards, why, tmp_path):
    rows, report = export([group(*rewards)], target, tmp_path / "x.jsonl")
    assert (rows, report["file"], report["left_out"]["groups"]) == ([], None, {why: 1})
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl.report.json"]


@pytest.mark.parametrize("target", ["trl-grpo", "trl-kto", "trl-sft", "verl", "openrlhf"])
def test_degenerate_groups_can_be_kept_and_are_flagged(target, tmp_path):
    rows, report = export([group(1.0, 1.0)], target, tmp_path / "x", degenerate="flag", min_reward=0.5)
    assert report["groups"]["flagged"] == 1
    assert [row.get("provenance", row.get("extra_info"))["degenerate"] for row in rows] == ["all_pass"] * len(rows)


@pytest.mark.parametrize(
    ("target", "rewards", "what", "why"),
    [
        ("trl-dpo", (1.0, 1.0), "groups", "no two different answers whose rewards are far enough apart"),
        ("trl-kto", (1.0, 1.0), "rollouts", "as good as its group's mean: neither desirable nor undesirable"),
        ("trl-sft", (None, None), "groups", LOST),
        ("verl", (None, None), "groups", LOST),
        ("verl", (1.0, None), "groups", "a single attempt, whose reward verl would take for its advantage"),
        ("openrlhf", (1.0, 0.0, None), "groups", "ragged: not every attempt has a reward and its whole answer"),
    ],
)
def test_a_flagged_group_that_a_trainer_cannot_use_is_omitted(target, rewards, what, why, tmp_path):
    rows, report = export([group(*rewards)], target, tmp_path / "x", degenerate="flag")
    assert rows == []
    assert why in report["left_out"][what]


def test_held_out_groups_are_omitted_unless_requested(tmp_path):
    groups = [group(1.0, 0.0), *(group(1.0, 0.0, name=phase, metadata={"phase": phase}) for phase in ("eval", "measure"))]
    for phase, taken, left in (
        ("train", [("g", "train")], {"held out for the sweep": 1, "measured on demand, for no learning": 1}),
        ("eval", [("eval", "test")], {"of training, not held out": 1, "measured on demand, for no learning": 1}),
        ("all", [("g", "train"), ("eval", "test"), ("measure", "test")], {}),
    ):
        rows, report = export(groups, "verl", tmp_path / "x", phase=phase)
        known = [row["extra_info"] for row in rows]
        assert [(each["group_id"], each["split"]) for each in known] == taken
        assert [each["index"] for each in known] == list(range(len(taken)))
        assert report["left_out"]["groups"] == left


@pytest.mark.parametrize("state", ["3 + 4?", {"board": 3}, [{"role": "assistant", "content": "Hello"}], [], 7])
def test_a_prompt_is_a_text_or_messages_that_a_model_can_answer(state, tmp_path):
    rows, report = export([group(1.0, 0.0, state=state)], "trl-dpo", tmp_path / "x")
    if state == "3 + 4?":
        assert rows[0]["prompt"] == [{"role": "user", "content": "3 + 4?"}]
    else:
        assert rows == []
        assert "neither a text nor chat messages" in next(iter(report["left_out"]["groups"]))


@pytest.mark.parametrize(("text", "more", "why"), [
    (None, {"completion": None}, "its whole answer is not on record"), ({"move": 3}, {}, NO_TURNS),
    ([{"role": "user", "content": "x"}], {}, NO_TURNS), ("x", {"reward": None, "status": "timeout"}, "timeout: no reward"),
    ("x", {"reward": None, "metadata": {"outcome": "ungraded"}}, "ungraded: no reward"),
])  # fmt: skip
def test_an_attempt_that_cannot_be_trained_on_is_counted(text, more, why, tmp_path):
    reward = more.pop("reward", 0.5)
    rollouts = (rollout(0, 1.0), rollout(1, 0.0), rollout(2, reward, text=text, **more))
    rows, report = export([group(rollouts=rollouts)], "trl-grpo", tmp_path / "x")
    assert rows[0]["recorded_rewards"] == [1.0, 0.0]
    assert report["left_out"]["rollouts"] == {why: 1}


@pytest.mark.parametrize(("kind", "temperature", "top_p", "complete", "why"), [
    ("processed", 0.7, None, True, ""), ("raw", 1.0, 1.0, True, ""), ("unknown", 1.0, 1.0, True, ""),
    ("raw", 0.7, 1.0, True, "raw: perhaps not of the distribution"), ("unknown", None, 1.0, True, "unknown: perhaps not"),
    ("raw", 1.0, None, True, "raw: perhaps not"),
    ("raw", 1.0, 0.9, True, "raw: perhaps not"), ("processed", 0.7, None, False, "not one for every token"),
])  # fmt: skip
def test_log_probabilities_are_exported_only_when_they_are_of_the_sampled_distribution(
    kind, temperature, top_p, complete, why, tmp_path
):
    sampling = Sampling(model="m", temperature=temperature, top_p=top_p)
    known = logprobs(-0.5, -0.25, kind=kind, token_ids=(1, 2), complete=complete)
    rollouts = tuple(rollout(index, float(index), logprob=known, sampling=sampling) for index in range(2))
    rows, report = export([group(rollouts=rollouts)], "trl-grpo", tmp_path / "x")
    assert rows[0]["recorded_logprobs"] == ([] if why else [[-0.5, -0.25]] * 2)
    assert rows[0]["recorded_token_ids"] == [[1, 2]] * 2
    assert [reason.startswith(why) for reason in report["left_out"]["logprobs"]] == [True] * bool(why)
    rows, report = export([group(rollouts=(rollouts[0], rollout(1, 1.0)))], "trl-grpo", tmp_path / "x")
    assert (rows[0]["recorded_logprobs"], rows[0]["recorded_token_ids"], report["left_out"]["logprobs"]) == ([], [], {})


# --- pairs, labels, the best


@pytest.mark.parametrize(
    ("rewards", "more", "pairs", "unpaired"),
    [
        # Ties are broken by tokens, of which later answers have more.
        ((0.5, 1.0, 1.0, 0.0, 0.2), {"pairs": 3}, [(1, 3), (2, 4)], 1),
        ((0.6, 0.4), {"min_gap": 0.3}, [], 0),
        ((0.6, 0.4), {"min_gap": 0.1}, [(0, 1)], 0),
    ],
)
def test_pairs_are_the_best_against_the_worst_and_far_enough_apart(rewards, more, pairs, unpaired, tmp_path):
    rows, report = export([group(*rewards)], "trl-dpo", tmp_path / "x", **more)
    said = [(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in rows]
    assert said == [(f"answer {best}", f"answer {worst}") for best, worst in pairs]
    assert [(row["chosen_reward"], row["rejected_reward"]) for row in rows] == [
        (rewards[best], rewards[worst]) for best, worst in pairs
    ]
    assert report["left_out"]["rollouts"] == ({"in no pair": unpaired} if unpaired else {})
    same = (rollout(0, 1.0, text="seven"), rollout(1, 0.0, text="seven"))
    assert export([group(rollouts=same)], "trl-dpo", tmp_path / "y")[0] == []


def test_labels_follow_the_mean_of_the_group_or_the_least_reward(tmp_path):
    rows, report = export([group(1.0, 0.5, 0.0)], "trl-kto", tmp_path / "x")
    assert [(row["reward"], row["label"]) for row in rows] == [(1.0, True), (0.0, False)]
    assert list(report["left_out"]["rollouts"].values()) == [1]
    rows, _ = export([group(1.0, 0.5, 0.0)], "trl-kto", tmp_path / "x", min_reward=0.5)
    assert [row["label"] for row in rows] == [True, True, False]


def test_the_best_of_a_group_is_imitated_if_it_is_good_enough(tmp_path):
    rows, report = export([group(0.0, 0.5), group(0.0, 1.0, name="h")], "trl-sft", tmp_path / "x", min_reward=0.8)
    assert [(row["completion"][0]["content"], row["reward"]) for row in rows] == [("answer 1", 1.0)]
    assert report["left_out"] == {
        "groups": {"no answer reaches the least reward": 1}, "rollouts": {"not the best of its group": 1}, "logprobs": {},
    }  # fmt: skip


@pytest.mark.parametrize("odd", ["{broken", "[3]", '{"left":NaN}', '{"left":1e999}', {"left": 4}])
def test_tool_calls_are_exported_for_chat_templates_with_a_column_of_tools(tmp_path, odd):
    def turns(arguments):
        call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": arguments}}
        asked = {"role": "assistant", "content": None, "tool_calls": [call]}
        told = {"role": "tool", "tool_call_id": "c", "name": "add", "content": "7"}
        return [asked, told, {"role": "assistant", "content": "7"}]

    rollouts = (rollout(0, 1.0, text=turns('{"left":3}')), rollout(1, 0.0, text=turns(odd)))
    tools = [{"type": "function", "function": {"name": "add"}}]
    rows, _ = export([group(rollouts=rollouts, metadata={"tools": tools})], "trl-dpo", tmp_path / "x")
    assert rows[0]["chosen"][0]["tool_calls"][0]["function"]["arguments"] == {"left": 3}
    assert rows[0]["rejected"][0]["tool_calls"][0]["function"]["arguments"] == odd
    assert json.loads(rows[0]["tools"]) == tools


# --- shapes of the rows


def test_the_rows_have_the_columns_that_each_trainer_reads(tmp_path):
    groups = [group(1.0, 0.0), group(1.0, 0.0, name="h", metadata={"answer": None})]
    rows, _ = export(groups, "verl", tmp_path / "x")
    assert all(set(row) == {"data_source", "prompt", "ability", "reward_model", "extra_info"} for row in rows)
    assert [row["reward_model"] for row in rows] == [
        {"style": "rule", "ground_truth": "7"}, {"style": "model", "ground_truth": ""},
    ]  # fmt: skip
    assert (rows[0]["data_source"], rows[0]["ability"]) == ("t", "sums")
    rows, _ = export(groups, "openrlhf", tmp_path / "x")
    assert (rows[0]["input"][-1]["content"], rows[0]["label"], rows[0]["datasource"]) == ("3 + 4?", "7", "t")
    rows, _ = export(groups, "trl-grpo", tmp_path / "x")
    # Arguments of a reward function, which no column may hide.
    assert not set(rows[0]) & {"prompts", "completions", "completion_ids", "completion", "trainer_state", "log_extra"}
    assert rows[0]["answer"] == "7"


@pytest.mark.parametrize("target", ["trl-sft", "verl", "jsonl"])
def test_a_failed_write_and_a_reward_that_is_nan_keep_the_old_file_and_no_temporary_file(target, tmp_path):
    def broken():
        yield group(1.0, 0.0)
        raise CorruptFile("two")

    (tmp_path / "x").write_text("before")
    with pytest.raises(CorruptFile):
        export(broken(), target, tmp_path / "x")
    with pytest.raises(ShapeError, match="a finite number"):
        export([group(1.0, 0.0), group(1.0, math.nan, name="h")], target, tmp_path / "x")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x", "before")]
    with pytest.raises(StoreError, match="cannot be written"):
        export([group(1.0, 0.0)], target, tmp_path / "x" / "y")


# --- large files


def most_memory(path, attempts):
    run = write_run(path, attempts, run_id=f"of-{attempts}")
    report = ExportReport("test", ExportOptions(target="trl-grpo"))
    tracemalloc.start()
    try:
        export_groups(stream(run), path / "x.jsonl", report)
        return tracemalloc.get_traced_memory()[1], report.rows
    finally:
        tracemalloc.stop()


@pytest.mark.untraced
def test_memory_grows_by_keys_offsets_and_prompts_alone(tmp_path):
    most_memory(tmp_path, 80)
    (few, _), (many, rows) = most_memory(tmp_path, 400), most_memory(tmp_path, 1_200)
    assert rows == 150
    # Of each attempt its files have 1,800 bytes; as objects, those would take several times as much.
    assert (many - few) / 800 < 1_000
