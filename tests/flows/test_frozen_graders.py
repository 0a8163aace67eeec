"""A grader that never ends costs its own items in a run, a selection and the data server, and two signals end each of them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx
import psutil
import pytest
import yaml

from tests.support.runs.running import PATIENCE_S, ROOT, prefect_server
from tfgrpo.stores.files.layout import TaskPaths

pytestmark = [
    pytest.mark.untraced,
    pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]),
]
END_S = 3.0
ANSWER_S = 0.1
FILES = {
    "grader.py": """
import re

def slow(completion, answer):
    if "SLOW" in completion:
        re.match(r"(a+)+$", "a" * 60 + "b")
    return float(answer in completion)

def fine(completion):
    return 0.5
""",
    "agent.py": """
from itertools import cycle
from pathlib import Path
turns = cycle(["", "SLOW "])

async def agent(prompt):
    if Path("endless").exists():
        return "SLOW\\n```python\\nwhile True: pass\\n```"
    return (next(turns) if "now and then" in prompt else "") + prompt
""",
}
ROWS = [{"prompt": f"say {n}", "answer": str(n)} for n in range(10, 18)]
SLOW = {"prompt": "SLOW say 5", "answer": "5"}
REWARDERS = [
    {"name": "grader.py:slow", "timeout_s": 1.0},
    {"name": "code_tests", "weight": 0, "timeout_s": 60.0, "options": {"timeout_s": 60.0}},
]


@pytest.fixture
def home(tmp_path):
    """A folder with the graders, an agent that repeats its prompt, data, and an empty folder for temporary files."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "temporary").mkdir()
    rows = [{**row, "id": row["prompt"], "metadata": {"tests": ["assert f() == 1"]}} for row in (*ROWS, SLOW)]
    held_out = [{"id": str(n), "prompt": f"say {n}", "answer": str(n)} for n in range(4)]
    for name, content in (("items.jsonl", rows), ("held_out.jsonl", held_out)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in content))
    return tmp_path


@contextmanager
def started(home: Path, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command as its installed script does, with temporary files in a folder of its own."""
    command = [sys.executable, "-m", "tfgrpo", *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(home / "temporary"), **environment}
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=home, stdout=pipe, stderr=pipe, text=True, env=env, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(holds: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Wait until something holds while the process runs."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


def code_folders(home: Path) -> list[Path]:
    return [*(home / "temporary").glob("tfgrpo-code-*")]


def assert_two_signals_end(process: subprocess.Popen[str], number: signal.Signals, home: Path) -> None:
    """Assert that the process ends in time, whatever it is doing, and leaves no process and no folder."""
    until(lambda: code_folders(home), process)  # of a test that runs
    children = psutil.Process(process.pid).children(recursive=True)
    assert any("tfgrpo.rewarders.worker" in " ".join(child.cmdline()) for child in children)
    process.send_signal(number)
    time.sleep(0.2)
    process.send_signal(number)
    process.communicate(timeout=END_S)
    assert psutil.wait_procs(children, timeout=END_S)[1] == []
    assert code_folders(home) == []


def write(path: Path, content: dict[str, Any]) -> str:
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return str(path)


@pytest.mark.xdist_group("prefect")
def test_a_run_scores_its_other_items_and_two_signals_end_it(home, number):
    learning = {"enabled": True, "group_size": 2, "sample_size": 9, "batch_size": 9, "epochs": 9}
    pipeline = {
        "task_id": "frozen", "pack": "arithmetic", "dry_run": True, "actor": {"kind": "agent.py:agent"},
        "dataset": {"path": "items.jsonl", "eval_path": "held_out.jsonl"}, "tfgrpo": learning, "rewarders": REWARDERS,
    }  # fmt: skip
    options = ["--pipeline", write(home / "run.yaml", pipeline), "--out", "out", "--run-id", "night", "--json"]
    rollouts = TaskPaths.of(home / "out", "frozen").run("night").rollouts
    with started(home, "run", *options, PREFECT_API_URL=prefect_server()) as process:
        until(rollouts.exists, process)
        (home / "endless").touch()
        ended = {row["item_id"]: row["outcome"] for row in map(json.loads, rollouts.read_text().splitlines())}
        assert ended.pop(SLOW["prompt"])["reason"] == "grader.py:slow: no score within 1 s"
        assert {name: outcome["name"] for name, outcome in ended.items()} == {row["prompt"]: "scored" for row in ROWS}
        assert_two_signals_end(process, number, home)


@pytest.mark.slow
def test_a_selection_chooses_among_the_graded_candidates_and_two_signals_end_it(home, number):
    pipeline = {"pack": "arithmetic", "actor": {"kind": "agent.py:agent"}, "dry_run": True}
    path = write(home / "slow.yaml", {**pipeline, "rewarders": REWARDERS[:1]})
    options = ["--prompt", "now and then 5", "--reference", "5", "--json"]
    with started(home, "select", "--pipeline", path, *options) as process:
        printed, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    found = [each["reward"] or each["ungraded"] for each in json.loads(printed)["candidates"]]
    assert found == [1.0, "grader.py:slow: no score within 1 s"] * 2
    path = write(home / "both.yaml", {**pipeline, "rewarders": REWARDERS})
    (home / "endless").touch()
    with started(home, "select", "--pipeline", path, "--item", "items.jsonl#say 10") as process:
        assert_two_signals_end(process, number, home)


@pytest.mark.slow
def test_the_data_server_answers_meanwhile_and_two_signals_end_it(home, number):
    mix = {
        "paths": {"data_root": "."},
        "python_graders": {
            **{name: {"path": f"grader.py:{name}"} for name in ("slow", "fine")},
            "code": {"builtin": "code_tests", "init_kwargs": {"timeout_s": 60.0}},
        },
        "datasets": {
            name: {"path": "items.jsonl", "graders": [name], "grader_weights": [1.0]} for name in ("slow", "fine", "code")
        },
        "stages": [{"name": "all", "until_step": 9, "datasets": [{"id": "slow", "weight": 1.0}]}],
    }
    options = [write(home / "mix.yaml", mix), "--port", "0", "--grader-timeout", "5"]

    def body(*completions: str, dataset: str) -> dict[str, Any]:
        items = [{"sample_id": f"{dataset}:0", "completion": each} for each in completions]
        return {"iteration": 0, "items": items, "parts": True}

    def grade(*completions: str, dataset: str) -> list[dict[str, Any]]:
        asked = body(*completions, dataset=dataset)
        return httpx.post(f"{url}/grade", json=asked, trust_env=False, timeout=60).json()["results"]

    with started(home, "serve-data", *options) as process, ThreadPoolExecutor() as asking:
        url = re.search(r"http://[\d.:]+", process.stdout.readline())[0]
        for name in ("fine", "slow"):
            grade("10", dataset=name)  # its process has started
        frozen = asking.submit(grade, "10", "SLOW", "wrong", dataset="slow")
        times = list[float]()
        with httpx.Client(base_url=url, trust_env=False) as client:
            while not frozen.done():
                for ask in (lambda: client.get("/healthz"), lambda: client.post("/grade", json=body("x", dataset="fine"))):
                    began = time.monotonic()
                    assert ask().status_code == 200
                    times.append(time.monotonic() - began)
        assert quantiles(times, n=10)[-1] < ANSWER_S  # not each: other processes share the machine
        right, slow, wrong = frozen.result()
        assert (right["parts"]["slow"], wrong["parts"]["slow"]) == (1.0, 0.0)
        assert slow["error"] == "slow: no score within 5 s"
        waiting = asking.submit(grade, "while True: pass", dataset="code"), asking.submit(grade, "SLOW", dataset="slow")
        assert_two_signals_end(process, number, home)
        assert all(each.exception(timeout=60) for each in waiting)
