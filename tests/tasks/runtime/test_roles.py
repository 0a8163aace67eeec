"""Each role, judges too, asks its own endpoint by its own fields; those without any share one client."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents.steps import ScriptedModel, context, item, lessons, runtime, settings, spec, weighted
from tests.support.runs.chat_server import ChatServer
from tfgrpo.pipelines.settings.guardrails import validate_tfgrpo_config
from tfgrpo.pipelines.settings.layers import resolve_settings
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.tree import ModelSettings, Settings
from tfgrpo.rewarders.judge.model import JudgeQuestion
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.scorer import Attempt, RewardContext
from tfgrpo.stores.errors import BudgetRefused, ModelAuthRefused, SettingsError
from tfgrpo.stores.ledger import Budget, Ledger
from tfgrpo.stores.outcomes import GroupKey, RewardScore
from tfgrpo.stores.runs import CallKey
from tfgrpo.tasks.group import GroupJudge, run_group
from tfgrpo.tasks.models.base import ChatRequest, Message
from tfgrpo.tasks.runtime.host import open_clients, open_runtime
from tfgrpo.tasks.runtime.runtime import RunContext

KEYS = {"OPENAI_API_KEY": "sk-actor-0123456789", "JUDGES_KEY": "sk-judge-0123456789", "TEAM": "Bearer team-0123456789"}
CALLS = {"rollout": "actor", "judge": "judge", "reflect": "reflection", "curate": "reflection", "shorten": "reflection"}


def read_key(model: ModelSettings) -> str | None:
    return KEYS.get(model.api_key.removeprefix("env:"))


def made(run_dir: Path, **model: Any) -> RunContext:
    chosen = settings(model=model)
    validate_tfgrpo_config(chosen)
    return replace(context(run_dir), settings=chosen, models=choose_models(chosen), read_secret=read_key)


async def test_a_call_goes_to_the_endpoint_of_its_role(tmp_path, monkeypatch):
    monkeypatch.setenv("TEAM", KEYS["TEAM"])
    with ChatServer(lambda *_: "a") as base, ChatServer(lambda *_: KEYS["TEAM"]) as other, ChatServer(lambda *_: "j") as judge:
        opened = made(
            tmp_path,
            name="m",
            base_url=base.url,
            reflection={
                "base_url": other.url,
                "name": "r",
                "headers": {"x-team": "env:TEAM"},
                "extra_body": {"reasoning_effort": "low"},
            },
            judge={"base_url": judge.url, "name": "j", "api_key": "env:JUDGES_KEY", "send_seed": False},
        )
        runtime = await open_runtime(opened)
        for role, model in CALLS.items():
            request = ChatRequest(model, (Message("user", "Hello?"),), 0.7, 9, seed=1)
            await runtime.model.complete(request, CallKey(GroupKey(1, "train", "group", 0, "q", run="run"), 0, 0, role))
        assert runtime.scrub("; ".join(KEYS.values())).count("***") == 3
        await runtime.aclose()
        for asked, model in ((base, "actor"), (other, "reflection"), (judge, "judge")):
            assert [body["model"] for body in asked.bodies] == [each for each in CALLS.values() if each == model]
            key = KEYS["JUDGES_KEY" if asked is judge else "OPENAI_API_KEY"]
            assert {headers["authorization"] for headers in asked.headers} == {f"Bearer {key}"}
            assert asked.headers[0].get("x-team") == (KEYS["TEAM"] if asked is other else None)
            assert asked.bodies[0].get("reasoning_effort") == ("low" if asked is other else None)
            assert ("seed" in asked.bodies[0]) == (asked is not judge)
    kept = (tmp_path / "journal.jsonl").read_text("utf-8")
    assert "team-0123456789" not in kept
    assert all(secret not in repr(opened) for secret in KEYS.values())


async def test_roles_that_differ_in_nothing_share_a_client_and_roles_of_one_address_its_connections(tmp_path):
    at = {"name": "m", "base_url": "http://127.0.0.1:9/v1"}
    opened = made(tmp_path, **at, reflection={"name": "r", "max_tokens": 7}, judge={"extra_body": {"top_p": 0.5}})
    clients = await open_clients(opened, Ledger(Budget()))
    assert clients["actor"] is clients["reflection"]
    assert clients["judge"] is not clients["actor"]
    assert (clients["judge"].http, clients["judge"].limiter) == (clients["actor"].http, clients["actor"].limiter)
    await clients["actor"].aclose()


REMOTE = {"name": "m", "base_url": "https://api.one.example/v1"}


@pytest.mark.parametrize(("model", "refused"), [
    ({**REMOTE, "judge": {"base_url": "https://two.example/v1"}}, "model.judge.api_key"),
    (
        {**REMOTE, "headers": {"x-a": "env:A"}, "actor": {"base_url": "https://two.example", "api_key": "env:B"}},
        "model.actor.headers",
    ),
    ({"judge": {"name": "j", "base_url": "https://two.example/v1"}}, "model.name"),
])  # fmt: skip
def test_no_secret_follows_to_another_host_and_every_role_has_an_endpoint(model, refused):
    with pytest.raises(SettingsError, match=refused):
        validate_tfgrpo_config(Settings.model_validate({"model": model}))


def test_a_role_on_this_machine_needs_no_key_of_its_own():
    local = {**REMOTE, "judge": {"base_url": "http://localhost:8000/v1", "name": "j"}}
    validate_tfgrpo_config(Settings.model_validate({"model": local}))


@pytest.mark.parametrize(("field", "value", "accepted"), [
    ("headers", '{"x-api-key": "abc"}', "env:NAME"),
    ("headers", '{"x-team": "sk-proj-abcdefghijklmnop1234567890"}', "env:NAME"),
    ("headers", '{"authorization": "env:A"}', "api_key"), ("headers", '{"bad name": "x"}', "names of headers"),
    ("extra_body", '{"max_tokens": 5}', "other settings"), ("extra_body", '{"stream": true}', "other settings"),
    ("extra_body", '{"plugin": {"api_key": "x"}}', "without secrets"),
])  # fmt: skip
def test_what_requests_set_themselves_and_secrets_are_refused(field, value, accepted):
    for section in ("model", "model.judge"):
        with pytest.raises(SettingsError, match=accepted) as refusal:
            resolve_settings(cli={f"{section}.{field}": value}, env={})
        assert "sk-proj" not in str(refusal.value)


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


def test_what_a_role_lacks_is_that_of_the_section():
    model = settings(
        model={
            "name": "m",
            "base_url": "http://a/v1",
            "api_key": "secret:vault",
            "reflection": {"name": "r", "max_tokens": 99},
            "judge": {"base_url": "http://b/v1", "api_key": "env:B"},
        }
    ).model
    assert (model.of("reflection").name, model.of("reflection").max_tokens) == ("r", 99)
    assert (model.of("actor").name, model.of("actor").max_tokens) == ("m", 1024)
    judge = model.of("judge")  # at another endpoint the learner's name may mean nothing
    assert (judge.name, judge.api_key) == ("m", "env:B")
    same = model.model_copy(update={"judge": type(model.judge)()})
    assert same.of("judge").name == "r"
    assert same.model_copy(update={"reflection": type(model.reflection)()}).of("reflection").max_tokens == 8_192
