"""Who may call the gateway, what reaches the endpoint, and what the attempt knows of it."""

from tests.support.agents import steps as kit
from tests.support.agents.endpoint import KEY, LESSONS
from tfgrpo.stores.ledger import Usage
from tfgrpo.tasks.gateway.session import RolloutSession, agent_environment
from tfgrpo.tasks.runtime.runtime import AttemptContext

ASK = {"model": "m", "messages": [{"role": "user", "content": "3 + 4?"}]}


async def test_a_call_is_taught_measured_and_journalled(endpoint, opened, runtime, session, agent):
    assert session.bypassed

    reply = await agent.post("/chat/completions", json=ASK)

    assert reply.json()["choices"][0]["message"]["content"] == "seven"
    [asked] = endpoint.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["Authorization"] == f"Bearer {KEY}"
    assert asked.body["messages"] == [{"role": "system", "content": LESSONS}, *ASK["messages"]]
    assert not session.bypassed
    assert session.attempt.usage == Usage(1, 10, 5, None)
    [frame] = session.attempt.frames
    assert (frame.kind, frame.name, frame.text, frame.tokens) == ("model", "m", "seven", 15)
    assert frame.added is not None
    assert runtime.ledger.totals().tokens == 15
    journal = (opened.folder / "journal.jsonl").read_text()
    assert "/gateway/0#" in journal
    assert KEY not in journal
    assert session.api_key not in journal


async def test_a_call_with_another_key_is_refused_and_the_name_of_the_scheme_has_no_case(endpoint, opened):
    runtime = opened.runtime(endpoint.url)
    first, second = await opened.session(runtime), await opened.session(runtime, 1)
    agent = await opened.agent(first)
    for key in ("-", "sk-other", KEY, second.api_key):
        reply = await agent.post("/chat/completions", json=ASK, headers={"authorization": f"Bearer {key}"})
        assert reply.status_code == 403
        assert reply.json()["error"]["type"] == "permission_error"
    assert endpoint.asked == []
    assert first.bypassed
    headers = {"authorization": f"bearer {first.api_key}"}
    assert (await agent.post("/chat/completions", json=ASK, headers=headers)).status_code == 200
    assert endpoint.asked[0].headers["Authorization"] == f"Bearer {KEY}"


def test_an_agents_environment_leads_to_the_gateway_alone(opened):
    runtime = opened.runtime("http://127.0.0.1:9/v1", model={"api_key": "env:MY_OWN"})
    session = RolloutSession(AttemptContext(kit.spec(), 0, runtime), "http://127.0.0.1:1")
    base = {
        "PATH": "/bin",
        "MISTRAL_API_KEY": "x",
        "ANTHROPIC_AUTH_TOKEN": "x",
        "MY_OWN": "x",
        "COPIED": f"Bearer {KEY}",
        "TAVILY_API_KEY": "a tool's",
        "TFGRPO_MODEL": "m",
        "CODEX_API_KEY": "x",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x",
        "OLLAMA_HOST": "http://127.0.0.1:11434",
        "GEMINI_API_BASE": "http://x",
    }
    env = agent_environment(session, base)
    assert {name for name in base if env.get(name) == base[name]} == {"PATH", "TAVILY_API_KEY"}
    assert env["CODEX_API_KEY"] == session.api_key  # a login of its user's would lead past the gateway
    assert env["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] == "1"
    assert env["OPENAI_BASE_URL"] == env["OPENAI_API_BASE"] == f"http://127.0.0.1:1/r/{session.token}/v1"
    assert env["ANTHROPIC_BASE_URL"] == f"http://127.0.0.1:1/r/{session.token}"
    assert KEY not in str(env)


async def test_a_websocket_is_refused_by_the_status_at_which_clients_turn_to_http(session, agent):
    asked = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13", "sec-websocket-key": "AA=="}
    refused = await agent.get("/responses", headers=asked)
    assert refused.status_code == 426
    assert "POST /responses" in refused.json()["error"]["message"]
    assert session.bypassed
    assert (await agent.post("/responses", json={"model": "m", "input": "hi"})).status_code == 200
