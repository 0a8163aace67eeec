"""The agents of ``examples/agents`` work as they stand: taught, measured, short. ``make test-agents`` has the packages."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from benchmarks.generated_items import LEDGER, generate_items
from tests.support.agents import steps as kit
from tests.support.agents.endpoint import SYSTEM
from tests.support.agents.upstream import NODE_PROGRAMS, OWN_HOMES, needs, upstream
from tests.support.runs.pages import blocks
from tfgrpo.pipelines.settings.tree import ActorSettings
from tfgrpo.tasks.actors.registry import build_actor
from tfgrpo.tasks.rollout import run_rollout

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "agents"
PROGRAMS = {
    "openai_sdk": ("openai",),
    "openai_agents_sdk": ("agents",),
    "pydantic_ai_agent": ("pydantic_ai", "openai"),
    "langgraph_agent": ("langchain", "langchain_openai"),
}


@pytest.fixture
def attempted(opened, monkeypatch):
    """Runs one rollout of a pipeline's agent on the simulated service."""
    # Where a reader starts it: in the checkout, with the environment's `python` first on the path.
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")

    async def attempt(pipeline, world="arithmetic", **changes):
        named = yaml.safe_load((EXAMPLES / pipeline).read_text(encoding="utf-8"))["actor"]
        settings = {**named, "gateway": {"models": {"*": "simulated"}}, **changes}
        actor = build_actor(ActorSettings.model_validate(settings))
        prompt = generate_items(world, 3)[2]["prompt"]
        async with upstream(world=world) as service:
            runtime = replace(opened.runtime(service.url, limits=settings), actor=actor)
            rollout = await run_rollout(kit.spec(of=kit.item(prompt=prompt), system=SYSTEM), 0, runtime)
        assert rollout.loss is None
        assert "Answer: " in rollout.output
        assert rollout.usage.calls == len(service.asked)
        assert rollout.usage.completion_tokens
        assert all("add “both” parts." in str(body) for _, body in service.asked)
        return rollout, [path.removeprefix("/v1/") for path, _ in service.asked]

    return attempt


async def test_a_command_line_agent_answers_in_a_file(attempted):
    _, paths = await attempted("coding-agent.yaml")
    assert paths == ["messages"]


@pytest.mark.parametrize(("name", "program", "path"), [("claude-code", "claude", "messages"), ("codex", "codex", "responses")])
async def test_a_coding_agent_as_npm_has_it_works_as_the_page_shows_it(name, program, path, attempted, monkeypatch, tmp_path):
    shown = (block.text for block in blocks("docs/own-agent.md", "yaml") if f" {program} " in block.text)
    (actor,) = (yaml.safe_load(text)["actor"] for text in shown)
    assert actor == yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"))["actor"]
    needs(f"bin:{program}")
    monkeypatch.setenv("PATH", str(NODE_PROGRAMS), prepend=":")
    monkeypatch.setenv("HOME", str(tmp_path))
    for own in OWN_HOMES:
        monkeypatch.delenv(own, raising=False)
    _, paths = await attempted(f"{name}.yaml")
    assert paths == [path]


async def test_an_agent_behind_http_calls_the_address_that_comes_with_the_item(attempted):
    program = (EXAMPLES / "http_agent.py").read_text(encoding="utf-8").replace("8765", "0")
    told = program.replace(".serve_forever()", "").replace("    ThreadingHTTPServer", "    server = ThreadingHTTPServer")
    told += "    print(server.server_port, flush=True)\n    server.serve_forever()\n"
    agent = await asyncio.create_subprocess_exec(sys.executable, "-c", told, stdout=-1, stderr=asyncio.subprocess.DEVNULL)
    try:
        port = (await agent.stdout.readline()).decode().strip()
        _, paths = await attempted("http-agent.yaml", url=f"http://127.0.0.1:{port}/")
    finally:
        agent.kill()
        await agent.wait()
    assert paths == ["responses"]


@pytest.mark.filterwarnings("default")  # what packages deprecate is not our subject
@pytest.mark.parametrize("name", PROGRAMS)
async def test_an_agent_with_a_library_of_its_own_works_as_it_stands(name, attempted):
    needs(*PROGRAMS[name])
    tools = "bookkeeping" in (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    rollout, paths = await attempted("agents.yaml", LEDGER if tools else "arithmetic", kind=f"examples/agents/{name}.py:agent")
    assert set(paths) == {"chat/completions" if name in {"openai_sdk", "langgraph_agent"} else "responses"}
    assert {event.tool for event in rollout.tools} == ({"ledger_entries", "add"} if tools else set())


@pytest.mark.untraced
def test_the_notebook_learns(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec((EXAMPLES / "notebook.py").read_text(), {})
    assert any(line.startswith(("do ", "avoid ")) for line in capsys.readouterr().out.splitlines())


def test_every_example_is_short_and_on_the_page():
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    for path in EXAMPLES.iterdir():
        if path.is_file():
            assert len(path.read_text(encoding="utf-8").splitlines()) <= 30 or path.stem == "bookkeeping", path.name
            assert f"`{path.name}`" in page, path.name
