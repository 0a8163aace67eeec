"""Every benchmark can be run, and what they compute from a journal is right; nothing here is timed."""

from __future__ import annotations

import importlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks import __main__ as all_of_them
from benchmarks.ideal import batches_of, ideal_seconds, journal_keys, rounds
from benchmarks.parts.store import batch, open_store
from benchmarks.parts.summaries import outputs
from benchmarks.processes import Measured, clean_environment, datasets
from benchmarks.runs.memory import rollouts
from benchmarks.runs.month import nights
from benchmarks.runs.run import figures
from benchmarks.table import Row, known, missed, table

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
    assert callable(module.main)
    assert module.__doc__


def test_all_bars_of_the_main_job_have_a_benchmark():
    assert set(NAMES) >= {"run", "memory", "dry_run", "summaries", "rewarders", "store", "telemetry"}


def test_an_unknown_benchmark_is_named_with_those_there_are(monkeypatch):
    monkeypatch.setattr("sys.argv", ["benchmarks", "speed"])
    with pytest.raises(SystemExit, match=r"no benchmark speed; there are advantages, .*dry_run, .*http"):
        all_of_them.main()


@pytest.fixture
def in_this_process(monkeypatch):
    """Run benchmarks here, where they can be replaced."""
    monkeypatch.setattr(all_of_them, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))


@pytest.mark.usefixtures("in_this_process")
def test_the_table_says_of_every_bar_whether_it_held(monkeypatch, capsys):
    module = importlib.import_module("benchmarks.parts.store")
    monkeypatch.setattr(
        module, "measure", lambda: [Row("a", 1.0, "s", 2.0), Row("b", 3.0, "s", 2.0), Row("c", 3.0, "s")]
    )
    monkeypatch.setattr("sys.argv", ["benchmarks", "store"])
    assert all_of_them.main() == 1
    printed = capsys.readouterr().out
    assert [line.split("|")[3].strip() for line in printed.splitlines() if line[:1] in "abc" and "|" in line] == [
        "yes",
        "NO",
        "–",
    ]
    assert "1 bar(s) missed" in printed


@pytest.mark.usefixtures("in_this_process")
def test_without_a_missed_bar_all_is_well(monkeypatch, capsys):
    module = importlib.import_module("benchmarks.parts.store")
    monkeypatch.setattr(module, "measure", lambda: [Row("a", 2.0, "s", 2.0), Row("c", 3.0, "s")])
    monkeypatch.setattr("sys.argv", ["benchmarks", "store"])
    assert all_of_them.main() == 0
    assert "every bar held" in capsys.readouterr().out


def test_a_benchmark_runs_in_a_process_of_its_own_so_that_no_other_starts_with_its_memory(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "benchmarks.parts.summaries", raising=False)
    assert list(all_of_them._measured("summaries"))
    assert "benchmarks.parts.summaries" not in sys.modules
    assert "summary of 10 MB of output" in capsys.readouterr().err


def test_a_bar_holds_when_it_is_met_exactly():
    assert Row("a", 2.0, "s", 2.0).held is True
    assert [row.name for row in missed([Row("a", 2.0, "s", 2.0), Row("b", 2.1, "s", 2.0), Row("c", 9.0, "s")])] == ["b"]


def test_a_row_of_the_table_carries_its_note():
    heading, line = table([Row("wall", 1.2345, "x", 1.25, "on one core")]).splitlines()
    assert [cell.strip() for cell in heading.split("|")] == ["name", "median", "bar", "held?"]
    assert [cell.strip() for cell in line.split("|")] == ["wall", "1.23 x", "<= 1.25 x", "yes", "on one core"]


# --- the ideal


def test_without_calls_the_ideal_takes_no_time():
    assert ideal_seconds([], 64, 0.2) == 0.0


@pytest.mark.parametrize(
    ("calls", "concurrency", "least"), [(1, 64, 1), (64, 64, 1), (65, 64, 2), (250, 64, 4), (5, 1, 5)]
)
def test_independent_calls_fill_every_place_of_every_round(calls, concurrency, least):
    (only,) = batches_of(groups(calls, 1))
    assert rounds(only, concurrency) == least


def test_turns_of_a_rollout_follow_one_another():
    keys = [train("q0", 0, turn=turn) for turn in range(3)] + [train("q1", 0)]
    assert ideal_seconds(keys, 64, 0.2) == pytest.approx(0.6)


def test_reflection_waits_for_the_whole_group_and_curation_for_the_whole_batch():
    keys = [*groups(3, 5), train("q0", 0, role="reflect"), curation()]
    assert ideal_seconds(keys, 64, 1.0) == 3.0


def test_a_shortened_lesson_belongs_to_its_reflection_or_to_the_curation_it_was_asked_in():
    asked = [train("q0", 0), train("q0", 0, role="reflect"), train("q0", 0, turn=1, role="shorten")]
    assert ideal_seconds(asked, 64, 1.0) == 3.0
    assert ideal_seconds([train("q0", 0), curation(), curation(turn=1, role="shorten")], 64, 1.0) == 3.0


def test_reflections_of_early_groups_run_beside_the_rollouts_of_late_ones():
    keys = [*groups(4, 2), *(train(f"q{item}", 0, role="reflect") for item in range(3))]
    assert ideal_seconds(keys, 4, 1.0) == 3.0  # 8 rollouts and 3 reflections: 11 calls, 4 at a time


def test_the_longest_chain_goes_first_whatever_order_the_journal_has():
    chain = [train("q9", 0, turn=turn) for turn in range(4)]
    assert ideal_seconds([*groups(4, 1), *chain], 2, 1.0) == 4.0
    assert ideal_seconds([*chain, *groups(4, 1)], 2, 1.0) == 4.0


def test_batches_and_epochs_follow_one_another():
    keys = [*groups(1, 2, batch=0), *groups(1, 2, batch=1), train("q0", 0, epoch=2)]
    assert ideal_seconds(keys, 64, 1.0) == 3.0


def test_both_arms_of_a_sweep_run_at_once():
    keys = [f"3/{arm}/0/q{item}/0/0/rollout/0#00" for arm in ("library", "none") for item in range(4)]
    assert ideal_seconds(keys, 8, 1.0) == 1.0
    assert len(batches_of(keys)) == 1


def test_a_learning_group_is_one_whichever_lessons_its_attempts_have():
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


def test_sizes_of_the_memory_benchmark_are_those_it_names():
    assert (rollouts(100), rollouts(1000)) == (1_500, 15_000)


def test_datasets_are_written_without_an_item_in_both(tmp_path):
    options = datasets(tmp_path, 6, 3)
    assert options[::2] == ("--dataset", "--eval-dataset")
    files = [Path(path).read_text(encoding="utf-8").splitlines() for path in options[1::2]]
    learn, held_out = ([json.loads(line)["id"] for line in lines] for lines in files)
    assert (len(learn), len(held_out)) == (6, 3)
    assert not set(learn) & set(held_out)


def test_nothing_of_the_callers_environment_reaches_a_measured_run(monkeypatch, tmp_path):
    monkeypatch.setenv("TFGRPO_EPOCHS", "9")
    monkeypatch.setenv("PREFECT_API_URL", "http://elsewhere.invalid/api")
    environment = clean_environment(tmp_path, OPENAI_API_KEY="unused")
    assert "TFGRPO_EPOCHS" not in environment
    assert "PREFECT_API_URL" not in environment
    assert (environment["PREFECT_HOME"], environment["OPENAI_API_KEY"]) == (str(tmp_path), "unused")


def test_the_records_of_the_store_benchmark_are_taken(tmp_path):
    store = open_store(tmp_path)
    assert store.record_batch(batch("one", 3), tmp_path / "manifest.json") == 3


def test_every_shape_of_output_has_the_size_it_claims():
    assert {len(text.encode()) // 999_000 for text in outputs(1).values()} == {1}


# --- nights in fast forward, which are counted and not timed


def whole_record(folder, count, events):
    found = nights(folder, count, events)
    assert found.unlisted == []
    assert (found.paid_twice, found.unbooked, found.untold) == (0, 0, {})
    assert found.calls > 40 * count


def test_after_a_kill_and_a_dead_endpoint_every_night_is_on_record_and_every_end_is_told_once(tmp_path):
    whole_record(tmp_path, 3, {1: "killed", 3: "dead"})


@pytest.mark.slow
def test_ten_nights_with_everything_that_happens_in_a_month_are_on_record_and_told_once(tmp_path):
    happens = ("killed", "", "cancelled", "dataset", "retried", "dead", "killed", "restart", "")
    whole_record(tmp_path, len(happens), dict(enumerate(happens, start=1)))
