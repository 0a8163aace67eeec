"""Judges within a group: every call has a key and a seed, is journalled and counted; failures are data."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from tests.support.agents.steps import ScriptedModel, item, lessons, runtime, spec, weighted
from tfgrpo.rewarders.judge.model import JudgeQuestion
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.scorer import Attempt, RewardContext
from tfgrpo.stores.errors import BudgetRefused, ModelAuthRefused, ModelServerFault
from tfgrpo.stores.outcomes import RewardScore, Scored, Ungraded
from tfgrpo.tasks.group import GroupJudge, run_group

LESSON = lessons("Add the tens first.")
VERDICTS = {"Answer: 7": 0.9, "Answer: 8": 0.2}


def script(judging=None, answers=("Answer: 7", "Answer: 8")):
    def answer(request, key):
        if key.role == "rollout":
            return answers[key.rollout]
        if key.role == "judge":
            return judging(request, key) if judging else by_answer(request, key)
        return LESSON

    return answer


def by_answer(request, key):
    shown = json.loads(request.messages[1].content)
    if "output" in shown:
        return {"reason": "because", "score": VERDICTS[shown["output"]]}
    return {"reason": "", "better": "first" if VERDICTS[shown["first"]] > VERDICTS[shown["second"]] else "second"}


async def judged(tmp_path, judging=None, *rewarders, replay=False, size=2, **more):
    model = ScriptedModel(script(judging))
    used = runtime(model, tmp_path, rewarders=rewarders or (weighted("judge"),), replay=replay)
    return model, used, await run_group(spec(size, **more), used)


async def test_rewarders_see_every_accepted_answer_of_the_item(tmp_path):
    model, _, _ = await judged(tmp_path, None, weighted("judge", reference=True), of=item(alternatives=("seven",)))
    shown = [json.loads(request.messages[1].content) for request, key in model.requests if key.role == "judge"]
    assert {each["reference_answer"] for each in shown} == {"7\nalso accepted: seven"}


async def test_a_judged_group_is_rewarded_and_its_calls_are_counted_apart(tmp_path):
    model, _, result = await judged(tmp_path)
    assert [rollout.outcome.reward for rollout in result.rollouts] == [0.9, 0.2]
    assert (result.judging.calls, result.judging.tokens, result.judging.cost_usd) == (2, 30, pytest.approx(0.002))
    assert (result.learning.calls, result.signal) == (1, "mixed")
    asked = [request for request, key in model.requests if key.role == "judge"]
    assert {request.model for request in asked} == {"learner"}
    assert {request.answer_schema.name for request in asked} == {"tfgrpo_judgement"}


async def test_votes_have_own_keys_and_seeds_that_do_not_depend_on_the_arm(tmp_path):
    seeds = {}
    for arm in ("library", "none"):
        model, _, _ = await judged(tmp_path / arm, None, weighted("judge", votes=3), arm=arm, reflect=False)
        asked = [(key, request) for request, key in model.requests if key.role == "judge"]
        assert len({(key.rollout, key.turn, key.attempt) for key, _ in asked}) == 6
        assert all(key.group.arm == arm for key, _ in asked)
        seeds[arm] = {(key.rollout, key.turn): request.seed for key, request in asked}
        assert len(set(seeds[arm].values())) == 6
    assert seeds["library"] == seeds["none"]


async def test_a_broken_judge_makes_ungraded_rollouts_and_its_calls_can_be_recorded(tmp_path):
    _, used, result = await judged(tmp_path, lambda *_: ModelServerFault("503 from the judge"))
    assert all(isinstance(rollout.outcome, Ungraded) for rollout in result.rollouts)
    assert "503 from the judge" in result.rollouts[0].outcome.reason
    assert (result.signal, result.budget_refused, result.fatal) == ("lost", None, None)
    assert len(result.broken_calls) == 2
    for broken in result.broken_calls:
        used.journal.append_failure(broken.call_key, broken.error_type, broken.reason)
    _, _, again = await judged(tmp_path, replay=True)
    assert [rollout.outcome for rollout in again.rollouts] == [rollout.outcome for rollout in result.rollouts]


async def test_a_judge_that_hangs_loses_its_votes_and_a_replay_loses_the_same(tmp_path):
    async def never():
        await asyncio.sleep(30)

    def judging(request, key):
        return never() if key.turn == 1 else by_answer(request, key)

    judge = weighted("judge", timeout_s=0.5, votes=3)
    _, used, result = await judged(tmp_path, judging, judge)
    assert [rollout.outcome.reward for rollout in result.rollouts] == [0.9, 0.2]
    assert {broken.error_type for broken in result.broken_calls} == {"ModelTimeout"}
    for broken in result.broken_calls:
        used.journal.append_failure(broken.call_key, broken.error_type, broken.reason)
    _, _, again = await judged(tmp_path, None, judge, replay=True)
    assert [rollout.scores for rollout in again.rollouts] == [rollout.scores for rollout in result.rollouts]


async def test_a_refused_budget_stops_the_group_before_it_reflects(tmp_path):
    model, _, result = await judged(tmp_path, lambda *_: BudgetRefused("the cap is reached"))
    assert result.budget_refused == "the cap is reached"
    assert not any(key.role == "reflect" for _, key in model.requests)
    _, _, result = await judged(tmp_path / "key", lambda *_: ModelAuthRefused("401"))
    assert result.fatal == "ModelAuthRefused: 401"


@pytest.mark.parametrize(("url", "asked"), [(None, "learner"), ("http://endpoint.test/v1", "wise")])
async def test_a_judge_may_name_its_model_except_with_the_simulated_one(tmp_path, url, asked):
    model = ScriptedModel(script())
    used = runtime(model, tmp_path, rewarders=(weighted("judge", model="wise", max_tokens=99),))
    models = replace(used.context.models, in_process=url is None)
    used = replace(used, context=replace(used.context, models=models))
    result = await run_group(spec(), used)
    assert isinstance(result.rollouts[0].outcome, Scored)
    judges = [request for request, key in model.requests if key.role == "judge"]
    assert {(request.model, request.max_tokens) for request in judges} == {(asked, 99)}


async def test_a_cancelled_judgement_is_recorded_by_its_key(tmp_path):
    asked = asyncio.Event()

    async def never():
        asked.set()
        await asyncio.sleep(30)

    used = runtime(ScriptedModel(lambda *_: never()), tmp_path)
    judge = GroupJudge(spec(), used)
    context = RewardContext("f", "q1", "3 + 4?", "7", (Attempt("r0", 0, "7", 1),), judge=judge)
    task = asyncio.ensure_future(build_scorer("judge").call(context))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert judge.spend.broken[0].call_key.startswith("1/group/0/q1/0/0/judge/0#")


async def test_a_users_function_may_ask_the_model_too(tmp_path):
    class Own:
        rewarder_id = "own"
        asks_model = True

        async def score(self, context):
            said = await context.judge.ask(
                JudgeQuestion((("system", "Score."), ("user", "{}")), "mine", {"type": "object"}, rollout=0, turn=0)
            )
            return [RewardScore("own", float(said.text), "asked") for _ in context.outputs]

    _, _, result = await judged(tmp_path, lambda *_: "0.25", weighted(Own()), of=item(), reflect=False)
    assert [rollout.outcome.reward for rollout in result.rollouts] == [0.25, 0.25]
    assert result.judging.calls == 1
