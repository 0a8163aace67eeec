"""``tfgrpo doctor`` runs an agent once and says what came through the gateway, or that it went past it."""

import json
import shlex
import sys
import urllib.request
from time import monotonic

import pytest

from tests.support.runs.chat_server import ChatServer
from tfgrpo.flows import cli

pytestmark = pytest.mark.usefixtures("at_home")

TOOLS = {
    "responses": [
        {"type": "function", "name": "search", "parameters": {}},
        {"type": "function", "name": "read_file", "parameters": {}},
    ],
    "messages": [{"name": "read_file", "input_schema": {"type": "object"}}],
    "chat/completions": [{"type": "function", "function": {"name": "search", "parameters": {}}}],
}
ASKED = [{"role": "user", "content": "What is 3 + 4?"}]
BODIES = {
    "responses": {"instructions": "Be brief.", "input": ASKED, "tools": TOOLS["responses"]},
    "messages": {"max_tokens": 9, "system": "Be brief.", "messages": ASKED, "tools": TOOLS["messages"]},
    "chat/completions": {"messages": ASKED, "tools": TOOLS["chat/completions"]},
}


def ask(base_url, api_key, method):
    request = urllib.request.Request(
        f"{base_url}/{method}",
        json.dumps({"model": "any-name", **BODIES[method]}).encode(),
        {"authorization": f"Bearer {api_key}", "content-type": "application/json"},
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as reply:
        reply.read()


def responding(prompt, base_url, api_key):
    for _ in range(2):
        ask(base_url, api_key, "responses")
    return "7"


def anthropic(prompt, base_url, api_key):
    ask(base_url, api_key, "messages")
    return "7"


def chatting(prompt, base_url, api_key):
    ask(base_url, api_key, "chat/completions")
    raise RuntimeError("no such tool")


async def drafting(prompt, chat):
    return await chat(await chat(prompt))


async def indexing(prompt, chat):
    return (await chat(prompt))["label"]


def mute(prompt, chat):
    return "7"


def broken(prompt, chat):
    raise RuntimeError("my own bug")


def hard_wired(prompt, base_url):
    return "7"


def doctor(capsys, *options):
    code = cli.main(["doctor", "--dry-run", *options])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        ("responding", "/v1/responses 2 times; lessons arrived in `instructions`; tools seen: search, read_file"),
        ("anthropic", "/v1/messages 1 time; lessons arrived in `system`; tools seen: read_file"),
        ("chatting", "/v1/chat/completions 1 time; lessons arrived in the system message; tools seen: search"),
    ],
)
def test_doctor_says_what_an_agent_called_where_lessons_arrived_and_which_tools_it_has(capsys, at_home, agent, told):
    code, out, _ = doctor(capsys, "--actor", f"tests.flows.run.test_trial:{agent}")
    assert code == 0
    assert f"your agent called {told}" in out
    assert ("the agent failed after its calls" in out) == (agent == "chatting")
    assert "nothing was spent" in out
    assert list(at_home.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ('def agent(prompt, chat):\n    return {}["choices"]', 2),
        ('def agent(prompt, chat):\n    import json\n    return json.loads("no JSON")', 3),
        ("async def agent(prompt, chat):\n    await chat(prompt)\n    return own()\n\ndef own():\n    raise ValueError", 6),
    ],
)
def test_where_the_code_of_an_agent_failed_is_said(capsys, at_home, code, line):
    (at_home / "mine.py").write_text(code)
    _, out, err = doctor(capsys, "--actor", "mine.py:agent")
    assert f"(mine.py, line {line})" in out + err


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        ("drafting", "called `chat` 2 times; lessons arrived in the system message"),
        ("indexing", "the agent failed after its calls, perhaps for the simulated replies: TypeError"),
        ("mute", "called `chat` 0 times; lessons arrived nowhere"),
    ],
)
def test_a_function_that_chats_is_tried_as_well(capsys, agent, told):
    code, out, _ = doctor(capsys, "--actor", f"tests.flows.run.test_trial:{agent}")
    assert code == 0
    assert told in out
    assert ("so it cannot learn" in out) == (agent == "mute")


def test_programs_get_the_same(capsys):
    found = f"import os, sys; sys.path[:0] = {[path for path in sys.path if path]!r}; e = os.environ"
    call = "from tests.flows.run import test_trial as t; t.responding('', e['OPENAI_BASE_URL'], e['OPENAI_API_KEY'])"
    command = shlex.join([sys.executable, "-c", f"{found}; {call}"])
    code, out, _ = doctor(capsys, "--json", "--actor", "command", "--set", f"actor.command={command}")
    agent = json.loads(out)["agent"]
    assert code == 0
    assert agent == {
        "calls": {"/v1/responses": 2},
        "lessons": ["`instructions`"],
        "tools": ["search", "read_file"],
        "failure": None,
        "unpriced": [],
    }


@pytest.mark.parametrize(("options", "asked"), [((), ["any-name"]), (("--set", 'actor.gateway.models={"any*": "m"}'), [])])
def test_models_that_the_agent_asks_for_and_that_have_no_price_are_named(capsys, options, asked):
    with ChatServer(lambda *_: "7") as server:
        model = f"doctor --json --world arithmetic --max-usd 1 --model m --base-url {server.url}".split()
        prices = ("--set", 'model.prices={"m": {"input": 1, "output": 1}}')
        code = cli.main([*model, *prices, "--actor", "tests.flows.run.test_trial:responding", *options])
    said = json.loads(capsys.readouterr().out)
    assert code == 0, said
    assert said["agent"]["unpriced"] == asked
    assert any("whose price is unknown" in warning for warning in said["warnings"]) == bool(asked)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--actor", "tests.flows.run.test_trial:broken"), "a failed trial: RuntimeError: my own bug"),
        (("--actor", "tests.flows.run.test_trial:hard_wired"), "the agent bypassed the gateway"),
        (("--actor", "command", "--set", "actor.command=echo 7"), "OPENAI_BASE_URL and OPENAI_API_KEY"),
        (
            ("--actor", "command", "--set", "actor.command=sleep 60", "--set", "actor.timeout_s=0.5"),
            "it made no model call through it, and the rollout ran over its limit of 0.5 s; accepted: an agent that takes",
        ),
        (("--actor", "command", "--set", "actor.command=sh -c 'echo oh no >&2; exit 3'"), "exit code 3: oh no"),
    ],
)
def test_doctor_refuses_an_agent_that_makes_no_call_and_says_what_to_do(capsys, options, said):
    code, _, err = doctor(capsys, *options)
    assert code == 2
    assert said in err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("raise KeyError('gold')", "KeyError: 'gold'"),
        ("return float('nan')", "is no finite number"),
        ("return None", "None"),
        ("return 90", "90; rewards outside 0 to 1, their declared range"),
        ("return float(output == answer)", ""),
    ],
)
def test_a_scorer_that_fails_on_a_real_item_is_warned_of_with_item_and_result(capsys, at_home, line, said):
    (at_home / "own.py").write_text(f"def mine(output, answer):\n    {line}\n")
    code, out, _ = doctor(capsys, "--json", "--set", 'rewarders=[{"name": "own.py:mine"}]')
    found = [each for each in json.loads(out)["warnings"] if "with its own reference as the output" in each]
    assert (code, len(found)) == (0, bool(said))
    assert all(each.startswith("own.py:mine, asked about item '") and said in each for each in found)


def test_doctor_waits_for_no_service_that_a_run_would_wait_for(capsys):
    began = monotonic()
    url = ("--set", "actor.url=http://127.0.0.1:9/attempt", "--set", "model.wait_s=600")
    code, _, err = doctor(capsys, "--actor", "http", *url)
    assert code == 2
    assert "no answer from the agent at http://127.0.0.1:9/attempt" in err
    assert monotonic() - began < 45.0, "a run waits for 108 s"


def test_an_agent_that_is_not_proxied_is_not_run(capsys):
    agent = "tests.support.agents.agents:raises"
    code, out, _ = doctor(capsys, "--actor", agent)
    assert (code, "your agent" in out) == (0, False)
