"""A real server with a real model answers this project's own requests and those of agents. Run by ``make test-model``.

The model is far too small to learn anything: what is shown is that the protocol is the server's, and that what it did is
what is counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents.endpoint import LESSONS, Opener
from tests.support.models.real_model import generated_tokens, real_model
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


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with real_model() as served:
        yield served


@pytest.fixture
def folder(tmp_path: Path) -> Path:
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


def test_doctor_finds_the_model_and_the_server_takes_what_each_role_asks(folder: Path, url: str) -> None:
    looked = tfgrpo(folder, url, "doctor", "--ping")
    assert looked.returncode == 0, looked.stdout + looked.stderr
    assert f"actor: smollm2 at {url} answers" in looked.stdout
    assert f"reflection: smollm2 at {url} answers" in looked.stdout


def test_a_run_counts_what_the_server_has_generated_and_replays_without_it(folder: Path, url: str) -> None:
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
async def test_an_agent_gets_its_lessons_and_is_measured(path: str, streamed: bool, url: str, tmp_path: Path) -> None:
    body = {"model": "smollm2", "temperature": 0, "stream": streamed, **ASKED[path]}
    async with AsyncExitStack() as stack:
        opened = Opener(tmp_path, stack)
        sessions = [
            await opened.session(opened.runtime(url), n, text) for n, text in enumerate(("Hm.", f"Hm.\n\n{LESSONS}"))
        ]
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
