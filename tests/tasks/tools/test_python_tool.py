"""The tool python, with real processes: it answers, its bounds hold, and nothing of it is left."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from tfgrpo.pipelines.settings.actor import ActorSettings, PythonSettings
from tfgrpo.stores.errors import SettingsError
from tfgrpo.tasks.actors.registry import actor_warnings, build_actor, tools_of
from tfgrpo.tasks.processes import process
from tfgrpo.tasks.processes.process import Guard, Isolation, Limits, isolation
from tfgrpo.tasks.tools import python
from tfgrpo.tasks.tools.schema import run_tool

NAMESPACES = pytest.mark.skipif("namespaces" not in isolation().means, reason=f"no namespaces: {isolation().fault}")
KEY = "a-secret-of-the-parent"


@pytest.fixture(autouse=True)
def folders(tmp_path_factory, monkeypatch):
    """The folder in which calls have theirs."""
    folder = tmp_path_factory.mktemp("calls")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


async def run(code, **settings):
    (tool,) = tools_of(ActorSettings(kind="tools", tools=("python",), python=PythonSettings(**settings)))
    try:
        return await run_tool(tool, json.dumps({"code": code}), asyncio.to_thread)
    finally:
        await tool.close()


async def test_what_it_prints_is_the_result_and_its_folder_is_removed(folders):
    result = await run("open('x', 'w').write('6'); print(int(open('x').read()) * 7, 'é')")
    assert (result.text, result.ok, result.cost_usd) == ("42 é\n", True, 0.0)
    assert list(folders.iterdir()) == []


async def test_an_exit_code_is_an_error_with_what_was_printed():
    result = await run("print('so far'); 1 / 0")
    assert not result.ok
    assert result.text.startswith("error: exit code 1\nso far\nTraceback")
    assert result.text.endswith("ZeroDivisionError: division by zero")


async def test_an_endless_loop_ends_in_time_and_what_it_printed_is_kept():
    start = time.monotonic()
    result = await run("print('begun', flush=True)\nwhile True: pass", timeout_s=1)
    assert time.monotonic() - start < 10
    assert not result.ok
    assert "begun" in result.text
    assert "1 s" in result.text or f"signal {signal.SIGXCPU.value}" in result.text


async def test_memory_is_bounded():
    result = await run("x = bytearray(1 << 31)")
    assert not result.ok
    assert "MemoryError" in result.text
    assert (await run("x = bytearray(1 << 26)")).ok


async def test_a_huge_file_is_bounded():
    code = "f = open('x', 'wb')\nfor _ in range({}): f.write(bytes(1 << 20)); f.flush()"
    result = await run(code.format(65))
    assert not result.ok
    assert "File too large" in result.text
    assert (await run(code.format(64))).ok


async def test_endless_output_is_bounded():
    result = await run("while True: print('x' * 1000)")
    assert not result.ok
    assert result.text.startswith("error: ended, because it printed more than 1 MB")
    assert len(result.text) < 17_000


FLOOD = """
import os, time
made = 0
for _ in range(150):
    try:
        if os.fork() == 0:
            time.sleep(60); os._exit(0)
        made += 1
    except OSError:
        break
print(made)
"""


@NAMESPACES
async def test_a_flood_of_processes_is_bounded_and_ended(tmp_path):
    python_path = sys.executable
    means = isolation().means
    if os.geteuid() == 0 and "nobody" not in means:  # this Python is root's alone; the system's is everybody's
        python_path, means = "/usr/bin/python3", "nobody namespaces"
        if shutil.which(python_path) is None:
            pytest.skip("no Python that a user without rights may start")
    # A folder that this user may enter: those of pytest are the caller's alone.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        guard = Guard()
        ended = await guard.run(
            [python_path, "-I", "-"],
            stdin=FLOOD.encode(),
            folder=Path(folder),
            env={},
            limits=Limits(cpu_s=10, memory_mb=None, file_mb=None, processes=20, output_mb=1),
            wall_s=10.0,
            isolated=means,
        )
        guard.close()
    assert (ended.code, ended.errors) == (0, "")
    assert 10 < int(ended.output) <= 20


@NAMESPACES
async def test_orphans_end_with_the_call_even_those_in_sessions_of_their_own(tmp_path):
    code = """
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(4321)"], start_new_session=True)
os.setsid() if os.getpgrp() != os.getpid() else None
print("started")
"""
    assert (await run(code)).text == "started\n"
    assert (await run(code + "while True: pass", timeout_s=1)).ok is False
    await asyncio.sleep(0.2)
    assert not [each for each in psutil.process_iter(["cmdline"]) if "sleep(4321)" in str(each.info["cmdline"])]


@NAMESPACES
async def test_there_is_no_network():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; print(socket.create_connection(('127.0.0.1', {port}), timeout=2))"
        result = await run(code)
    assert not result.ok
    assert "unreachable" in result.text


async def test_the_environment_holds_no_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("HARMLESS", KEY)
    result = await run("import os; print(dict(os.environ))")
    assert result.ok
    assert KEY not in result.text


@NAMESPACES
def test_the_environment_of_the_run_cannot_be_read_nor_the_run_be_ended():
    program = """
import asyncio, json, os
from tests.tasks.tools.test_python_tool import run
code = f"import os\\ntry: os.kill({os.getpid()}, 9)\\nexcept OSError: pass\\nprint(open('/proc/{os.getpid()}/environ').read())"
print(asyncio.run(run(code)).text)
"""
    environment = {**os.environ, "OPENAI_API_KEY": KEY}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert "Permission denied" in done.stdout or "No such file" in done.stdout
    assert KEY not in done.stdout


@pytest.mark.skipif("namespaces" not in isolation().means, reason="its end would not be that of all its processes")
async def test_a_killed_run_leaves_nothing(tmp_path):
    program = """
import asyncio
from tests.tasks.tools.test_python_tool import run
asyncio.run(run("import os; os.execvp('sleep', ['sleep', '5432'])"))
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, env=environment)

    def left():
        return [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", "5432"]]

    await until(left)
    parent.kill()
    await parent.wait()
    await until(lambda: not left() and not list(tmp_path.glob("tfgrpo-*")))


async def until(true, seconds=20.0):
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit
        await asyncio.sleep(0.05)


async def test_a_container_gets_the_code_on_its_standard_input_and_no_key(tmp_path, monkeypatch):
    program = tmp_path / "podman"
    program.write_text(f"#!/bin/sh\necho container $1; env | grep -c {KEY}; exec {sys.executable} -\n")
    program.chmod(0o755)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    result = await run("print('hello')", container=f"{program} run")
    assert result.text == "container run\n0\nhello\n"


def test_a_container_command_that_is_not_found_is_refused():
    settings = ActorSettings(kind="tools", tools=("python",), python=PythonSettings(container="no-such-program run"))
    with pytest.raises(SettingsError, match=r"actor\.python\.container: the program 'no-such-program' is not found"):
        build_actor(settings)


@pytest.mark.parametrize(
    ("means", "root", "said"),
    [
        ("nobody namespaces", True, ()),
        ("namespaces", False, ()),
        ("namespaces", True, ("root",)),
        ("nobody", True, ("network",)),
        ("", False, ("network", "keys")),
    ],
)
def test_what_the_kernel_does_not_allow_is_one_warning(means, root, said, monkeypatch):
    monkeypatch.setattr(python, "isolation", lambda: Isolation(means, "refused"))
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    settings = ActorSettings(kind="tools", tools=("python",))
    warnings = actor_warnings(settings)
    assert len(warnings) == bool(said)
    for word in said:
        assert word in warnings[0]
    contained = settings.model_copy(update={"python": PythonSettings(container="true")})
    assert actor_warnings(contained) == ()
    assert actor_warnings(ActorSettings(kind="tools", tools=("tasks:x",))) == ()


def test_without_namespaces_the_reason_is_known(monkeypatch):
    def refused(words, **_):
        return subprocess.CompletedProcess(words, 1, b"", f"no {words[7]}".encode())

    monkeypatch.setattr(process.subprocess, "run", refused)
    assert isolation.__wrapped__() == Isolation("", "no nobody namespaces" if os.geteuid() == 0 else "no namespaces")
