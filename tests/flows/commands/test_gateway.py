"""``tfgrpo gateway``: the lessons in force reach live traffic, also those of a later night, and it ends in peace."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.records.tasks import CENTS, TWICE, UNITS, Task
from tests.support.runs.chat_server import ChatServer
from tfgrpo.flows import cli
from tfgrpo.flows.run.served import ServedLessons
from tfgrpo.pipelines.datasets.datasets import load_dataset
from tfgrpo.stores.files.layout import TaskPaths

ROOT = Path(__file__).resolve().parents[3]
COMMAND = "import sys; from tfgrpo.flows.cli import main; sys.exit(main())"


@contextmanager
def serving(*options: str, **environment: str) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    command = [sys.executable, "-W", "error", "-c", COMMAND, "gateway", "--port", "0", "--json", *options]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    assert process.stdout is not None
    try:
        assert select.select([process.stdout], [], [], 60)[0]
        yield process, json.loads(os.read(process.stdout.fileno(), 1 << 16))
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Task:
    made = Task(tmp_path / "out", "t", capsys)
    made.learn(("do", UNITS), ("avoid", CENTS), simulated=False)
    return made


def post(url: str, text: str = "3 + 4?") -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    headers = {"authorization": "Bearer sk-of-the-caller-0123"}
    return httpx.post(f"{url}/chat/completions", json=body, headers=headers, trust_env=False, timeout=30)


@pytest.mark.untraced
def test_lessons_in_force_are_served_and_read_again_when_they_change(task: Task, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def answer(number: int, body: dict[str, Any]) -> str:
        seen.append(body)
        if "slow" in str(body):
            time.sleep(1.5)
        return "seven"

    file = tmp_path / "live.jsonl"
    where = ("--out", str(tmp_path / "out"), "--task-id", "t", "--keep", str(file))
    with ChatServer(answer) as server, serving(*where, "--base-url", server.url) as (process, facts):
        url = facts["base_url"]
        assert len(facts["lessons"]) == 2
        assert post(url).headers["x-tfgrpo-arm"] == "lessons"
        assert f"- Do: {UNITS}\n- Avoid: {CENTS}" in seen[0]["messages"][0]["content"]
        task.learn(("do", TWICE), simulated=False)
        post(url)
        assert TWICE in seen[1]["messages"][0]["content"]
        assert len(httpx.get(f"{url[:-3]}/meta", trust_env=False).json()["lessons"]) == 3
        with ThreadPoolExecutor() as pool:
            slow = pool.submit(post, url, "slow")
            while len(seen) < 3:
                time.sleep(0.02)
            process.send_signal(signal.SIGHUP)
            assert slow.result(20).json()["choices"][0]["message"]["content"] == "seven"
        _, said = process.communicate(timeout=20)
        assert process.returncode == 0, said
        assert said.decode().splitlines()[-1] == "[gateway] stopped"
    assert [item.prompt for item in load_dataset(file)] == ["3 + 4?", "slow"]


@pytest.mark.parametrize(
    ("options", "source"),
    [
        ((), "--base-url"),
        (("--base-url", "http://127.0.0.1:9/v1", "--host", "0.0.0.0"), "--host"),
        (("--base-url", "http://127.0.0.1:9/v1", "--token-env", "NOT_SET_ANYWHERE"), "--token-env"),
        (("--base-url", "http://127.0.0.1:9/v1", "--held-out", "1.5"), "--held-out"),
        (("--base-url", "http://127.0.0.1:9/v1", "--port", "0", "--keep", "/proc/none/live.jsonl"), "--keep"),
        (("--base-url", "http://127.0.0.1:9/v1", "--port", "0", "--keep", "live.csv"), "--keep"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_listens(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], source: str
) -> None:
    assert cli.main(["gateway", "--json", *options]) == 2
    assert [problem["source"] for problem in json.loads(capsys.readouterr().out)["problems"]] == [source]


def test_a_new_version_of_the_pack_ends_its_lessons_at_once(task: Task, tmp_path: Path) -> None:
    root = tmp_path / "packs"
    shutil.copytree(ROOT / "prompt_packs" / "arithmetic", root / "arithmetic")
    lessons = ServedLessons(task.paths, root, lambda _: None, simulated=False)
    assert UNITS in lessons.block()
    with (root / "arithmetic" / "house-rules.md").open("a") as file:
        file.write("Be kind.\n")
    assert cli.main(["packs", "stamp", "arithmetic", "--packs-root", str(root)]) == 0
    assert lessons.block() == ""
    assert lessons.facts()["lessons"] == []


def test_lessons_of_the_simulated_model_are_not_served_to_real_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = Task(tmp_path / "out", "t", capsys)
    task.learn(("do", UNITS))
    real = ServedLessons(task.paths, None, lambda _: None, simulated=False)
    assert real.block() == ""
    assert real.why_none().endswith("for --model simulated alone")
    elsewhere = TaskPaths(tmp_path / "out" / "tt")
    why = ServedLessons(elsewhere, None, lambda _: None, simulated=False).why_none()
    assert why == f"none is in force in {elsewhere.root} yet"
    assert UNITS in ServedLessons(task.paths, None, lambda _: None, simulated=True).block()


def test_what_cannot_be_read_is_reported_and_the_lessons_before_stay(task: Task) -> None:
    said: list[str] = []
    lessons = ServedLessons(task.paths, None, said.append, simulated=False)
    before = lessons.block()
    with task.paths.promotions.open("a") as file:
        file.write("{broken\n")
    assert lessons.block() == before
    assert "promotions.jsonl" in said[0]
    task.paths.state.unlink()
    task.paths.promotions.rename(task.paths.root / "elsewhere.jsonl")
    assert lessons.block() == before
    assert "is no longer there" in said[1]
    assert ServedLessons(TaskPaths(task.paths.root / "none"), None, said.append, simulated=False).block() == ""


@pytest.mark.untraced
@pytest.mark.usefixtures("task")
def test_without_a_task_the_lessons_are_those_of_the_one_used_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Task(tmp_path / "out", "another", capsys).learn(("do", TWICE), simulated=False)
    with serving("--out", str(tmp_path / "out"), "--base-url", "http://127.0.0.1:9/v1") as (_, facts):
        assert facts["task_id"] == "another"
