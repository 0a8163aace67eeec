"""The command actor, with real processes: what it gets, how it answers, and that nothing of it is left."""

import asyncio
import json
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.agents import steps as kit
from tests.support.waiting import eventually
from tfgrpo.pipelines.settings.tree import ActorSettings, GatewaySettings
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.tasks.actors.registry import actor_warnings, build_actor, check_actor
from tfgrpo.tasks.processes import process
from tfgrpo.tasks.rollout import run_rollout

OFF = GatewaySettings(enabled=False)


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """The folder in which attempts have theirs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "attempts"))
    (tmp_path / "attempts").mkdir()
    return tmp_path / "attempts"


def script(text):
    return shlex.join([sys.executable, "-c", text])


@asynccontextmanager
async def opened(tmp_path, command, *, timeout_s=60.0, **more):
    actor = build_actor(ActorSettings(kind="command", command=command, gateway=OFF, **more))
    runtime = kit.runtime(lambda *_: "7", tmp_path, actor=actor, limits={"timeout_s": timeout_s})
    try:
        yield runtime
    finally:
        await runtime.resources.aclose()


async def attempt(tmp_path, command, *, of=None, **more):
    async with opened(tmp_path, command, **more) as runtime:
        return await run_rollout(kit.spec(of=of), 0, runtime)


async def test_the_command_gets_texts_as_arguments_and_the_item_as_json_never_its_answer(tmp_path):
    code = "import sys, json; print(json.dumps([sys.argv[1:], json.load(sys.stdin)]))"
    command = f"{script(code)} --task={{prompt}} {{system}} {{item}} '{{unknown}} {{}}' {{here}}"
    of = kit.item(prompt="3 + 4? {system} $HOME `id`", system_prompt="Digits.", metadata={"tier": [1]}, domain="sums")
    rollout = await attempt(tmp_path, command, of=of, stdin="item")
    arguments, stdin = json.loads(rollout.output)
    shown = {"id": "q1", "prompt": of.prompt, "system_prompt": "Digits.", "metadata": {"tier": [1]}, "domain": "sums"}
    told = ["--task=Digits.\n\n3 + 4? {system} $HOME `id`", "Be careful.", arguments[2], "{unknown} {}", str(Path.cwd())]
    assert (arguments, json.loads(arguments[2])) == (told, shown)
    assert stdin == {**shown, "system": "Be careful.", "temperature": 0.7, "seed": rollout.seed}


STREAM = '\n'.join(json.dumps(each) for each in (
    {"type": "system", "tools": ["Read"]},
    {"type": "assistant", "message": "I look."},
    {"type": "result", "result": "Answer: 7 \u2028", "parts": [{"a/b": 1}]},
))  # fmt: skip


@pytest.mark.parametrize(("written", "answer", "output", "notes"), [
    (" a\n b \n\n", None, "a\n b", []), ("thinking\nAnswer: 7\n\n", "last_line", "Answer: 7", []),
    ('{"answer": {"value": [1, 2]}}', "json:/answer/value", "[1, 2]", []),
    ("log\n" + STREAM + "\nbye", "json:/result", "Answer: 7 \u2028", ["system", "assistant"]),
    (STREAM, "json:/parts/0/a~1b", "1", ["system", "assistant"]),
])  # fmt: skip
async def test_the_answer_is_where_the_setting_says(tmp_path, written, answer, output, notes):
    rollout = await attempt(tmp_path, f"printf %s {shlex.quote(written)}", answer=answer)
    assert (rollout.output, rollout.loss) == (output, None)
    assert [(frame.kind, frame.name) for frame in rollout.frames] == [("note", name) for name in notes]
    assert rollout.usage.calls is None


API_ERROR = '{"type": "result", "result": "API Error: 400 no such model", "usage": {}}'


@pytest.mark.parametrize(("command", "answer", "said"), [
    ("sh -c 'echo nothing here; echo my own bug >&2; exit 3'", None, "ended with exit code 3: my own bug"),
    ("sh -c 'echo no such model; exit 1'", None, "exit code 1: no such model"),
    (f"sh -c {shlex.quote(f'echo {shlex.quote(API_ERROR)}; exit 1')}", "json:/result", "exit code 1: API Error: 400 no"),
    ("sh -c 'kill -9 $$'", None, "was ended by SIGKILL"), ("sh -c 'echo no json'", "json:/answer", "the answer is no JSON"),
    ("sh -c 'echo {}'", "json:/answer", "nothing at /answer"),
    ("sh -c 'ln -s /etc/passwd answer.txt'", "file:answer.txt", "left no file 'answer.txt'"),
    ("yes", None, "wrote more than 16 MB"), ("sh -c 'yes > answer.txt & sleep 1'", "file:answer.txt", "more than 16 MB"),
])  # fmt: skip
async def test_what_a_command_does_wrong_is_a_failure_of_its_rollout_with_its_own_words(tmp_path, command, answer, said):
    rollout = await attempt(tmp_path, command, answer=answer)
    assert (rollout.loss.name, rollout.loss.error_type) == ("failed", "ActorError")
    assert said in rollout.loss.reason
    assert "usage" not in rollout.loss.reason


async def test_an_attempt_has_the_same_folder_when_its_run_is_resumed_and_nothing_of_a_killed_one_in_it(
    tmp_path, folders, monkeypatch
):
    async def where(run, index=0, epoch=1, command="pwd"):
        RunPaths(tmp_path / run).journal.unlink(missing_ok=True)
        async with opened(tmp_path / run, command) as runtime:
            return (await run_rollout(kit.spec(epoch=epoch), index, runtime)).output

    first = await where("a")
    assert await where("a") == first
    assert len({first, await where("b"), await where("a", index=1), await where("a", epoch=2)}) == 4
    assert not list(folders.iterdir())
    left_over = folders / Path(first).name / "half-done"
    left_over.parent.mkdir()
    left_over.write_text("x")
    monkeypatch.setattr(process, "_VACATING", 2)
    assert await where("a", command="sh -c 'ls -A; echo 7'") == "7"


@pytest.mark.parametrize("prompt", ["a" * 200_000, "nul \0", "half a pair \ud83d"], ids=["long", "nul", "surrogate"])
async def test_a_prompt_that_no_argument_can_hold_goes_by_standard_input(tmp_path, prompt):
    rollout = await attempt(tmp_path, "printf %s {prompt}", of=kit.item(prompt=prompt))
    assert "cannot be started" in rollout.loss.reason
    assert "standard input" in rollout.loss.reason
    read = script("import sys, json; print(len(json.load(sys.stdin)['prompt']))")
    assert (await attempt(tmp_path / "b", read, of=kit.item(prompt=prompt))).output == str(len(prompt))


async def test_each_attempt_works_on_a_copy_of_its_own_and_what_it_changed_is_recorded(tmp_path, folders):
    template = tmp_path / "template"
    (template / ".git").mkdir(parents=True)
    (template / ".git" / "HEAD").write_text("main")
    (template / "main.py").write_text("print(1)\n")
    (template / "kept.txt").write_text("kept\n")
    command = "sh -c 'echo print\\(2\\) > main.py; rm .git/HEAD; pwd; echo new > added'"
    async with opened(tmp_path, command, workdir=str(template), answer="diff") as runtime:
        first, second = await asyncio.gather(*(run_rollout(kit.spec(), index, runtime) for index in (0, 1)))
    added = "diff --git a/added b/added\nnew file mode 100644\n--- /dev/null\n+++ b/added\n@@ -0,0 +1 @@\n+new\n"
    changed = "diff --git a/main.py b/main.py\n--- a/main.py\n+++ b/main.py\n@@ -1 +1 @@\n-print(1)\n+print(2)\n"
    assert first.output == second.output == added + changed
    assert [(frame.name, frame.text) for frame in first.frames] == [("diff", first.output)]
    assert (template / "main.py").read_text() == "print(1)\n"
    assert list(folders.iterdir()) == []
    told = await attempt(tmp_path / "b", "sh -c 'echo more >> kept.txt; echo Answer: 7'", workdir=str(template))
    assert (told.output, told.frames[0].name) == ("Answer: 7", "diff")
    assert "+more" in told.frames[0].text


async def test_secrets_of_the_environment_stay_here_unless_they_are_named(tmp_path, monkeypatch):
    secret = "sk-" + "abcDEF0123456789" * 2
    for name, value in {
        "OPENAI_API_KEY": "hidden-1", "SEARCH_TOKEN": "passed-1", "OTHER_TOKEN": "hidden-2", "HARMLESS": secret,
        "PGPASSWORD": "hidden-4", "DATABASE_URL": "postgres://me:hidden-5@host/db", "TFGRPO_SEED": "hidden-3",
        "ALERT_WEBHOOK": "https://hooks.test/hidden-6", "SLACK_WEBHOOK_URL": "https://hooks.test/hidden-7",
        "SENTRY_DSN": "https://hidden-8@errors.test/1", "CACHE": "redis://:hidden-9/x@cache.test/0",
        "CLONE": "https://hidden-0123456789@git.test/x.git", "COLOUR": "blue", "REMOTE": "ssh://git@git.test/x",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    command = script("import os; print(os.environ['SEARCH_TOKEN'][::-1], dict(os.environ))")
    rollout = await attempt(tmp_path, command, env=("SEARCH_TOKEN", "MODE=fast", "ROOT={here}"))
    for shown in ("1-dessap", "'SEARCH_TOKEN': '***'", "'MODE': 'fast'", f"'ROOT': '{Path.cwd()}'", "'COLOUR': 'blue'",
                  "'REMOTE': 'ssh://git@git.test/x'"):  # fmt: skip
        assert shown in rollout.output
    assert "hidden" not in rollout.output
    assert secret not in rollout.output
    complains = script("import os, sys; sys.exit('refused: ' + os.environ['SEARCH_TOKEN'])")
    assert (await attempt(tmp_path / "other", complains, env=("SEARCH_TOKEN",))).loss.reason.endswith("refused: ***")


def processes_with(mark):
    alive = (each for each in psutil.process_iter(["cmdline", "status"]) if each.info["status"] != psutil.STATUS_ZOMBIE)
    return [each for each in alive if mark in " ".join(each.info["cmdline"] or ())]


async def gone(mark, folders):
    await eventually(lambda: not processes_with(mark) and not list(folders.iterdir()))


OTHER_GROUP = "timeout 900 " if Path("/proc").is_dir() else ""
"""What starts a process in a group of its own, in the same session."""
STUBBORN = f"trap : TERM; {OTHER_GROUP}sleep {{0}} & sleep {{0}} & while :; do wait; done"
"""A shell that ignores SIGTERM, with two processes of its own; the time they sleep is their mark."""


async def test_the_time_limit_ends_the_whole_session_also_one_that_ignores_sigterm(tmp_path, folders):
    command = f"sh -c {shlex.quote(STUBBORN.format('987.501'))}"
    rollout = await attempt(tmp_path, command, timeout_s=0.5)
    assert rollout.loss.error_type == "ModelTimeout"
    await gone("987.501", folders)


async def test_cancellation_ends_the_group_and_sigterm_gives_it_time_to_clean_up(tmp_path, folders, monkeypatch):
    monkeypatch.setattr(process, "GRACE_S", 60.0)  # a busy machine may take more than the usual second
    left = tmp_path / "cleaned"
    # Its input ends only when it has been started for good: until then nothing is waited for.
    code = f"trap 'echo done > {left}; exit 1' TERM; cat > /dev/null; sleep 987.502 & wait"
    async with opened(tmp_path, f"sh -c {shlex.quote(code)}") as runtime:
        running = asyncio.ensure_future(run_rollout(kit.spec(), 0, runtime))
        # Not in a script any more, but asleep: the trap is set by then.
        await eventually(lambda: any(each.name() == "sleep" for each in processes_with("987.502")))
        running.cancel()
        await asyncio.wait([running])
    await gone("987.502", folders)
    assert left.read_text() == "done\n"


async def test_an_attempt_can_be_cancelled_while_it_is_being_started(tmp_path, folders):
    async with opened(tmp_path, "sleep 987.505") as runtime:
        for moment in range(20):
            running = asyncio.ensure_future(run_rollout(kit.spec(), moment, runtime))
            for _ in range(moment):
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.wait([running])
        await gone("987.505", folders)


async def test_what_a_command_leaves_behind_ends_with_it_and_does_not_delay_its_answer(tmp_path, folders):
    start = time.monotonic()
    read_only = "mkdir -p a/b; echo x > a/b/c; chmod 500 a a/b"
    rollout = await attempt(tmp_path, f"sh -c '{read_only}; sleep 987.503 & echo 7'")
    assert rollout.output == "7"
    assert time.monotonic() - start < 10
    await gone("987.503", folders)


KILLED = """
import asyncio, sys, tempfile
from pathlib import Path
from tests.support.agents import steps as kit
from tfgrpo.pipelines.settings.tree import ActorSettings, GatewaySettings
from tfgrpo.tasks.actors.registry import build_actor
from tfgrpo.tasks.rollout import run_rollout

async def main():
    tempfile.tempdir = sys.argv[2]
    gateway = GatewaySettings(enabled=False)
    actor = build_actor(ActorSettings(kind="command", command=sys.argv[3], gateway=gateway, workdir=sys.argv[4]))
    runtime = kit.runtime(lambda *_: "7", Path(sys.argv[1]), actor=actor)
    await asyncio.gather(*(run_rollout(kit.spec(), index, runtime) for index in range(4)))

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
async def test_a_run_that_is_killed_leaves_neither_processes_nor_folders(tmp_path, folders, number):
    (tmp_path / "template").mkdir()
    command = f"sh -c {shlex.quote(STUBBORN.format('987.504'))}"
    arguments = [str(tmp_path), str(folders), command, str(tmp_path / "template")]
    run = subprocess.Popen(  # noqa: ASYNC220 - it takes a millisecond
        [sys.executable, "-c", KILLED, *arguments], cwd=Path(__file__).parents[3]
    )
    try:
        # Four shells with it in their script, and two sleeping processes of each, of which one has a parent more.
        await eventually(lambda: len(processes_with("sleep 987.504")) >= (16 if OTHER_GROUP else 12))
    finally:
        run.send_signal(number)
        run.wait()
    await gone("987.504", folders)


LIMITS = "import resource as r; print(*(r.getrlimit(each)[0] for each in (r.RLIMIT_CPU, r.RLIMIT_CORE, r.RLIMIT_AS)))"


@pytest.mark.parametrize(("limits", "code", "said"), [
    ({}, LIMITS, f"3600 0 {resource.getrlimit(resource.RLIMIT_AS)[0]}"),
    ({"memory_mb": 200}, "len(bytearray(400 << 20))", "MemoryError"),
    ({}, "open('x', 'wb').truncate((1 << 30) + 1)", "File too large"),
])  # fmt: skip
async def test_a_command_can_use_what_its_limits_allow_and_no_more(tmp_path, limits, code, said):
    rollout = await attempt(tmp_path, script(code), **limits)
    assert said in (rollout.output or rollout.loss.reason)


PLACES = "stdout, last_line, diff, file:NAME"


@pytest.mark.parametrize(("given", "source", "accepted"), [
    ({}, "actor.command", "the program of kind: command"), ({"command": "no-such {prompt}"}, "actor.command", "on the PATH"),
    ({"command": "./pyproject.toml"}, "actor.command", "a program on the PATH"),
    ({"command": "cat", "workdir": "no/such/folder"}, "actor.workdir", "a folder"),
    ({"command": "cat", "answer": "file:../x"}, "actor.answer", PLACES),
    ({"command": "cat", "answer": "text"}, "actor.answer", PLACES),
    ({"command": "cat {base_url} {system}", "gateway": OFF}, "actor.command", "actor.gateway.enabled on"),
    ({"command": "cat", "gateway": OFF}, "actor.command", "{system} in an argument"),
    ({"command": "cat", "url": "http://localhost/x"}, "actor.url", "it with kind: http"),
])  # fmt: skip
def test_a_bad_command_is_refused_before_anything_is_started(given, source, accepted):
    (problem,) = check_actor(ActorSettings(kind="command", **given), learns=True)
    assert problem.source == source
    assert accepted in problem.accepted


def test_a_command_of_the_template_and_one_of_this_folder_are_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("template/agent.sh", "here.sh", "agent.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch(mode=0o755)
    assert check_actor(ActorSettings(kind="command", command="./agent.sh", workdir="template")) == ()
    assert check_actor(ActorSettings(kind="command", command="{here}/here.sh")) == ()
    (problem,) = check_actor(ActorSettings(kind="command", command="./here.sh"))
    assert "perhaps {here}/here.sh" in problem.accepted
    (tmp_path / "here.sh").chmod(0o644)
    (problem,) = check_actor(ActorSettings(kind="command", command="{here}/here.sh"))
    assert problem.given == "'{here}/here.sh', which is not executable"
    (warning,) = actor_warnings(ActorSettings(kind="command", command="python agent.py {prompt}"))
    assert "{here}/agent.py" in warning
    monkeypatch.delenv("NOT_SET_HERE", raising=False)
    (warning,) = actor_warnings(ActorSettings(kind="command", command="cat", env=("NOT_SET_HERE", "MODE=fast")))
    assert warning == "NOT_SET_HERE of actor.env is not set in this environment"
