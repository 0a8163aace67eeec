import asyncio
import errno
import os
import pickle
import time
from dataclasses import replace

import pytest

from tests.support.agents import agents
from tests.support.agents.steps import Says, ScriptedModel, item, lessons, reply, runtime, spec, weighted
from tests.support.waiting import eventually
from tfgrpo.rewarders.scorer import Abstained
from tfgrpo.stores.errors import ActorError, BudgetRefused, ModelAuthRefused, ModelServerFault, StoreError
from tfgrpo.stores.outcomes import REWARDER_LATE, Failed, Refused, RewardScore, Ungraded, classify
from tfgrpo.tasks import group as group_module
from tfgrpo.tasks.actors.own import CallableActor
from tfgrpo.tasks.actors.registry import ToolActor
from tfgrpo.tasks.group import run_group
from tfgrpo.tasks.models.base import ToolCall
from tfgrpo.tasks.rollout import summarize_trajectory
from tfgrpo.tasks.shapes import Trajectory
from tfgrpo.tasks.tools.schema import tool_from_function

LESSON = lessons("Add the tens first.", cause="Tens.")


def attempts(*answers, learning=LESSON):
    """A script: one answer per rollout of a group."""
    return lambda _, key: answers[key.rollout] if key.role == "rollout" else learning


async def grouped(script, tmp_path, size=2, **more):
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    specified = spec(size, **{name: more.pop(name) for name in ("reflect", "of", "arm", "epoch") if name in more})
    return model, await run_group(specified, runtime(model, tmp_path, **more))


async def test_a_mixed_group_is_scored_ranked_and_reflected_on(tmp_path):
    model, result = await grouped(attempts("Answer: 7", "Answer: 8"), tmp_path)
    best, worst = result.rollouts
    assert (best.outcome.reward, worst.outcome.reward) == (1.0, 0.0)
    assert (best.relative_rank, worst.relative_rank) == (1.0, 0.0)
    assert best.advantage == pytest.approx(1.0)
    assert (result.signal, result.mean_reward, result.spread) == ("mixed", 0.5, 0.5)
    assert [proposal.text for proposal in result.proposals] == ["Add the tens first."]
    assert [(each.cause, each.amount) for each in result.contrasts] == [("Tens.", 1.0)]
    assert (result.learning.calls, result.learning.cost_usd) == (1, 0.001)
    assert (best.rollout_id, best.index, best.group_id) == ("run/1/group/q1/0", 0, result.group_id)
    assert best.summary.endswith("Answer: 7")
    assert len(model.requests) == 3


@pytest.mark.parametrize(
    ("answers", "more", "signal", "ranks"),
    [
        (("Answer: 7", "Answer: 7"), {}, "all_pass", {0.5}),
        (("Answer: 8", "Answer: 9"), {"reflect": False}, "all_fail", {0.5}),
        # A lost attempt makes no contrast with a good one.
        (("Answer: 7", reply("Answer: 8", finish="length")), {}, "lost", {None}),
        (("Answer: 7", ModelServerFault("503")), {}, "lost", {None}),
    ],
)
async def test_a_group_without_a_contrast_is_not_reflected_on_and_costs_no_further_call(tmp_path, answers, more, signal, ranks):
    model, result = await grouped(attempts(*answers), tmp_path, **more)
    assert (result.signal, result.proposals, {rollout.relative_rank for rollout in result.rollouts}) == (signal, (), ranks)
    assert result.mean_reward == float(answers[0] == "Answer: 7")
    assert [key.role for _, key in model.requests] == ["rollout", "rollout"]


async def test_a_group_that_fails_is_held_against_the_reference_answer_and_counts_half(tmp_path):
    model, result = await grouped(attempts("Answer: 8", "Answer: 9", "Answer: 8"), tmp_path, size=3)
    assert (result.signal, result.learning.calls) == ("all_fail", 1)
    assert model.asked("reflect")[0]["reference_answer"] == "7"
    assert [(each.text, each.contrast.amount) for each in result.proposals] == [("Add the tens first.", 0.5)]


async def test_all_members_run_even_if_one_fails(tmp_path):
    script = attempts(ModelServerFault("503"), "Answer: 7", "Answer: 8")
    _, result = await grouped(script, tmp_path, size=3)
    failed, *scored = result.rollouts
    assert isinstance(failed.outcome, Failed)
    assert (failed.advantage, failed.relative_rank, failed.finish_reason) == (None, None, "none")
    assert [rollout.outcome.reward for rollout in scored] == [1.0, 0.0]
    assert result.mean_reward == 0.5
    assert result.signal == "mixed"


async def test_every_attempt_is_summarised_once_and_after_its_last_event(tmp_path, monkeypatch):
    given = []

    def summarised(frames, output, **limits):
        given.append((frames, output))
        return summarize_trajectory(frames, output, **limits)

    monkeypatch.setattr(group_module, "summarize_trajectory", summarised)

    def script(_, key):
        if key.role != "rollout":
            return LESSON
        if key.turn <= key.rollout:  # the attempts make one, two and three tool calls
            return reply(None, finish="tool_calls", calls=(ToolCall("c", "add", '{"left": 1, "right": 2}'),))
        return f"Answer: {7 + key.rollout}"

    actor = ToolActor([tool_from_function(agents.add)], max_turns=4)
    _, result = await grouped(script, tmp_path, size=3, actor=actor)
    for (frames, output), rollout, calls in zip(given, result.rollouts, (1, 2, 3), strict=True):
        assert [frame.kind for frame in frames].count("tool") == len(rollout.tools) == calls
        assert frames[-1].kind == "model", "the last event is the answer"
        assert (output, rollout.summary) == (rollout.output, summarize_trajectory(frames, output))


async def test_a_group_without_any_score_has_no_mean(tmp_path):
    _, result = await grouped(attempts("7", "8"), tmp_path, of=item(answer=""))
    assert (result.signal, result.mean_reward, result.spread) == ("lost", None, None)
    assert all(isinstance(rollout.outcome, Ungraded) for rollout in result.rollouts)


async def test_a_refused_budget_is_carried_in_the_result(tmp_path):
    model, result = await grouped(attempts("Answer: 7", "Answer: 8", BudgetRefused("max_calls 2")), tmp_path, size=3)
    assert result.budget_refused == "max_calls 2"
    assert isinstance(result.rollouts[2].outcome, Refused)
    assert not any(key.role == "reflect" for _, key in model.requests)
    _, result = await grouped(attempts("Answer: 7", "Answer: 8", learning=BudgetRefused("cap")), tmp_path / "learning")
    assert result.budget_refused == "cap"


@pytest.mark.parametrize("error", [ModelAuthRefused("401"), StoreError("disk full")])
async def test_what_ends_the_run_is_carried_in_the_result(tmp_path, error):
    _, result = await grouped(attempts("Answer: 7", error), tmp_path)
    assert result.fatal == f"{type(error).__name__}: {error}"


async def test_the_answers_of_a_group_are_synced_before_it_ends(tmp_path, monkeypatch):
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    await grouped(attempts("Answer: 7", "Answer: 8"), tmp_path)
    assert synced[0] == (tmp_path / "journal.jsonl").stat().st_size > 0

    def refuse(fd):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    _, result = await grouped(attempts("Answer: 7", "Answer: 8"), tmp_path)
    assert "journal.jsonl: cannot be synced: Input/output error" in result.fatal, "which ends the run"


async def test_a_broken_reflection_costs_the_lessons_of_this_group_alone(tmp_path):
    _, result = await grouped(attempts("Answer: 7", "Answer: 8", learning=ModelServerFault("503")), tmp_path)
    assert result.reflection_failure.error_type == "ModelServerFault"
    assert [broken.call_key for broken in result.broken_calls] == [result.reflection_failure.call_key]
    assert (result.fatal, result.budget_refused) == (None, None)


async def test_a_rollout_that_hangs_fails_at_its_limit_and_names_its_call(tmp_path):
    async def hang():
        await asyncio.sleep(60)

    made = runtime(lambda _, key: hang() if key.rollout else "Answer: 7", tmp_path, limits={"timeout_s": 0.05})
    result = await run_group(spec(2), made)
    hanging = result.rollouts[1].outcome
    assert (hanging.error_type, hanging.call_key.split("/")[6]) == ("ModelTimeout", "rollout")


def alike(name, verdict, **more):
    """A rewarder that says the same of every attempt."""
    return weighted(Says(name, lambda context: [verdict for _ in context.outputs], **more))


HANGING = Says("hanging", lambda _: time.sleep(0.5) or [])


async def test_an_agent_that_goes_on_after_its_answer_is_refused_further_calls(tmp_path):
    late, ended = [], asyncio.Event()

    async def agent(chat):
        async def linger():
            await ended.wait()
            return await chat("And now?")

        late.append(asyncio.create_task(linger()))
        return "Answer: 7"

    await run_group(spec(1), runtime(attempts("never"), tmp_path, actor=CallableActor(agent)))
    ended.set()
    with pytest.raises(ActorError, match="the attempt is over"):
        await late[0]


async def test_what_a_rewarder_says_is_recorded_without_the_key(tmp_path):
    said = [RewardScore("telling", 1.0, "saw sk-key"), Abstained("telling", "lost sk-key")]
    telling = weighted(Says("telling", lambda _: said))
    made = runtime(attempts("Answer: 7", "Answer: 8"), tmp_path, rewarders=(telling,))
    result = await run_group(spec(2), replace(made, scrub=lambda text: text.replace("sk-key", "***")))
    scored, ungraded = result.rollouts
    assert (scored.scores[0].evidence, ungraded.outcome.reason) == ("saw ***", "telling: lost ***")
    assert "sk-key" not in repr(result)


async def test_a_hanging_rewarder_leaves_its_attempts_without_a_reward_but_with_the_other_scores(tmp_path):
    rewarders = (weighted("gt"), weighted(HANGING, timeout_s=0.05))
    _, result = await grouped(attempts("Answer: 7", "Answer: 8"), tmp_path, rewarders=rewarders)
    late = Ungraded(REWARDER_LATE, "hanging: no score within 0.05 s")
    assert [rollout.outcome for rollout in result.rollouts] == [late, late]
    assert all([score.rewarder_id for score in rollout.scores] == ["gt"] for rollout in result.rollouts)


@pytest.mark.parametrize(("counting", "outcome"), [("gt", "scored"), ("undecided", "rewarder")])
async def test_a_hanging_rewarder_that_does_not_count_costs_no_reward_and_no_attempt_its_kind(tmp_path, counting, outcome):
    rewarder = weighted("gt") if counting == "gt" else alike("undecided", Abstained("undecided", "cannot tell"))
    rewarders = (rewarder, weighted(HANGING, 0.0, timeout_s=0.05))
    _, result = await grouped(attempts("Answer: 7", "Answer: 8"), tmp_path, rewarders=rewarders)
    assert [getattr(rollout.outcome, "error_type", "scored") for rollout in result.rollouts] == [outcome] * 2


async def test_rewarders_see_the_context_of_the_item(tmp_path):
    seen = []
    curious = weighted(Says("curious", lambda context: seen.append(context) or [RewardScore("curious", 0.5, "ok")] * 2))
    await grouped(attempts("7", "8"), tmp_path, rewarders=(curious,))
    assert (seen[0].fixture_path, seen[0].answer, [a.output for a in seen[0].outputs]) == ("items.jsonl#q1", "7", ["7", "8"])


async def test_a_result_is_small_for_rollouts_of_any_length(tmp_path):
    _, result = await grouped(attempts("x" * 10**5 + " Answer: 7", "y" * 10**5 + " Answer: 8"), tmp_path)
    assert all(len(rollout.output) <= 2_000 for rollout in result.rollouts)
    assert result.rollouts[0].output.endswith("Answer: 7")
    assert len(pickle.dumps(result)) < 20_000


async def test_actors_in_flight_are_bounded(tmp_path):
    running = peak = 0

    class Counting:
        async def attempt(self, attempt):
            nonlocal running, peak
            running += 1
            peak = max(peak, running)
            await eventually(lambda: peak >= 8)
            await asyncio.sleep(0.01)
            running -= 1
            return Trajectory("Answer: 7", ())

    made = runtime(lambda *_: "7", tmp_path, actor=Counting())
    await asyncio.gather(*(run_group(spec(4, of=item(f"q{number}")), made) for number in range(6)))
    assert peak == 8


async def test_each_group_is_sampled_at_its_own_temperature(tmp_path):
    model = ScriptedModel(lambda *_: "Answer: 7")
    made = runtime(model, tmp_path)
    training = spec(2, reflect=False)
    await run_group(training, made)
    await run_group(replace(training, temperature=0.3, key=replace(training.key, arm="library", phase="eval")), made)
    assert [request.temperature for request, _ in model.requests] == [0.7, 0.7, 0.3, 0.3]


@pytest.mark.parametrize(("values", "spread", "limit", "signal"), [
    ([1.0, 1.0], 0.0, 0.0, "all_pass"), ([0.0, 0.0], 0.0, 0.0, "all_fail"), ([0.5, 0.5], 0.0, 0.0, "flat"),
    ([0.5, 0.6], 0.05, 0.2, "flat"), ([0.5, 0.6], 0.05, 0.05, "mixed"), ([1.0], 0.0, 0.0, "lost"),
])  # fmt: skip
def test_signals(values, spread, limit, signal):
    assert classify(values, spread, limit) == signal


@pytest.mark.parametrize(("points", "signal"), [(10.0, "all_pass"), (0.0, "all_fail"), (1.0, "flat")])
async def test_signals_use_the_declared_range(tmp_path, points, signal):
    ten = alike("ten", RewardScore("ten", points, "points"), score_range=(0.0, 10.0))
    made = runtime(attempts("7", "8"), tmp_path, rewarders=(ten,))
    assert (await run_group(spec(2), made)).signal == signal


async def test_a_second_draw_of_an_item_is_another_group_with_seeds_and_journal_keys_of_its_own(tmp_path):
    model = ScriptedModel(attempts("Answer: 7", "Answer: 8"))
    running = runtime(model, tmp_path)
    first = await run_group(spec(2), running)
    second = await run_group(replace(spec(2, draw=1), group_id="run/1/group/q1-again"), running)
    asked = [(key.group.draw_id, key.rollout, request.seed) for request, key in model.requests]
    assert len(set(asked)) == len(asked) == 6
    assert {rollout.seed for rollout in first.rollouts}.isdisjoint(rollout.seed for rollout in second.rollouts)
    assert first.key.item == second.key.item
