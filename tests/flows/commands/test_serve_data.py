"""``tfgrpo serve-data``: says where it is and what it serves, or everything that is wrong, and ends when told to."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.pipelines.data_server import RIGHT, item, mix, rogue
from tests.support.runs.serving import COMMAND
from tests.support.runs.serving import serving as serve
from tests.support.waiting import until
from tfgrpo.flows import cli

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "data_mix.yaml"
TOKEN = "a-token-nobody-prints"


serving = partial(serve, "serve-data")


def keep_asking(url):
    while True:
        httpx.get(f"{url}/healthz", trust_env=False, timeout=1)


def in_this_process(path, *options):
    """Run the command here until a thread has had one answer from it and sends the signal."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]

    def ask_and_end():
        for _ in range(400):
            try:
                answered.append(httpx.get(f"http://127.0.0.1:{port}/meta", trust_env=False).status_code)
            except httpx.TransportError:
                time.sleep(0.05)
            else:
                os.kill(os.getpid(), signal.SIGTERM)
                return

    answered = []
    asking = threading.Thread(target=ask_and_end)
    asking.start()
    code = cli.main(["serve-data", str(path), "--port", str(port), *options])
    asking.join()
    return code, answered


def refused(capsys, *arguments):
    assert cli.main(["serve-data", *map(str, arguments), "--json"]) == 2
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return json.loads(said.out)["problems"]


@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGTERM, signal.SIGHUP))]
)
def test_the_example_is_served_until_a_signal_comes(number):
    with serving(EXAMPLE) as server:
        foreign = {"host": "evil.example"}
        assert httpx.get(f"{server.url}/meta", headers=foreign, trust_env=False).status_code == 400
        answer = httpx.get(f"{server.url}/meta", trust_env=False).json()
        items = [
            item("<think>41 + 49</think>\n90", "sums:0"),
            item("<think>r</think>\nbilling", "tickets:0"),
            item("technical", "tickets:0"),
        ]
        results = httpx.post(f"{server.url}/grade", json={"iteration": 0, "items": items}, trust_env=False).json()
        _, said = server.end(number)
    assert answer["total_iterations"] == 4
    assert [result["reward"] for result in results["results"]] == pytest.approx([1.0, 0.25, 0.75])
    assert "error" not in json.dumps(results)
    assert server.first.startswith("data server at http://127.0.0.1:")
    assert "dataset sums: 16 records, graded by right_number, format" in server.first
    assert "stage both: below iteration 4, sums 25%, tickets 75%" in server.first
    assert said == b"[dataserver] stopped\n"


CHILD = """
import pathlib, subprocess
class Parent:
    per_item = True
    def grade_batch(self, inputs):
        if any("boom" in each.completion for each in inputs):
            raise RuntimeError("boom")
        child = subprocess.Popen(["sleep", "600"])
        pathlib.Path({pid!r}).write_text(str(child.pid))
        return [1.0 for _ in inputs]
"""


def test_verbose_logs_to_people_a_token_is_never_printed_failures_are_refused_and_children_end_with_the_server(tmp_path):
    (tmp_path / "parent.py").write_text(CHILD.format(pid=str(tmp_path / "pid")))
    sums = {"path": "sums.jsonl", "graders": ["Parent"], "grader_weights": [1.0]}
    datasets = {"sums": sums, "plain": {"path": "plain.jsonl"}}
    path = mix(tmp_path, python_graders={"Parent": {"path": "parent.py:Parent"}}, datasets=datasets)
    options = ("--verbose", "--json", "--token-env", "MY_TOKEN", "--on-failure", "refuse")
    with serving(path, *options, MY_TOKEN=TOKEN) as server:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client:
            assert client.get("/meta").status_code == 401
            client.headers["authorization"] = f"Bearer {TOKEN}"
            assert client.get("/meta", headers={"host": "evil.example"}).status_code == 200, "a token is asked for"
            body = json.dumps({"iteration": 0, "items": [item(f"{RIGHT} \ud800 \x1b[2J")]})
            assert client.post("/grade", content=body, headers={"content-type": "application/json"}).status_code == 200
            assert client.post("/sample", json={"iteration": 0, "batch_size": 1}).status_code == 200
            answer = client.post("/grade", json={"iteration": 0, "items": [item(), item("boom"), item("boom")]})
        child = psutil.Process(int((tmp_path / "pid").read_text()))
        assert child.is_running()
        server.process.send_signal(signal.SIGKILL)
        assert psutil.wait_procs([child], timeout=20)[1] == []
        out, said = server.process.communicate(timeout=60)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["detail"] == "graders failed on 2 of 3 items: Parent: RuntimeError: boom"
    facts = json.loads(server.first)
    assert facts["datasets"] == {"sums": 12, "plain": 3}
    assert (facts["status"], facts["token"], facts["total_iterations"]) == ("serving", True, 20)
    assert out == b""
    said = said.decode()
    assert "[dataserver] /sample iteration=0 batch_size=1 stage=first" in said
    assert "  | 42 \ufffd \ufffd[2J" in said
    assert TOKEN not in server.first + said


SLOW = """
import pathlib, time
class Slow:
    def grade_batch(self, inputs):
        pathlib.Path({started!r}).touch()
        time.sleep(1)
        print("graded", flush=True)
        return [0.5 for _ in inputs]
"""
ON_TERMINAL = f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); {COMMAND}"


@pytest.mark.untraced
def test_a_closed_terminal_ends_the_server_after_what_is_being_graded(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW.format(started=str(tmp_path / "started")))
    datasets = {"sums": {"path": "sums.jsonl", "graders": ["Slow"], "grader_weights": [1.0]}}
    path = mix(
        tmp_path, datasets={**datasets, "plain": {"path": "plain.jsonl"}}, python_graders={"Slow": {"path": "slow.py:Slow"}}
    )
    terminal, its_end = os.openpty()
    command = [sys.executable, "-c", ON_TERMINAL, "serve-data", str(path), "--port", "0"]
    streams = {"stdin": its_end, "stdout": its_end, "stderr": its_end, "start_new_session": True}
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, **streams)
    os.close(its_end)
    try:
        said = ""
        while not (found := re.search(r"(http://[\d.:]+), without", said)):
            assert select.select([terminal], [], [], 60)[0], said
            said += os.read(terminal, 1 << 16).decode()
        (tmp_path / "started").unlink()  # by the trial when it was loaded
        with ThreadPoolExecutor() as asking:
            body = {"iteration": 0, "items": [item()]}
            answer = asking.submit(httpx.post, f"{found[1]}/grade", json=body, trust_env=False, timeout=60)
            while not (tmp_path / "started").exists():
                time.sleep(0.02)
            os.close(terminal)
            (result,) = answer.result(60).json()["results"]
        assert process.wait(60) == 0
        assert "error" not in result
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (signal.SIGHUP, signal.SIGTERM),
        pytest.param(signal.SIGTERM, signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, signal.SIGINT, marks=pytest.mark.slow),
    ],
)
@pytest.mark.untraced
def test_a_second_signal_ends_the_server_though_a_grader_holds_its_interpreter_lock(tmp_path, first, second):
    with serving(rogue(tmp_path, "Wild", isolate=False)) as server, ThreadPoolExecutor() as asking:
        body = {"iteration": 0, "items": [item("wild")]}
        answer = asking.submit(httpx.post, f"{server.url}/grade", json=body, trust_env=False, timeout=60)
        with pytest.raises(httpx.ReadTimeout):
            keep_asking(server.url)
        server.process.send_signal(first)
        time.sleep(1.0)  # of signals that wait together, the system delivers SIGHUP first
        server.process.send_signal(signal.SIGHUP)  # of a terminal that closes, one may come after another
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(timeout=1)
        server.process.send_signal(second)
        assert server.process.wait(timeout=60) == -signal.SIGKILL
        assert isinstance(answer.exception(timeout=60), httpx.TransportError)


def test_keys_of_the_environment_are_masked_in_what_a_grader_raises(tmp_path):
    key = "k7-0123456789abcdef"
    with serving(rogue(tmp_path, "Echoing"), GRADERS_API_KEY=key, ODD_TOKEN="two words") as server:
        body = {"iteration": 0, "items": [item(f"refused: {key}!")]}
        answer = httpx.post(f"{server.url}/grade", json=body, trust_env=False, timeout=60).text
        _, said = server.end(signal.SIGTERM)
    for text in (answer, said.decode()):
        assert "refused: ***!" in text
        assert key not in text


def test_a_server_warns_of_what_is_odd_closes_everything_and_reports_unsent_telemetry(tmp_path, capsys, monkeypatch):
    stages = [
        {"name": name, "until_step": step, "datasets": [{"id": "sums", "weight": 1}]} for name, step in (("a", 0), ("b", 9))
    ]
    path = mix(tmp_path, stages=stages)
    (tmp_path / "plain.jsonl").write_text('{"prompt": "p"}\n{"answer": "1"}\n')
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    threads = threading.active_count()
    assert in_this_process(path, "--host", "0.0.0.0") == (0, [200])
    said = capsys.readouterr()
    assert "dataset plain: 2 records, graded by format" in said.out
    told = " ".join(said.err.split())
    assert "warning: 0.0.0.0 can be reached from other machines" in told
    assert "warning: never in force, because until_step is not above 0: 'a'" in told
    assert "warning: dataset 'plain': 1 of 2 records can be graded but not served" in said.err
    assert said.err.count("warning: OTEL_TRACES_EXPORTER=zipkin: no traces are sent") == 1
    assert said.err.count("telemetry: the last metrics were not delivered to 127.0.0.1:9") == 1
    assert "[dataserver] stopped" in said.err
    until(lambda: threading.active_count() <= threads)  # a thread of an earlier test may have ended meanwhile


def test_a_dataset_that_is_drawn_from_and_has_nothing_to_draw_is_refused(tmp_path, capsys):
    path, lines = mix(tmp_path), '{"answer": "42"}\n[1]\n'
    (tmp_path / "plain.jsonl").write_text(lines)
    [problem] = refused(capsys, path)
    assert problem == {
        "source": f"{path}: datasets.plain.path",
        "given": "no record that can be served, although the stage 'second' draws from it",
        "accepted": "at least one record with a prompt, or a weight of 0 in every stage",
    }
    first = {"name": "first", "until_step": 10, "datasets": [{"id": "sums", "weight": 1}, {"id": "plain", "weight": 0}]}
    mix(tmp_path, stages=[first])
    (tmp_path / "plain.jsonl").write_text(lines)
    assert in_this_process(path, "--json") == (0, [200])
    assert [each.partition(":")[0] for each in json.loads(capsys.readouterr().out)["warnings"]] == ["dataset 'plain'"]


def test_all_problems_are_reported_together_and_no_server_starts(tmp_path, capsys):
    path = mix(tmp_path, seed="x", more={})
    options = ["--port", "70000", "--max-batch", "0", "--max-body-mb", "nan", "--grader-timeout", "-1"]
    problems = refused(capsys, path, *options, "--concurrency", "0", "--token-env", "NOT_SET_ANYWHERE")
    sources = [problem["source"] for problem in problems]
    assert set(sources[:6]) == {"--port", "--max-batch", "--max-body-mb", "--concurrency", "--grader-timeout", "--token-env"}
    assert any("seed" in source for source in sources[6:])
    assert len(sources) >= 8


@pytest.mark.parametrize("token", ["", "line\nbreak"])
def test_a_token_that_no_header_can_carry_is_refused_without_being_shown(tmp_path, capsys, monkeypatch, token):
    monkeypatch.setenv("MY_TOKEN", token)
    (problem,) = refused(capsys, mix(tmp_path), "--token-env", "MY_TOKEN")
    assert problem["source"] == "--token-env"
    assert not token or token not in problem["given"]


def test_a_port_in_use_is_reported(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (problem,) = refused(capsys, mix(tmp_path), "--port", port)
    assert problem["source"] == "--port"
    assert problem["given"].startswith(f"{port} (")
    assert "127.0.0.1" in problem["accepted"]
