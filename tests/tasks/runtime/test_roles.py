"""Each role asks its own endpoint, with its own key, headers and fields; roles without any of their own share one client."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents.steps import context, settings
from tests.support.runs.chat_server import ChatServer
from tfgrpo.pipelines.settings.guardrails import validate_tfgrpo_config
from tfgrpo.pipelines.settings.layers import resolve_settings
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.tree import ModelSettings, Settings
from tfgrpo.stores.errors import EndpointError, SettingsError
from tfgrpo.stores.ledger import Budget, Ledger
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.runs import CallKey
from tfgrpo.tasks.models.base import ChatRequest, Message
from tfgrpo.tasks.runtime.host import endpoint_for, open_clients, open_runtime
from tfgrpo.tasks.runtime.runtime import RunContext

KEYS = {"OPENAI_API_KEY": "sk-actor-0123456789", "JUDGES_KEY": "sk-judge-0123456789", "TEAM": "Bearer team-0123456789"}
CALLS = {"rollout": "actor", "judge": "judge", "reflect": "reflection", "curate": "reflection", "shorten": "reflection"}


def read_key(model: ModelSettings) -> str | None:
    return KEYS.get(model.api_key.removeprefix("env:"))


def made(run_dir: Path, **model: Any) -> RunContext:
    chosen = settings(model=model)
    validate_tfgrpo_config(chosen)
    return replace(context(run_dir), settings=chosen, models=choose_models(chosen), read_secret=read_key)


async def ask(opened: RunContext, role: str) -> None:
    runtime = await open_runtime(opened)
    key = CallKey(GroupKey(1, "train", "group", 0, "q", run="run"), 0, 0, role)
    try:
        request = ChatRequest(CALLS[role], (Message("user", "Hello?"),), 0.7, 9, seed=1)
        await runtime.model.complete(request, key)
        assert runtime.scrub("; ".join(KEYS.values())).count("***") == 3
    finally:
        await runtime.aclose()


@pytest.mark.parametrize("role", CALLS)
async def test_a_call_goes_to_the_endpoint_of_its_role(role, tmp_path, monkeypatch):
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
        await ask(opened, role)
        asked = {"actor": base, "reflection": other, "judge": judge}[CALLS[role]]
        assert [len(server.bodies) for server in (base, other, judge)].count(1) == 1
        key = KEYS["JUDGES_KEY" if asked is judge else "OPENAI_API_KEY"]
        assert asked.headers[0]["authorization"] == f"Bearer {key}"
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


REMOTE = {"name": "m", "base_url": "https://api.one.example/v1"}


@pytest.mark.parametrize(
    ("model", "refused"),
    [
        ({**REMOTE, "judge": {"base_url": "https://two.example/v1"}}, "model.judge.api_key"),
        (
            {**REMOTE, "headers": {"x-a": "env:A"}, "actor": {"base_url": "https://two.example", "api_key": "env:B"}},
            "model.actor.headers",
        ),
        ({"judge": {"name": "j", "base_url": "https://two.example/v1"}}, "model.name"),
    ],
)
def test_no_secret_follows_to_another_host_and_every_role_has_an_endpoint(model, refused):
    with pytest.raises(SettingsError, match=refused):
        validate_tfgrpo_config(Settings.model_validate({"model": model}))


def test_a_role_on_this_machine_needs_no_key_of_its_own():
    local = {**REMOTE, "judge": {"base_url": "http://localhost:8000/v1", "name": "j"}}
    validate_tfgrpo_config(Settings.model_validate({"model": local}))


@pytest.mark.parametrize(
    ("field", "value", "accepted"),
    [
        ("headers", '{"x-api-key": "abc"}', "env:NAME"),
        ("headers", '{"x-team": "sk-proj-abcdefghijklmnop1234567890"}', "env:NAME"),
        ("headers", '{"authorization": "env:A"}', "api_key"),
        ("headers", '{"bad name": "x"}', "names of headers"),
        ("extra_body", '{"max_tokens": 5}', "other settings"),
        ("extra_body", '{"stream": true}', "other settings"),
        ("extra_body", '{"plugin": {"api_key": "x"}}', "without secrets"),
    ],
)
def test_what_requests_set_themselves_and_secrets_are_refused(field, value, accepted):
    for section in ("model", "model.judge"):
        with pytest.raises(SettingsError, match=accepted) as refusal:
            resolve_settings(cli={f"{section}.{field}": value}, env={})
        assert "sk-proj" not in str(refusal.value)


def test_a_header_whose_variable_is_not_set_is_refused_before_any_request(tmp_path, monkeypatch):
    monkeypatch.delenv("NOT_THERE", raising=False)
    with pytest.raises(EndpointError, match="NOT_THERE, which is not set"):
        endpoint_for(made(tmp_path, **REMOTE, headers={"x-team": "env:NOT_THERE"}))
