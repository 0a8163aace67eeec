"""A group with two sides: contrasts over all attempts, ranks and advantages within a side."""

from dataclasses import replace

import pytest

from tests.support.agents.steps import ScriptedModel, lessons, reply, runtime, spec, weighted
from tests.support.records.records import make_record
from tfgrpo.stores.json_values import sha256_hex
from tfgrpo.tasks.group import run_group
from tfgrpo.tasks.shapes import PackText

ONE = PackText("Be careful, one.", sha256_hex("one"), "arithmetic", "ab" * 32, ("old",))


def split(size=4, at=None):
    return spec(size, first_half=ONE, split=size // 2 if at is None else at)


def attempts(*answers):
    """One answer per rollout of the group; every reflection names the arm that it is about."""

    def script(_, key):
        if key.role == "rollout":
            return answers[key.rollout]
        return lessons(*(f"Learned from {key.group.arm} {key.turn} {n}." for n in range(3)))

    return script


async def run(size, *answers, tmp_path, at=None, **more):
    model = ScriptedModel(attempts(*answers))
    return model, await run_group(split(size, at), runtime(model, tmp_path, **more))


RIGHT, WRONG = "Answer: 7", "Answer: 8"


@pytest.mark.parametrize(("size", "first"), [(2, 1), (3, 2), (5, 2)])
async def test_an_odd_attempt_is_of_either_side_and_every_attempt_runs_once(tmp_path, size, first):
    model, result = await run(size, *[RIGHT] * size, tmp_path=tmp_path, at=first)
    arms = [rollout.key.arm for rollout in result.rollouts]
    assert arms == ["one"] * first + ["other"] * (size - first)
    assert [rollout.index for rollout in result.rollouts] == list(range(size))
    assert (result.key.arm, {rollout.key.phase for rollout in result.rollouts}) == ("group", {"train"})
    texts = {key.rollout: request.messages[0].content for request, key in model.requests}
    assert [texts[index] == ONE.system for index in range(size)] == [arm == "one" for arm in arms]
    assert [rollout.prompt_digest == ONE.digest for rollout in result.rollouts] == [arm == "one" for arm in arms]


async def test_ranks_and_advantages_stay_within_a_side(tmp_path):
    _, result = await run(4, RIGHT, WRONG, RIGHT, RIGHT, tmp_path=tmp_path)
    assert [rollout.relative_rank for rollout in result.rollouts] == [1.0, 0.0, 0.5, 0.5]
    assert [rollout.advantage for rollout in result.rollouts] == pytest.approx([1.0, -1.0, 0.0, 0.0])
    assert [(half.arm, half.signal, half.mean_reward, half.spread) for half in result.halves] == [
        ("one", "mixed", 0.5, 0.5),
        ("other", "all_pass", 1.0, 0.0),
    ]
    assert (result.signal, result.mean_reward) == ("mixed", 0.75)
    assert result.spread == pytest.approx(0.1875**0.5)


async def test_the_better_attempts_are_contrasted_with_the_worse_ones_first_with_those_of_their_side(tmp_path):
    model, result = await run(4, RIGHT, RIGHT, RIGHT, WRONG, tmp_path=tmp_path)
    assert [(proposal.text, proposal.contrast.evidence) for proposal in result.proposals] == [
        ("Learned from group 0 0.", ("run/1/group/q1/2", "run/1/group/q1/3")),
        ("Learned from group 1 0.", ("run/1/group/q1/0", "run/1/group/q1/3")),
    ]
    assert result.learning.calls == len(model.asked("reflect")) == 2


async def test_the_reflection_is_told_which_lessons_each_attempt_carried_and_judges_them(tmp_path):
    old, new = make_record("old"), make_record("new")
    one = replace(ONE, experiences=(old,))
    other = replace(spec().pack, experience_ids=("old", "new"), experiences=(old, new))

    def script(_, key):
        if key.role == "rollout":
            return (WRONG, WRONG, RIGHT, RIGHT)[key.rollout]
        return lessons(cause="Tens.", judged=[("L1", "unused"), ("L2", "helped")])

    model = ScriptedModel(script)
    result = await run_group(replace(split(), first_half=one, pack=other), runtime(model, tmp_path))
    assert [each["lessons"] for each in model.asked("reflect")[0]["attempts"]] == [["L1", "L2"], ["L1"]]
    said = [(each.experience_id, each.judgement, each.contrast.number, each.weight) for each in result.judgements]
    judged = (("old", "unused"), ("new", "helped"))
    assert said == [(*each, contrast, 0.5) for contrast in (0, 1) for each in judged]


@pytest.mark.parametrize(("size", "learned"), [(2, ["0 0", "0 1"]), (3, ["0 0", "1 0"])])
async def test_with_a_single_attempt_on_a_side_attempts_are_ranked_across_the_sides(tmp_path, size, learned):
    _, result = await run(size, WRONG, *[RIGHT] * (size - 1), tmp_path=tmp_path)
    assert (result.signal, result.rollouts[0].relative_rank) == ("mixed", 0.0)
    assert [proposal.text for proposal in result.proposals] == [f"Learned from group {each}." for each in learned]
    assert [half.mean_reward for half in result.halves] == [0.0, 1.0]


async def test_relative_scores_compare_the_sides_so_that_their_difference_is_evidence(tmp_path):
    rewarders = tuple(weighted(name) for name in ("gt", "relative"))
    _, result = await run(4, WRONG, WRONG, RIGHT, RIGHT, tmp_path=tmp_path, rewarders=rewarders)
    relative = [next(each.score for each in one.scores if each.rewarder_id == "relative") for one in result.rollouts]
    assert relative[0] == relative[1] < relative[2] == relative[3]
    assert result.halves[0].mean_reward < result.halves[1].mean_reward


async def test_a_lost_attempt_of_a_side_leaves_the_others_as_they_are(tmp_path):
    _, result = await run(4, reply(""), WRONG, RIGHT, WRONG, tmp_path=tmp_path)
    assert [half.mean_reward for half in result.halves] == [0.0, 0.5]
    assert [rollout.relative_rank for rollout in result.rollouts] == [None, 0.25, 1.0, 0.25]
