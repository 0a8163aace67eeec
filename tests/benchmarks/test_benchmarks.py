"""Every benchmark can be run, and what they compute from a journal is right; nothing here is timed."""

import importlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks import __main__ as all_of_them
from benchmarks.generated_items import generate_items
from benchmarks.ideal import batches_of, ideal_seconds, journal_keys, rounds
from benchmarks.peers.__main__ import _success
from benchmarks.peers.service import Attempt, Service, lesson_of, reflection_question
from benchmarks.processes import Measured, clean_environment
from benchmarks.runs.month import nights
from benchmarks.runs.run import figures
from benchmarks.table import Row, known
from tests.support.runs.running import Server
from tfgrpo.prompt_packs.stamps import load_prompt_pack, merge_experiences

NAMES = list(known())


def train(item: str, rollout: int, *, batch: int = 0, turn: int = 0, role: str = "rollout", epoch: int = 1) -> str:
    return f"{epoch}/group/{batch}/{item}/{rollout}/{turn}/{role}/0#0123456789abcdef"


def curation(*, batch: int = 0, turn: int = 0, role: str = "curate") -> str:
    return train("batch", 0, batch=batch, turn=turn, role=role)


def groups(count: int, size: int, *, batch: int = 0) -> list[str]:
    return [train(f"q{item}", index, batch=batch) for item in range(count) for index in range(size)]


# --- the benchmarks themselves


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_can_be_measured_and_printed(name):
    module = importlib.import_module(known()[name])
    assert callable(module.measure)
    assert module.__doc__


def test_the_table_says_of_every_bar_whether_it_held(monkeypatch, capsys):
    monkeypatch.setattr(all_of_them, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))  # where it is replaced
    module = importlib.import_module("benchmarks.parts.store")
    monkeypatch.setattr(module, "measure", lambda: [Row("a", 1.0, "s", 2.0), Row("b", 3.0, "s", 2.0), Row("c", 3.0, "s")])
    monkeypatch.setattr("sys.argv", ["benchmarks", "store"])
    assert all_of_them.main() == 1
    printed = capsys.readouterr().out
    assert [line.split("|")[3].strip() for line in printed.splitlines() if line[:1] in "abc" and "|" in line] == [
        "yes",
        "NO",
        "–",
    ]
    assert "1 bar(s) missed" in printed


def test_a_benchmark_runs_in_a_process_of_its_own_so_that_no_other_starts_with_its_memory(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "benchmarks.parts.summaries", raising=False)
    assert list(all_of_them._measured("summaries"))
    assert "benchmarks.parts.summaries" not in sys.modules
    assert "summary of 10 MB of output" in capsys.readouterr().err


# --- the ideal


@pytest.mark.parametrize(("calls", "concurrency", "least"), [(1, 64, 1), (64, 64, 1), (65, 64, 2), (250, 64, 4), (5, 1, 5)])
def test_independent_calls_fill_every_place_of_every_round(calls, concurrency, least):
    (only,) = batches_of(groups(calls, 1))
    assert rounds(only, concurrency) == least


CHAIN = [train("q9", 0, turn=turn) for turn in range(4)]
REFLECTED = [train("q0", 0), train("q0", 0, role="reflect")]


@pytest.mark.parametrize(
    ("keys", "concurrency", "seconds"),
    [
        pytest.param([], 64, 0.0, id="no calls"),
        pytest.param([*CHAIN, train("q1", 0)], 64, 4.0, id="turns follow one another"),
        pytest.param([*groups(3, 5), REFLECTED[1], curation()], 64, 3.0, id="curation after reflection after the group"),
        pytest.param([*REFLECTED, train("q0", 0, turn=1, role="shorten")], 64, 3.0, id="shortened in its reflection"),
        pytest.param([train("q0", 0), curation(), curation(turn=1, role="shorten")], 64, 3.0, id="in its curation"),
        pytest.param(
            [*groups(4, 2), *(train(f"q{item}", 0, role="reflect") for item in range(3))], 4, 3.0, id="11 calls, 4 at a time"
        ),
        pytest.param([*groups(4, 1), *CHAIN], 2, 4.0, id="the longest chain goes first"),
        pytest.param([*CHAIN, *groups(4, 1)], 2, 4.0, id="in any order"),
        pytest.param(
            [*groups(1, 2, batch=0), *groups(1, 2, batch=1), train("q0", 0, epoch=2)], 64, 3.0, id="batches and epochs"
        ),
    ],
)
def test_the_ideal_is_the_time_of_the_calls_that_wait_for_each_other(keys, concurrency, seconds):
    assert ideal_seconds(keys, concurrency, 1.0) == seconds


def test_both_arms_of_a_sweep_run_at_once_and_a_learning_group_is_one_whichever_lessons_its_attempts_have():
    keys = [f"3/{arm}/0/q{item}/0/0/rollout/0#00" for arm in ("library", "none") for item in range(4)]
    assert ideal_seconds(keys, 8, 1.0) == 1.0
    assert len(batches_of(keys)) == 1
    halves = [f"1/{arm}/0/q0/{index}/0/rollout/0#00" for arm in ("one", "other") for index in range(2)]
    keys = [*halves, train("q0", 0, role="reflect"), curation()]
    (batch,) = batches_of(keys)
    assert [(len(group.rollouts), group.reflection) for group in batch.groups.values()] == [(4, 1)]
    assert ideal_seconds(keys, 64, 1.0) == 3.0


def test_only_model_calls_that_were_answered_count(tmp_path):
    lines = [
        {"key": train("q0", 0), "kind": "reply", "payload": {"content": "7", "latency_s": 0.2}},
        {"key": train("q1", 0), "kind": "failure", "payload": {"error_type": "ModelTimeout", "reason": "late"}},
        {"key": train("q2", 0, role="tool"), "kind": "reply", "payload": {"result": "7"}},
    ]
    path = tmp_path / "journal.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    assert list(journal_keys(path)) == [train("q0", 0)]


# --- what they read and write


def test_a_run_is_read_off_its_manifest_and_its_journal(tmp_path):
    lines = [{"key": key, "kind": "reply", "payload": {"latency_s": 0.2}} for key in groups(2, 5)]
    (tmp_path / "journal.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    timing = {"wall_s": 0.5, "cpu_s": 0.02, "peak_memory_bytes": 1, "calls": 10}
    measured = Measured(wall_s=9.0, cpu_s=0.05, peak_mb=80.0, run=tmp_path, manifest={"timing": timing})
    read = figures(measured, concurrency=5, latency_s=0.2)
    assert (read.calls, read.peak_mb, read.wall_s) == (10, 80.0, 0.5)
    assert read.cpu_ms == pytest.approx(2.0)
    assert read.process_cpu_ms == pytest.approx(5.0)
    assert read.over_ideal == pytest.approx(1.25)


def test_nothing_of_the_callers_environment_reaches_a_measured_run(monkeypatch, tmp_path):
    monkeypatch.setenv("TFGRPO_EPOCHS", "9")
    monkeypatch.setenv("PREFECT_API_URL", "http://elsewhere.invalid/api")
    environment = clean_environment(tmp_path, OPENAI_API_KEY="unused")
    assert "TFGRPO_EPOCHS" not in environment
    assert "PREFECT_API_URL" not in environment
    assert (environment["PREFECT_HOME"], environment["OPENAI_API_KEY"]) == (str(tmp_path), "unused")


# --- nights in fast forward, which are counted and not timed


@pytest.mark.slow
def test_after_a_kill_and_a_dead_endpoint_every_night_is_on_record_and_every_end_is_told_once(tmp_path):
    found = nights(tmp_path, 3, {1: "killed", 3: "dead"})
    assert found.unlisted == []
    assert (found.paid_twice, found.unbooked, found.untold) == (0, 0, {})
    assert found.calls > 40 * 3


SYSTEM = merge_experiences(load_prompt_pack("arithmetic")).text


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running


@pytest.fixture
def service(server):
    with Service(server.url) as of_server:
        yield of_server


def test_attempts_are_rewarded_and_every_call_is_counted(server, service):
    items = generate_items("arithmetic", 30, seed=3)
    before = len(server.bodies)
    attempts = [service.attempt(SYSTEM, item) for item in items]
    assert service.calls == len(server.bodies) - before == 30
    assert {attempt.reward for attempt in attempts} == {0.0, 1.0}
    assert service.reward(items[0], f"Answer: {items[0]['answer']}") == 1.0
    assert service.reward({"prompt": "no item of the world"}, "Answer: 1") == 0.0


def test_a_reflection_on_a_contrast_is_a_line_of_a_prompt_that_helps(server, service):
    items = generate_items("arithmetic", 60, seed=4)
    lessons = set()
    for item in items:
        tried = [service.attempt(SYSTEM, item) for _ in range(4)]
        best, worst = max(tried, key=lambda one: one.reward), min(tried, key=lambda one: one.reward)
        if best.reward > worst.reward:
            lessons.add(service.reflect([best, worst]))
    lessons.discard("")
    assert all(lesson.startswith(("- Do: ", "- Avoid: ")) for lesson in lessons)
    gain = _success(server.url, "\n".join([SYSTEM, *sorted(lessons)]), items) - _success(server.url, SYSTEM, items)
    assert gain > 10.0


def test_a_reflection_is_asked_as_the_packs_ask_it():
    item = {"prompt": "How many?"}
    question = json.loads(reflection_question([Attempt(item, "Answer: 3", 1.0), Attempt(item, "Answer: 4", 0.0)]))
    assert question["task"] == "How many?"
    assert [(one["label"], one["reward"]) for one in question["attempts"]] == [("A", 1.0), ("B", 0.0)]
    assert lesson_of('{"lessons": [{"polarity": "avoid", "text": "Guessing."}]}') == "- Avoid: Guessing."
    assert lesson_of('{"lessons": []}') == ""
