"""``import tfgrpo`` in programs of its users: scripts, a running loop, an interrupt."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

import tfgrpo
from tests.support.runs.running import SIZE, prefect_server

ROOT = Path(__file__).resolve().parents[1]


def test_importing_it_loads_none_of_its_rooms():
    program = "import sys, tfgrpo; print(sorted(name for name in sys.modules if name.startswith('tfgrpo')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['tfgrpo']"
    assert len((ROOT / "tfgrpo" / "__init__.py").read_text().splitlines()) <= 40


STOPS = """
import asyncio, itertools, signal, threading, time, tfgrpo
rows = [{"id": str(each), "prompt": f"{each}?", "answer": "1"} for each in range(100)]
asked = {"dry_run": True, "concurrency": 2, "group_size": 2}
def agent_in(thread, calls):
    def agent(prompt):
        if next(calls) == 5: signal.pthread_kill(thread(), signal.SIGINT)
        time.sleep(0.05)
        return "Answer: 1"
    return agent
try:
    # The system may hand a signal of the process to any of its threads, such as that of the agent.
    tfgrpo.learn(rows, agent=agent_in(threading.get_ident, itertools.count()), task_id="script", **asked)
except KeyboardInterrupt:
    print(tfgrpo.load_run("latest", task_id="script").status)
async def cell():
    # As a kernel does: the handler cancels the task, which wakes no loop that waits for nothing else.
    signal.signal(signal.SIGINT, lambda *_, task=asyncio.current_task(): task.cancel())
    await tfgrpo.alearn(rows, agent=agent_in(lambda: threading.main_thread().ident, itertools.count()), task_id="cell", **asked)
try:
    asyncio.run(cell())
except asyncio.CancelledError:
    print(tfgrpo.load_run("latest", task_id="cell").status)
"""


def test_an_interrupt_stops_a_run_in_a_script_and_the_stop_button_one_in_a_notebook(tmp_path):
    done = subprocess.run([sys.executable, "-c", STOPS], capture_output=True, text=True, check=True, cwd=tmp_path)
    chosen = "tfgrpo: rewards: gt, chosen by what the dataset holds: 100 references read as numbers\n"
    assert (done.stdout.split(), done.stderr) == (["stopped", "stopped"], 2 * chosen)


@pytest.mark.xdist_group("prefect")
def test_a_run_is_registered_with_the_prefect_server_that_is_named(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_API_URL", prefect_server())
    with temporary_settings({PREFECT_API_URL: prefect_server()}), get_client(sync_client=True) as client:
        before = len(client.read_flow_runs())
        assert [tfgrpo.learn(dry_run=True, progress=False, **SIZE).status for _ in range(2)] == ["finished"] * 2
        registered = client.read_flow_runs()
    assert len(registered) == before + 2
    assert capfd.readouterr() == ("", "")


def snippet() -> str:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)
    return code


def test_the_snippet_of_the_page_runs_as_a_script_and_inside_a_running_loop(tmp_path):
    running = "import asyncio\nasync def main():\n    exec(compile(CODE, 'cell', 'exec'), {})\nasyncio.run(main())\n"
    program = f"{snippet()}\nCODE = {snippet()!r}\n{running}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stderr == ""
    assert len(re.findall(r"^(?:in force|not yet|taken back)\b", done.stdout, re.MULTILINE)) == 2
