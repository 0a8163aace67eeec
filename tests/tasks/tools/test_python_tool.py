"""The tool python, with real processes: it answers, its bounds hold, and nothing of it is left."""

import asyncio
import json
import signal
import sys
import tempfile
import time

import pytest

from tfgrpo.pipelines.settings.tree import ActorSettings
from tfgrpo.stores.errors import SettingsError
from tfgrpo.tasks.actors.registry import actor_warnings, build_actor, tools_of
from tfgrpo.tasks.processes import process
from tfgrpo.tasks.tools.schema import run_tool

KEY = "a-secret-of-the-parent"


@pytest.fixture(autouse=True)
def folders(tmp_path_factory, monkeypatch):
    """The folder in which calls have theirs."""
    folder = tmp_path_factory.mktemp("calls")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


async def run(code, container=None):
    (tool,) = tools_of(ActorSettings(kind="tools", tools=("python",), python_container=container))
    try:
        return await run_tool(tool, json.dumps({"code": code}), asyncio.to_thread)
    finally:
        await tool.close()


async def test_what_it_prints_is_the_result_and_its_folder_is_removed_and_its_environment_holds_no_key(folders, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("HARMLESS", KEY)
    result = await run("import os; open('x', 'w').write('6'); print(int(open('x').read()) * 7, 'é', dict(os.environ))")
    assert (result.text[:5], result.ok, result.cost_usd) == ("42 é ", True, 0.0)
    assert "PATH" in result.text
    assert KEY not in result.text
    assert list(folders.iterdir()) == []


async def test_an_exit_code_is_an_error_with_what_was_printed():
    result = await run("print('so far'); 1 / 0")
    assert not result.ok
    assert result.text.startswith("error: exit code 1\nso far\nTraceback")
    assert result.text.endswith("ZeroDivisionError: division by zero")


async def test_an_endless_loop_ends_in_time_and_what_it_printed_is_kept(monkeypatch):
    monkeypatch.setattr(process, "_TIMEOUT_S", 1)
    start = time.monotonic()
    result = await run("print('begun', flush=True)\nwhile True: pass")
    assert time.monotonic() - start < 10
    assert not result.ok
    assert "begun" in result.text
    assert "1 s" in result.text or f"signal {signal.SIGXCPU.value}" in result.text


@pytest.mark.parametrize(("code", "said"), [
    ("x = bytearray(1 << 31)", "MemoryError"), ("x = bytearray(1 << 26)", None),
    ("open('x', 'wb').write(bytes(65 << 20))", "File too large"), ("open('x', 'wb').write(bytes(64 << 20))", None),
    ("while True: print('x' * 1000)", "error: ended, because it printed more than 1 MB"),
])  # fmt: skip
async def test_memory_files_and_output_are_bounded(code, said):
    result = await run(code)
    assert result.ok is (said is None)
    assert (said or "") in result.text
    assert len(result.text) < 17_000


async def test_a_container_gets_the_code_on_its_standard_input_and_no_key(tmp_path, monkeypatch):
    program = tmp_path / "podman"
    program.write_text(f"#!/bin/sh\necho container $1; env | grep -c {KEY}; exec {sys.executable} -\n")
    program.chmod(0o755)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    result = await run("print('hello')", container=f"{program} run")
    assert result.text == "container run\n0\nhello\n"


def test_a_container_command_that_is_not_found_is_refused():
    settings = ActorSettings(kind="tools", tools=("python",), python_container="no-such-program run")
    with pytest.raises(SettingsError, match=r"actor\.python_container: the program 'no-such-program' is not found"):
        build_actor(settings)


def test_without_a_container_every_plan_warns():
    settings = ActorSettings(kind="tools", tools=("python",))
    (warning,) = actor_warnings(settings)
    assert all(word in warning for word in ("network", "keys", "actor.python_container"))
    contained = settings.model_copy(update={"python_container": "true"})
    assert actor_warnings(contained) == actor_warnings(ActorSettings(kind="tools", tools=("tasks:x",))) == ()
