"""`tfgrpo doctor --ping` asks each model for one token, and only then."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.runs.chat_server import ChatServer, Reply
from tfgrpo.flows import cli

KEY = "sk-ping-0123456789"
PRICE = '{"m": {"input": 1.0, "output": 2.0}}'


def doctor(
    answer: Callable[[int, dict[str, Any]], Reply], capsys: Any, *more: str
) -> tuple[int, Any, list[dict[str, Any]], str]:
    with ChatServer(answer) as server:
        code = cli.main(["doctor", "--json", "--base-url", server.url, "--model", "m", "--world", "arithmetic", *more])
    said = capsys.readouterr()
    return code, json.loads(said.out), server.bodies, said.err


@pytest.fixture(autouse=True)
def _key(at_home, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def test_doctor_asks_no_model_without_the_flag(capsys):
    code, said, asked, _ = doctor(lambda *_: "yes", capsys)
    assert (code, said["spent"], said["ping"], asked) == (0, "nothing was spent", [], [])


def test_each_model_is_asked_for_one_token_and_the_most_that_it_cost_is_told(capsys):
    judge = json.dumps([{"name": "judge", "options": {"model": "j"}}])
    code, said, asked, _ = doctor(lambda *_: "yes", capsys, "--ping", "--set", f"rewarders={judge}")
    assert code == 0
    assert [(body["model"], body["max_tokens"]) for body in asked] == [("m", 1), ("m", 1), ("j", 1)]
    assert [each.split(" at ")[0] for each in said["ping"]] == ["actor: m", "reflection: m", "judge: j"]
    counted = r"\(45 by what the endpoint counted\)"
    assert re.fullmatch(rf"at most [\d,]+ tokens {counted}, whose price is unknown, were spent", said["spent"])
    _, said, _, _ = doctor(lambda *_: "yes", capsys, "--ping", "--set", f"model.prices={PRICE}")
    assert said["spent"].startswith("at most $0.00")
    assert said["prices"].endswith("by model.prices")


def test_a_refusal_names_the_setting_of_the_role_and_ends_with_2(capsys):
    def reasoning(number: int, body: dict[str, Any]) -> Reply:
        if body["model"] == "r" and "max_tokens" in body:
            text = f"Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead. {KEY}"
            return 400, {"error": {"message": text}}
        return "yes"

    code, said, _, err = doctor(reasoning, capsys, "--ping", "--reflection-model", "r")
    assert code == 2
    (problem,) = said["problems"]
    assert problem["source"] == "r, asked as reflection"
    assert problem["accepted"] == "model.reflection.max_tokens_field: max_completion_tokens"
    assert "at most" in err
    assert KEY not in f"{said} {err}"
