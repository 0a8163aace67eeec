"""Code that users bring runs in worker processes: what it does there costs its own attempt, and none outlives its owner."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.support.rewards.scoring import built, group, numbers
from tests.support.vectors import rows_of
from tests.support.waiting import until
from tfgrpo.rewarders.composite import unisolated
from tfgrpo.rewarders.importing import handed_over
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import Abstained, Scorer

LIMIT_S = 2.0
"""Of calls some of which never end: also on a busy machine the others are done by then."""


def wild(form: str = "score") -> Scorer:
    return built(f"tests.support.rewards.wild:{form}", rewarder_id=form)


@pytest.fixture
def runner():
    with ScoreRunner() as runner:
        yield runner
    assert workers() == []


def workers() -> list[psutil.Process]:
    """The worker processes of this one."""
    return [each for each in psutil.Process().children() if PROGRAM in " ".join(command(each))]


PROGRAM = "tfgrpo.rewarders.worker"


def command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


async def scored(runner: ScoreRunner, scorer: Scorer, *outputs: str, limit: float = 30.0, item: str = "q1", **more):
    (found,) = await runner.score(scorer, [replace(group(*outputs, **more), item_id=item)], limit)
    return found


def read(verdicts) -> list[float | str]:
    marks = {(True, False): "broke: ", (False, True): "late: ", (False, False): ""}
    return [marks[each.broke, each.late] + each.reason if isinstance(each, Abstained) else each.score for each in verdicts]


ACTS = dict(rows_of("isolation", "acts"))
"""What becomes of an attempt whose scorer does this to its process."""


async def test_what_a_scorer_does_to_its_process_costs_its_own_attempt_and_no_other(runner):
    scorer, found = wild(), {}
    for act in ACTS:
        before, found[act], after = read(await scored(runner, scorer, "0", act, "0.5", limit=LIMIT_S))
        assert (before, after) == (0.0, 0.5), act
    assert found.pop("regex").removesuffix(" of processor time") == ACTS["regex"]
    assert found == {act: verdict for act, verdict in ACTS.items() if act != "regex"}
    children = [child for worker in workers() for child in worker.children()]
    assert children
    runner.close()
    until(lambda: not any(child.is_running() for child in children))


@pytest.mark.parametrize(
    ("form", "act", "expected"),
    [
        ("Batch", "exit", [ACTS["exit"]] * 3),
        ("Each", "exit", [0.0, ACTS["exit"], 0.5]),
        ("later", "ignore_clock", [0.0, ACTS["regex"], 0.5]),
        ("later", "never", [0.0, ACTS["regex"], 0.5]),
    ],
)
async def test_a_process_that_ends_costs_what_was_scored_together(runner, form, act, expected):
    scorer = wild(form)
    assert read(await scored(runner, scorer, "0", "1")) == [0.0, 1.0]
    (first,) = workers()
    assert read(await scored(runner, scorer, "0", act, "0.5", limit=LIMIT_S)) == expected
    assert (first in workers()) == (act == "never")  # a coroutine that waits is ended alone


def test_a_worker_one_group_of_rewards_and_a_process_model_load_nothing_heavy():
    program = """if True:
        import sys, tfgrpo.rewarders.powl, tfgrpo.rewarders.worker
        from tfgrpo.rewarders.advantages.group import group_advantage
        group_advantage([0.0, 1.0])
        sys.exit(str({"asyncio", "numpy", "pydantic", "prefect"} & {*sys.modules}).removeprefix("set()") or 0)
    """
    subprocess.run([sys.executable, "-P", "-c", program], check=True)


async def test_the_loop_and_other_scorers_go_on_while_one_keeps_the_interpreter(runner):
    scorer, other = wild(), wild("other")
    await asyncio.gather(scored(runner, scorer, "1"), scored(runner, other, "1"))
    hanging = asyncio.create_task(scored(runner, scorer, "regex", limit=2.0))
    longest, last = 0.0, time.monotonic()
    while not hanging.done():
        assert read(await scored(runner, other, "0.5")) == [0.5]
        await asyncio.sleep(0.001)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    assert longest < 1.0  # of 2 s that the interpreter of the worker was kept
    assert read(hanging.result())[0].startswith("late: no score within 2 s")


async def test_a_scorer_whose_processes_keep_ending_is_not_asked_for_a_while():
    now = [0.0]
    with ScoreRunner(clock=lambda: now[0]) as runner:
        scorer = wild()
        paused = "broke: not asked for 30 s, after 4 items in a row: its process ended with exit code 0"
        for number, outputs in enumerate([["exit"] * 6, ["exit"], ["exit", "1"], ["exit"], ["exit"] * 5, ["exit"]]):
            expected = [ACTS["exit"] if each == "exit" else 1.0 for each in outputs]
            assert read(await scored(runner, scorer, *outputs, item=f"q{number}")) == expected
        assert read(await scored(runner, scorer, "exit", "1", "1", item="q6")) == [ACTS["exit"], paused, paused]
        now[0] = 29.0
        assert read(await scored(runner, scorer, "1")) == [paused]
        now[0] = 30.0
        assert read(await scored(runner, scorer, "1")) == [1.0]


async def test_what_ends_a_process_while_it_is_idle_costs_no_attempt(runner):
    scorer = wild()
    assert read(await scored(runner, scorer, "asks_its_own_processes", "alarm")) == [1.0, 1.0]
    until(lambda: not any(each.status() != psutil.STATUS_ZOMBIE for each in workers()))
    assert read(await scored(runner, scorer, "1", "0.5")) == [1.0, 0.5]


async def test_the_end_of_a_runner_ends_hanging_calls_at_once(runner):
    scorer = wild()
    hanging = [asyncio.create_task(scored(runner, scorer, "regex", "1")) for _ in range(6)]
    await asyncio.to_thread(until, workers)
    await asyncio.sleep(0.5)
    began = time.monotonic()
    runner.close()
    runner.close()
    assert time.monotonic() - began < 2.0
    assert workers() == []
    for task in hanging:
        assert read(await task) == ["scoring has ended"] * 2
    with pytest.raises(RuntimeError, match="this runner is closed"):
        await scored(runner, scorer, "1")


async def test_a_runner_may_be_closed_while_a_worker_loads(tmp_path, runner):
    (tmp_path / "mine.py").write_text(
        f"import os, time\nif os.getpid() != {os.getpid()}:\n    time.sleep(600)\ndef score(output):\n    return 1.0\n"
    )
    loading = asyncio.create_task(scored(runner, built(f"{tmp_path / 'mine.py'}:score"), "a"))
    await asyncio.to_thread(until, workers)
    runner.close()
    assert read(await loading) == ["scoring has ended"]


async def test_a_caller_that_leaves_ends_at_once_and_no_further_call_begins(runner):
    scorer = wild("other")
    await scored(runner, scorer, "1")
    calls = [asyncio.create_task(scored(runner, scorer, *["ignore_clock"] * 9, limit=1.0)) for _ in range(4)]
    await asyncio.sleep(0.3)
    for each in calls:
        each.cancel()
    assert {type(each) for each in await asyncio.gather(*calls, return_exceptions=True)} == {asyncio.CancelledError}
    began = time.monotonic()
    assert read(await scored(runner, scorer, "1")) == [1.0]
    assert time.monotonic() - began < 20.0  # of 36 s that the calls would take


def test_threads_and_event_loops_share_the_workers_of_a_scorer(runner):
    scorer = wild()

    def ask(number: int) -> list[float | str]:
        return read(asyncio.run(scored(runner, scorer, *map(str, range(number)))))

    with ThreadPoolExecutor(8) as threads:
        assert [*threads.map(ask, range(40))] == [[float(each) for each in range(number)] for number in range(40)]
    cores = len(os.sched_getaffinity(0))
    assert min(2, cores) <= len(workers()) <= cores


OWNER = """
import asyncio, psutil, sys, threading
from tests.support.rewards.scoring import built, group
from tfgrpo.rewarders.runner import ScoreRunner

async def main():
    runner = ScoreRunner()
    wild = built("tests.support.rewards.wild:score")
    await runner.score(wild, [group("starts_children")])
    hanging = asyncio.create_task(runner.score(wild, [group("ignore_clock")], 600.0))
    await asyncio.sleep(0.5)
    print(*(each.pid for each in psutil.Process().children(recursive=True)), flush=True)
    await hanging

asyncio.run(main())
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_workers_and_their_children_end_with_their_owner_whatever_they_do(sent):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", OWNER], text=True, **pipes) as owner:
        found = [psutil.Process(int(pid)) for pid in owner.stdout.readline().split()]
        assert len(found) == 2
        owner.send_signal(sent)
    until(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in found))


def in_process(program: str, folder: Path, *, shell: str = "", **env: str) -> str:
    """Run a program, which writes to ``out``, in a folder."""
    (folder / "program.py").write_text(textwrap.dedent(program))
    line = f"{shell} exec {sys.executable} -P program.py"
    root = str(Path(__file__).resolve().parents[2])
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, [env.pop("PYTHONPATH", "")]), root]), **env}
    done = subprocess.run(["sh", "-c", line], cwd=folder, env=variables, check=False, timeout=120, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return (folder / "out").read_text()


SCORES = """
    import asyncio, logging
    from tests.support.rewards.scoring import scores
    logging.basicConfig(filename="log")
    found = scores("mine.py:score", "1", "2")
    open("out", "w").write(repr(found) + open("log").read())
"""
MINE = "from my_words import WORTH\ndef score(output):\n    return WORTH * float(output)\n"


def test_an_owner_without_standard_streams_has_workers_too_and_no_file_of_the_user_takes_the_place_of_a_module(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "my_words.py").write_text("WORTH = 2\n")
    for name in ("statistics", "socket", "json", "struct", "selectors", "pydantic", "rewarders", "stores"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong one')\n")
    first = "    import sys\n    sys.path += ['', 'no/such/folder']\n    import statistics, selectors, struct, pydantic\n"
    assert in_process(first + SCORES, tmp_path, shell="exec 0<&- 1>&- 2>&-;") == "[2.0, 4.0]"


def test_modules_are_found_where_the_owner_finds_them(tmp_path):
    odd = tmp_path / "a folder: with signs"
    odd.mkdir()
    (odd / "my_words.py").write_text("WORTH = 3\n")
    (tmp_path / "mine.py").write_text(MINE)
    program = f"    import sys\n    sys.path.insert(0, {str(odd)!r})\n"
    assert in_process(program + SCORES, tmp_path, PYTHONPATH=f"/no/such/folder{os.pathsep}{os.pathsep}") == "[3.0, 6.0]"


async def test_a_module_that_loads_slowly_costs_no_attempt(tmp_path, runner):
    (tmp_path / "mine.py").write_text("import time\ntime.sleep(0.8)\ndef score(output):\n    return 1.0\n")
    assert read(await scored(runner, built(f"{tmp_path / 'mine.py'}:score"), "a", limit=0.7)) == [1.0]


async def test_outputs_of_any_length_and_any_characters_and_thousands_of_them_pass(runner):
    scorer = wild("echo")
    outputs = ["\ud800\x00\u2028 \udfff", "x" * 10_000_000, *map(str, range(5000))]
    found = await scored(runner, scorer, *outputs)
    assert [each.details["output"] for each in found] == outputs


THREAD = "runs in a thread, where a call that never ends cannot be stopped"


async def asked_twice(runner, scorer, caplog, *outputs, **more) -> list[str]:
    """Ask twice for two attempts; the warnings."""
    caplog.clear()
    for _ in range(2):
        assert numbers(await scored(runner, scorer, *(outputs or ("1", "0.5")), **more)) == [1.0, 0.5]
    return [each.getMessage() for each in caplog.records]


async def test_what_only_this_process_has_runs_in_a_thread_with_one_warning(runner, caplog):
    scale = 1.0
    with handed_over() as name_of:
        scorer = built(name_of(lambda output: scale * float(output)), rewarder_id="mine")
        (warning,) = await asked_twice(runner, scorer, caplog)
    assert warning == f"mine {THREAD}: only this process has it, as a function of a script or notebook"
    assert workers() == []


class Slow:
    per_item = True

    def __init__(self) -> None:
        self.asked: list[int] = []

    def grade_batch(self, inputs):
        self.asked.append(len(inputs))
        time.sleep(1.0)


async def test_a_late_batch_in_a_thread_is_not_asked_about_one_by_one(runner):
    slow = Slow()
    with handed_over() as name_of:
        scorer = built(name_of(slow), rewarder_id="slow")
    assert read(await scored(runner, scorer, "1", "2", "3", limit=0.2)) == ["late: no score within 0.2 s"] * 3
    assert slow.asked == [3]


async def test_isolation_can_be_declined(runner, caplog):
    assert await asked_twice(runner, unisolated(wild()), caplog) == []
    parts = [{"name": "tests.support.rewards.wild:score"}, {"name": "gt"}]
    whole = unisolated(build_scorer("composite", {"parts": parts}))
    assert [part.scorer.place for part in whole.parts] == ["thread", "inline"]
    assert workers() == []


async def test_a_scorer_that_loads_only_here_runs_in_a_thread(tmp_path, runner, caplog):
    (tmp_path / "mine.py").write_text(
        f"import os\nif os.getpid() != {os.getpid()}:\n    raise SystemExit('not here')\n"
        "def score(output):\n    return float(output)\n"
    )
    scorer = built(f"{tmp_path / 'mine.py'}:score", rewarder_id="mine")
    (warning,) = await asked_twice(runner, scorer, caplog)
    assert warning.startswith(f"mine {THREAD}: its process cannot make it: ")
    assert "not here" in warning


@pytest.mark.parametrize("form", ["score", "Batch"])
async def test_attempts_that_cannot_be_sent_to_a_process_are_scored_in_a_thread(runner, caplog, monkeypatch, form):
    module = types.ModuleType("only_here")
    monkeypatch.setitem(sys.modules, "only_here", module)
    exec("class Value: pass", module.__dict__)
    for value in (threading.Lock(), module.Value()):
        scorer = wild(form)
        warnings = await asked_twice(runner, scorer, caplog, metadata={"value": value})
        assert warnings == [f"{form} {THREAD}: what it is asked about cannot be sent to another process"]
    assert read(await scored(runner, scorer, "1", "exit")) in (  # the others stay isolated
        [1.0, ACTS["exit"]],
        [ACTS["exit"]] * 2,
    )


async def test_a_scorer_that_cannot_be_loaded_again_is_not_run_in_a_thread_instead(tmp_path, runner, caplog):
    file = tmp_path / "mine.py"
    file.write_text("import os\ndef score(output):\n    return float(output) if output != 'exit' else os._exit(0)\n")
    scorer = built(f"{file}:score", rewarder_id="mine")
    assert read(await scored(runner, scorer, "1")) == [1.0]
    file.write_text("raise ValueError('no more')\n")
    first, second = read(await scored(runner, scorer, "exit", "exit"))
    assert first == ACTS["exit"]
    assert second.startswith("broke: its process cannot make it: PipelineError")
    assert second.endswith("though it did before")
    assert caplog.records == []
