"""Runs whose actor has the tools of an MCP server: killed and resumed, on Dask workers, and in a selection of the best of K."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from benchmarks.generated_items import LEDGER
from tests.support.agents.upstream import needs
from tests.support.runs.running import ROOT, RUN, SIZE, Server, finish, lines, paths, run, start, store, words
from tfgrpo.flows import cli
from tfgrpo.pipelines.settings.tree import SimulatedSettings

pytestmark = [pytest.mark.timeout(900), pytest.mark.untraced, pytest.mark.xdist_group("prefect")]

BOOKS = """
import functools, sys
sys.path.append({folder!r})
from mcp.server.mcpserver import MCPServer
import bookkeeping

def logged(tool):
    @functools.wraps(tool)
    def call(**arguments):
        with open(sys.argv[1], "a") as log:
            log.write(tool.__name__ + "\\n")
        return tool(**arguments)
    return call

server = MCPServer("books")
for tool in (bookkeeping.accounts_of, bookkeeping.ledger_entries, bookkeeping.exchange_rate, bookkeeping.add):
    server.add_tool(logged(tool), structured_output=False)
server.run()
"""
SIZES = words(SIZE)


class Books:
    """An MCP server that notes each call, and the pipeline of the example with it."""

    def __init__(self, folder: Path) -> None:
        needs("mcp")
        self.program, self.log, self.pipeline = folder / "books.py", folder / "calls", folder / "books.yaml"
        self.program.write_text(BOOKS.format(folder=str(ROOT / "examples/agents")), encoding="utf-8")
        self.log.touch()
        servers = {"books": {"command": sys.executable, "args": [str(self.program), str(self.log)]}}
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        content = yaml.safe_load((ROOT / "examples/agents/mcp-tools.yaml").read_text(encoding="utf-8"))
        content["actor"]["mcp"] = str(folder / "mcp.json")
        content["dataset"]["path"] = str(ROOT / "benchmarks/ledger/items.jsonl")
        self.pipeline.write_text(yaml.safe_dump(content), encoding="utf-8")

    @property
    def called(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines()

    def ended(self) -> bool:
        """Wait until no process of the server is left."""
        deadline = time.monotonic() + 60
        while any(str(self.program) in (each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True


@pytest.fixture
def books(tmp_path):
    return Books(tmp_path)


@pytest.mark.slow
def test_a_killed_run_leaves_no_server_and_resumed_it_repeats_no_answered_call(tmp_path, books):
    with Server(SimulatedSettings(world=LEDGER, latency_s=0.1)) as server:
        model = ("--model", "simulated", "--base-url", server.url, "--concurrency", "2")
        process = start(tmp_path, "--pipeline", str(books.pipeline), *model, *SIZES, "--run-id", RUN)
        server.wait_for(12)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(20)
        process.communicate()
        server.wait_until_idle()
        assert books.ended()
        before = len(books.called)
        assert before
        summary = run(tmp_path, resume=RUN, base_url=server.url)
    assert summary.status == "finished", summary.message
    assert books.ended()
    place = paths(tmp_path, task="mcp-tools")
    keys = [row["key"] for row in lines(place.journal)]
    tools = [key for key in keys if "/tool/" in key]
    assert len(set(keys)) == len(keys)
    # What was on its way when the process was killed is asked again: two rollouts, each of at most three tools at once.
    assert 0 <= len(books.called) - len(tools) <= 6
    assert 0 <= len(server.bodies) - (len(keys) - len(tools)) <= 2
    assert len(books.called) > before


@pytest.mark.slow
def test_dask_workers_start_servers_of_their_own_and_teach_what_one_process_teaches(tmp_path, books):
    taught = {}
    for runner in ("threads", "dask"):
        out = tmp_path / runner
        code, _, said = finish(
            start(out, "--pipeline", str(books.pipeline), "--dry-run", *SIZES, "--run-id", RUN, "--task-runner", runner)
        )
        assert code == 0, said
        assert books.ended()
        taught[runner] = [
            {**row, "tool_stats": [(stat["tool"], stat["tokens"]) for stat in row["tool_stats"]]}
            for row in store(out, "mcp-tools")
        ]
    assert taught["dask"] == taught["threads"] != []


def test_the_best_of_k_is_chosen_among_attempts_with_the_servers_tools(tmp_path, books, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    servers = f"actor.mcp={tmp_path / 'mcp.json'}"
    item = ("--item", f"{ROOT / 'benchmarks/ledger/items.jsonl'}#lt-0042")
    options = ("--dry-run", "--world", LEDGER, "--actor", "tools", "--set", servers, *item, "--k", "3", "--json")
    assert cli.main(["select", *options]) == 0
    chosen = json.loads(capsys.readouterr().out)
    assert {candidate["outcome"] for candidate in chosen["candidates"]} == {"ok"}
    assert books.called
    assert books.ended()
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"books": {"command": "no-such-program"}}}')
    assert cli.main(["select", *options]) == 2
    assert "no-such-program" in capsys.readouterr().out
