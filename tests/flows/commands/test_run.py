"""The commands around a run: what is checked, what is said at its end, and the report written again."""

import io
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from rich.console import Console as RichConsole

from tfgrpo.flows import cli, learning_flow
from tfgrpo.flows.commands.run import show_summary
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.orchestration.request import RunSummary

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.usefixtures("at_home")


def closing(summary, width=80):
    err = io.StringIO()
    show_summary(summary, Console(stderr=RichConsole(file=err, width=width, soft_wrap=True)))
    return err.getvalue()


def test_on_a_terminal_lines_wrap_beside_their_label_and_what_is_pasted_stays_whole(small_run):
    out = io.StringIO()
    show_summary(small_run.summary, Console(stderr=RichConsole(file=out, width=80, force_terminal=True, no_color=True)))
    lines = [line.rstrip() for line in re.sub("\x1b[^m]*m", "", out.getvalue()).splitlines()]
    pasted = [line for line in lines if line.split()[0] in {"report", "next"}]
    assert len(pasted) == 2
    assert max(len(line) for line in lines if line not in pasted) <= 80
    assert len({re.match(r" *\S+(?: at| out)?  |^ *", line).end() for line in lines if line.strip()}) == 1


def test_a_stopped_run_prints_the_command_that_resumes_it():
    details = {"resume with": "--resume night", "run": "elsewhere/task/runs/night", "spent": "$1.0000"}
    page = closing(RunSummary("stopped", "night", "the budget is spent", details))
    assert "tfgrpo run --resume night --out elsewhere" in page
    assert "stopped  the budget is spent" in page
    assert "--out" not in closing(RunSummary("stopped", "n", "", {**details, "run": "out/task/runs/night"}))
    page = closing(RunSummary("stopped", "n", "", {**details, "run": "my work/task/runs/night"}))
    assert "tfgrpo run --resume night --out 'my work'" in page


@pytest.mark.parametrize("status", ["finished", "stopped", "failed", "refused"])
def test_the_exit_code_and_the_object_are_those_of_the_summary(capsys, monkeypatch, status):
    summary = RunSummary(status, "night", "so it ended", {"spent": "$0.0000"})
    monkeypatch.setattr(learning_flow, "run_locally", lambda prepared, screen, server: screen.ended(summary) or summary)
    monkeypatch.setattr("tfgrpo.flows.orchestration.local_server.start_server", lambda environment: None)
    assert cli.main(["run", "--dry-run", "--json"]) == summary.exit_code
    assert json.loads(capsys.readouterr().out) == summary.as_json()
    assert cli.main(["run", "--dry-run"]) == summary.exit_code
    said = capsys.readouterr()
    assert said.out == ""
    assert "so it ended" in said.err


def test_doctor_spends_and_writes_nothing(capsys, at_home):
    assert cli.main(["doctor", "--out", "elsewhere"]) == 0
    assert "nothing was spent" in capsys.readouterr().out
    assert cli.main(["doctor", "--json", "--sample-size", "1000", "--max-calls", "20"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["ok"]
    assert facts["items"] == "289 to learn on; 111 held out"
    assert facts["warnings"]
    assert cli.main(["doctor", "--sample-size", "1000", "--max-calls", "20"]) == 0
    assert facts["warnings"][0] in capsys.readouterr().out
    assert list(at_home.iterdir()) == []


def test_estimate_and_config_answer_people_and_programs(capsys):
    assert cli.main(["estimate"]) == 0
    assert "calls" in capsys.readouterr().out
    assert cli.main(["estimate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["calls"]["low"] > 0
    assert cli.main(["config", "--epochs", "4"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("tfgrpo.epochs"))
    assert cli.main(["config", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tfgrpo.epochs"]["value"] == "3"
    assert line.split(maxsplit=2) == ["tfgrpo.epochs", "4", "command line --epochs"]


def test_a_report_is_written_again_whatever_the_task_and_its_page_printed_where_that_is_impossible(capsys, own_run):
    own_run.paths.report.unlink()
    own_run.paths.report.mkdir()
    assert cli.main(["report", "small", "--out", str(own_run.out)]) == 1
    said = capsys.readouterr().err
    assert said.index("night  In force: ") < said.index("report.html: cannot be replaced")
    own_run.paths.report.rmdir()
    task = own_run.task.root
    shutil.move(task, task.with_name("mine"))
    assert cli.main(["report", "small", "--out", str(own_run.out)]) == 0
    said = capsys.readouterr()
    assert Path(said.out.strip()).read_text().startswith("<!doctype html>")
    assert "night  In force: " in said.err
    assert cli.main(["report", "small", "--out", str(own_run.out), "--task-id", "mine", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"].endswith("mine/runs/small/report.html")


def test_the_simulated_server_prints_its_address(capsys):
    command = [sys.executable, "-m", "tfgrpo.flows.cli", "serve-simulated", "--port", "0", "--json"]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = json.loads(server.stdout.readline())["base_url"]
        assert httpx.get(f"{url}/models").json()["data"][0]["id"] == "simulated"
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
        server.stdout.close()
    assert cli.main(["serve-simulated", "--world", "flat"]) == 2
    assert "--world" in capsys.readouterr().err
