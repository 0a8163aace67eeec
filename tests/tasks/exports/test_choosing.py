"""What stays out of an export stays out for a reason that is counted, and nothing without a reward ever becomes a number."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.agents.exports import export, group, logprobs, rollout
from tfgrpo.stores.batch.lines import read_groups
from tfgrpo.stores.batch.shapes import Sampling
from tfgrpo.stores.errors import SettingsError, ShapeError
from tfgrpo.tasks.exports.choosing import TARGETS, ExportOptions

TRAINERS = [target for target in TARGETS if target != "jsonl"]


@pytest.mark.parametrize("target", TARGETS)
def test_a_group_with_different_rewards_is_exported_in_every_form(target, tmp_path):
    rows, report = export(
        [group(1.0, 0.0, None)] if target != "openrlhf" else [group(1.0, 0.0)], target, tmp_path / "x"
    )
    assert rows
    assert report["groups"] == {"read": 1, "written": 1, "flagged": 0}
    assert report["rows"] == len(rows)
    assert (report["policy_versions"], report["experience_versions"]) == ({"m": 1}, {"arithmetic@1+2": 1})
    assert not report["simulated"]


@pytest.mark.parametrize("target", TRAINERS)
@pytest.mark.parametrize(
    ("rewards", "why"),
    [
        ((1.0, 1.0), "flat: every attempt has the full reward"),
        ((0.0, 0.0), "flat: no attempt has any reward"),
        ((0.5, 0.5), "flat: all attempts have the same reward"),
        ((1.0, None), "fewer than two attempts with a reward and their whole answer"),
        ((None, None), "fewer than two attempts with a reward and their whole answer"),
    ],
)
def test_degenerate_groups_are_omitted_and_counted_and_no_file_is_written(target, rewards, why, tmp_path):
    rows, report = export([group(*rewards)], target, tmp_path / "x.jsonl")
    assert rows == []
    assert report["left_out"]["groups"] == {why: 1}
    assert report["file"] is None
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl.report.json"]


@pytest.mark.parametrize("target", ["trl-grpo", "trl-kto", "trl-sft", "verl", "openrlhf"])
def test_degenerate_groups_can_be_kept_and_are_flagged(target, tmp_path):
    rows, report = export([group(1.0, 1.0)], target, tmp_path / "x", degenerate="flag", min_reward=0.5)
    assert report["groups"]["flagged"] == 1
    assert [row.get("provenance", row.get("extra_info"))["degenerate"] for row in rows] == ["all_pass"] * len(rows)


def test_a_flat_group_has_no_pair_and_its_answers_have_no_label(tmp_path):
    rows, report = export([group(1.0, 1.0)], "trl-dpo", tmp_path / "x", degenerate="flag")
    assert rows == []
    assert report["left_out"]["groups"] == {"no two different answers whose rewards are far enough apart": 1}
    rows, report = export([group(1.0, 1.0)], "trl-kto", tmp_path / "y", degenerate="flag")
    assert rows == []
    assert sum(report["left_out"]["rollouts"].values()) == 2


@pytest.mark.parametrize("target", ["verl", "trl-sft"])
def test_a_group_without_usable_attempts_is_omitted_even_when_flagged(target, tmp_path):
    rows, report = export([group(None, None)], target, tmp_path / "x", degenerate="flag")
    assert rows == []
    assert sum(report["left_out"]["groups"].values()) == 1


def test_a_single_attempt_never_goes_to_verl(tmp_path):
    rows, report = export([group(1.0, None)], "verl", tmp_path / "x", degenerate="flag")
    assert rows == []
    assert list(report["left_out"]["groups"]) == ["a single attempt, whose reward verl would take for its advantage"]


def test_only_whole_groups_go_to_openrlhf(tmp_path):
    rows, report = export([group(1.0, 0.0, None), group(1.0, 0.0, name="h")], "openrlhf", tmp_path / "x")
    assert len(rows) == 1
    assert list(report["left_out"]["groups"]) == ["ragged: not every attempt has a reward and its whole answer"]


def test_held_out_groups_are_omitted_unless_requested(tmp_path):
    groups = [group(1.0, 0.0), group(1.0, 0.0, name="h", metadata={"phase": "eval"})]
    rows, report = export(groups, "verl", tmp_path / "x")
    assert [row["extra_info"]["group_id"] for row in rows] == ["g"]
    assert report["left_out"]["groups"] == {"held out for the sweep": 1}
    rows, report = export(groups, "verl", tmp_path / "x", phase="eval")
    assert [(row["extra_info"]["group_id"], row["extra_info"]["split"]) for row in rows] == [("h", "test")]
    rows, _ = export(groups, "verl", tmp_path / "x", phase="all")
    assert [row["extra_info"]["index"] for row in rows] == [0, 1]


def test_the_bare_prompt_is_the_task_alone(tmp_path):
    rows, _ = export([group(1.0, 0.0)], "trl-sft", tmp_path / "x", prompt="bare")
    assert rows[0]["prompt"] == [{"role": "user", "content": "3 + 4?"}]
    assert rows[0]["provenance"]["prompt"] == "bare"
    for target in ("trl-sft", "jsonl"):
        rows, report = export([group(1.0, 0.0, bare_state=None)], target, tmp_path / "y", prompt="bare")
        assert (rows, report["left_out"]["groups"]) == ([], {"its bare prompt is not known": 1})


@pytest.mark.parametrize("state", [{"board": 3}, [{"role": "assistant", "content": "Hello"}], [], 7])
def test_a_prompt_that_no_model_can_answer_is_omitted(state, tmp_path):
    rows, report = export([group(1.0, 0.0, state=state)], "trl-dpo", tmp_path / "x")
    assert rows == []
    assert "neither a text nor chat messages" in next(iter(report["left_out"]["groups"]))


def test_a_text_is_a_prompt_of_the_user(tmp_path):
    rows, _ = export([group(1.0, 0.0, state="3 + 4?")], "trl-dpo", tmp_path / "x")
    assert rows[0]["prompt"] == [{"role": "user", "content": "3 + 4?"}]


@pytest.mark.parametrize(
    ("text", "more", "why"),
    [
        (None, {"completion": None}, "its whole answer is not on record"),
        ({"move": 3}, {}, "its answer is neither a text nor messages that begin with the assistant"),
        (
            [{"role": "user", "content": "x"}],
            {},
            "its answer is neither a text nor messages that begin with the assistant",
        ),
        ("x", {"reward": None, "status": "timeout"}, "timeout: no reward"),
        ("x", {"reward": None, "metadata": {"outcome": "ungraded"}}, "ungraded: no reward"),
    ],
)
def test_an_attempt_that_cannot_be_trained_on_is_counted(text, more, why, tmp_path):
    reward = more.pop("reward", 0.5)
    rollouts = (rollout(0, 1.0), rollout(1, 0.0), rollout(2, reward, text=text, **more))
    rows, report = export([group(rollouts=rollouts)], "trl-grpo", tmp_path / "x")
    assert rows[0]["recorded_rewards"] == [1.0, 0.0]
    assert report["left_out"]["rollouts"] == {why: 1}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_nan_is_refused_and_neither_file_is_touched(target, reward, tmp_path):
    (tmp_path / "x").write_text("before")
    with pytest.raises(ShapeError, match="a finite number"):
        export([group(1.0, 0.0), group(1.0, reward, name="h")], target, tmp_path / "x")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x", "before")]


def test_simulated_answers_are_labelled(tmp_path):
    rows, report = export([group(1.0, 0.0, metadata={"simulated": True})], "trl-dpo", tmp_path / "x")
    assert rows[0]["provenance"]["simulated"] is True
    assert report["simulated"] is True


def test_the_report_lists_a_bounded_number_of_versions(tmp_path):
    groups = [group(1.0, 0.0, name=f"g{number}", experience_version=f"v{number}") for number in range(30)]
    _, report = export(groups, "trl-sft", tmp_path / "x")
    assert len(report["experience_versions"]) == 20
    assert report["policy_versions"] == {"m": 30}


# --- log-probabilities


@pytest.mark.parametrize(
    ("kind", "temperature", "top_p", "fit"),
    [
        ("processed", 0.7, None, True),
        ("raw", 1.0, None, True),
        ("unknown", 1.0, 1.0, True),
        ("raw", 0.7, None, False),
        ("unknown", None, None, False),
        ("raw", 1.0, 0.9, False),
    ],
)
def test_log_probabilities_are_exported_only_when_they_are_of_the_sampled_distribution(
    kind, temperature, top_p, fit, tmp_path
):
    sampling = Sampling(model="m", temperature=temperature, top_p=top_p)
    rollouts = [
        rollout(index, float(index), logprob=logprobs(-0.5, -0.25, kind=kind, token_ids=(1, 2)), sampling=sampling)
        for index in range(2)
    ]
    rows, report = export([group(rollouts=tuple(rollouts))], "trl-grpo", tmp_path / "x")
    assert rows[0]["recorded_logprobs"] == ([[-0.5, -0.25]] * 2 if fit else [])
    assert rows[0]["recorded_token_ids"] == [[1, 2]] * 2
    assert sum(report["left_out"]["logprobs"].values()) == (not fit)


def test_incomplete_log_probabilities_are_not_exported(tmp_path):
    rollouts = (rollout(0, 1.0, logprob=logprobs(-0.5)), rollout(1, 0.0, logprob=logprobs(-0.5, complete=False)))
    rows, report = export([group(rollouts=rollouts)], "verl", tmp_path / "x")
    assert rows[0]["extra_info"]["recorded_logprobs"] == []
    assert report["left_out"]["logprobs"] == {"not one for every token": 1}
    rows, report = export([group(rollouts=(rollouts[0], rollout(1, 0.0)))], "verl", tmp_path / "x")
    assert (rows[0]["extra_info"]["recorded_logprobs"], report["left_out"]["logprobs"]) == ([], {})


# --- pairs, labels, the best


def test_pairs_are_the_best_against_the_worst_with_ties_broken_by_tokens(tmp_path):
    rollouts = tuple(rollout(index, reward) for index, reward in enumerate((0.5, 1.0, 1.0, 0.0, 0.2)))
    rows, report = export([group(rollouts=rollouts)], "trl-dpo", tmp_path / "x", pairs=3)
    said = [(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in rows]
    assert said == [("answer 1", "answer 3"), ("answer 2", "answer 4")]
    assert [(row["chosen_reward"], row["rejected_reward"]) for row in rows] == [(1.0, 0.0), (1.0, 0.2)]
    assert report["left_out"]["rollouts"] == {"in no pair": 1}


def test_a_pair_needs_the_gap_and_two_different_answers(tmp_path):
    rows, _ = export([group(0.6, 0.4)], "trl-dpo", tmp_path / "x", min_gap=0.3)
    assert rows == []
    same = (rollout(0, 1.0, text="seven"), rollout(1, 0.0, text="seven"))
    rows, _ = export([group(rollouts=same)], "trl-dpo", tmp_path / "x")
    assert rows == []


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=2, max_size=9), st.integers(1, 5))
def test_chosen_always_beats_rejected_and_no_answer_is_used_twice(tmp_path_factory, rewards, pairs):
    path = tmp_path_factory.getbasetemp() / "pairs.jsonl"
    rows, report = export([group(*rewards)], "trl-dpo", path, pairs=pairs)
    assert all(row["chosen_reward"] > row["rejected_reward"] for row in rows)
    used = [row[side][0]["content"] for row in rows for side in ("chosen", "rejected")]
    assert len(set(used)) == len(used)
    assert len(rows) <= pairs
    assert bool(rows) == (len(set(rewards)) > 1)
    assert report["groups"]["written"] == bool(rows)


def test_labels_follow_the_mean_of_the_group_or_the_least_reward(tmp_path):
    rows, report = export([group(1.0, 0.5, 0.0)], "trl-kto", tmp_path / "x")
    assert [(row["reward"], row["label"]) for row in rows] == [(1.0, True), (0.0, False)]
    assert list(report["left_out"]["rollouts"].values()) == [1]
    rows, _ = export([group(1.0, 0.5, 0.0)], "trl-kto", tmp_path / "x", min_reward=0.5)
    assert [row["label"] for row in rows] == [True, True, False]


def test_the_best_of_a_group_is_imitated_if_it_is_good_enough(tmp_path):
    rows, report = export([group(0.0, 0.5), group(0.0, 1.0, name="h")], "trl-sft", tmp_path / "x", min_reward=0.8)
    assert [(row["completion"][0]["content"], row["reward"]) for row in rows] == [("answer 1", 1.0)]
    assert report["left_out"]["groups"] == {"no answer reaches the least reward": 1}


@pytest.mark.parametrize("odd", ["{broken", "[3]", '{"left":NaN}', '{"left":1e999}'])
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


def test_the_rows_of_verl_have_its_five_columns(tmp_path):
    rows, _ = export([group(1.0, 0.0), group(1.0, 0.0, name="h", metadata={"answer": None})], "verl", tmp_path / "x")
    assert all(set(row) == {"data_source", "prompt", "ability", "reward_model", "extra_info"} for row in rows)
    assert rows[0]["reward_model"] == {"style": "rule", "ground_truth": "7"}
    assert rows[1]["reward_model"] == {"style": "model", "ground_truth": ""}
    assert (rows[0]["data_source"], rows[0]["ability"]) == ("t", "sums")


def test_the_rows_of_openrlhf_have_its_keys(tmp_path):
    rows, _ = export([group(1.0, 0.0)], "openrlhf", tmp_path / "x")
    assert rows[0]["input"][-1] == {"role": "user", "content": "3 + 4?"}
    assert (rows[0]["label"], rows[0]["datasource"]) == ("7", "t")


def test_the_columns_of_grpo_hide_no_argument_of_a_reward_function(tmp_path):
    rows, _ = export([group(1.0, 0.0)], "trl-grpo", tmp_path / "x")
    assert not set(rows[0]) & {"prompts", "completions", "completion_ids", "completion", "trainer_state", "log_extra"}
    assert rows[0]["answer"] == "7"


def test_the_canonical_form_keeps_failed_attempts_and_can_omit_flat_groups(tmp_path):
    groups = [group(1.0, 0.0, None), group(1.0, 1.0, name="h")]
    lines, report = export(groups, "jsonl", tmp_path / "x.jsonl", degenerate="flag", prompt="bare")
    back = list(read_groups(tmp_path / "x.jsonl"))
    assert [known.metadata["signal"] for known in back] == ["mixed", "all_pass"]
    assert back[0].rewards == (1.0, 0.0, None)
    assert back[0].state == groups[0].bare_state
    assert (report["rows"], report["groups"]["flagged"]) == (len(lines), 1)
    _, report = export(groups, "jsonl", tmp_path / "x.jsonl", degenerate="drop")
    assert report["left_out"]["groups"] == {"degenerate: all_pass": 1}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"min_gap": -1.0}, "--min-gap"),
        ({"min_gap": math.nan}, "--min-gap"),
        ({"pairs": 0}, "--pairs"),
        ({"min_reward": math.inf}, "--min-reward"),
    ],
)
def test_options_out_of_range_are_refused(given, says):
    with pytest.raises(SettingsError, match=says):
        ExportOptions(target="trl-dpo", **given)
