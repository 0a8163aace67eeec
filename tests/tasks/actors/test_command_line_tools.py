"""What command-line agents need of the command actor: their prompt once, the same folder again, their own last words."""

from __future__ import annotations

import json
import shlex
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.agents import steps as kit
from tfgrpo.pipelines.settings.actor import ActorSettings, GatewaySettings
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.tasks.actors.registry import build_actor, check_actor
from tfgrpo.tasks.processes import process
from tfgrpo.tasks.rollout import run_rollout


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "attempts"))
    (tmp_path / "attempts").mkdir()
    return tmp_path / "attempts"


@asynccontextmanager
async def opened(run_dir, command, **more):
    actor = build_actor(ActorSettings(kind="command", command=command, gateway=GatewaySettings(enabled=False), **more))
    runtime = kit.runtime(lambda *_: "7", run_dir, actor=actor)
    try:
        yield runtime
    finally:
        await runtime.resources.aclose()


async def attempt(run_dir, command, *, index=0, epoch=1, **more):
    """Run one whose answer no process has journalled."""
    RunPaths(run_dir).journal.unlink(missing_ok=True)
    async with opened(run_dir, command, **more) as runtime:
        return await run_rollout(kit.spec(of=kit.item(prompt="3 + 4?"), epoch=epoch), index, runtime)


@pytest.mark.parametrize(
    ("command", "stdin", "found"),
    [
        ("sh -c cat", None, "item"),
        ("sh -c 'cat; true \"$@\"' sh {prompt}", None, "nothing"),
        ("sh -c 'cat; true \"$@\"' sh --task={item}", None, "nothing"),
        ("sh -c 'cat; true \"$@\"' sh {system} {here}", None, "item"),
        ("sh -c 'cat; true \"$@\"' sh {prompt}", "item", "item"),
        ("sh -c cat", "nothing", "nothing"),
        ("sh -c cat", "prompt", "prompt"),
    ],
)
async def test_a_command_with_the_item_in_its_arguments_finds_it_there_alone_unless_told(
    tmp_path, command, stdin, found
):
    output = (await attempt(tmp_path, command, stdin=stdin)).output
    if found == "item":
        assert json.loads(output)["prompt"] == "3 + 4?"
        assert json.loads(output)["system"] == "Be careful."
    else:
        assert output == {"nothing": "", "prompt": "3 + 4?"}[found]


def test_other_actors_have_no_standard_input():
    (problem,) = check_actor(ActorSettings(kind="chat", stdin="prompt"))
    assert (problem.source, problem.accepted) == ("actor.stdin", "it with kind: command")


async def test_an_attempt_works_in_the_same_folder_when_its_run_is_resumed_and_another_one_in_another(
    tmp_path, folders
):
    async def where(run_dir, **which):
        return (await attempt(run_dir, "pwd", **which)).output

    first = await where(tmp_path / "a")
    assert await where(tmp_path / "a") == first
    others = [
        await where(tmp_path / "b"),
        await where(tmp_path / "a", index=1),
        await where(tmp_path / "a", epoch=2),
    ]
    assert len({first, *others}) == 4
    assert not list(folders.iterdir())


async def test_what_a_killed_run_left_in_the_folder_is_not_found_by_its_next_attempt(tmp_path, folders, monkeypatch):
    left_over = folders / Path((await attempt(tmp_path / "a", "pwd")).output).name / "half-done"
    left_over.parent.mkdir()
    left_over.write_text("x")
    monkeypatch.setattr(process, "_VACATING", 2)
    assert (await attempt(tmp_path / "a", "sh -c 'ls -A; echo 7'")).output == "7"


@pytest.mark.parametrize(
    ("written", "answer", "said"),
    [
        (
            '{"type": "result", "result": "API Error: 400 no such model", "usage": {}}',
            "json:/result",
            "API Error: 400 no",
        ),
        ('{"type": "result", "error": "no such model"}', "json:/result", '"error": "no such model"'),
        ("no such model", None, "no such model"),
    ],
)
async def test_a_command_that_fails_without_a_word_on_standard_error_is_quoted_from_the_place_of_its_answer(
    tmp_path, written, answer, said
):
    code = f"printf %s {shlex.quote(written)}; exit 1"
    rollout = await attempt(tmp_path, f"sh -c {shlex.quote(code)}", answer=answer)
    assert rollout.loss.reason.startswith("the command ended with exit code 1: ")
    assert said in rollout.loss.reason
    if said.startswith("API"):
        assert "usage" not in rollout.loss.reason
