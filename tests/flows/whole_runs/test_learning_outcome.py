"""Does it learn where there is something to learn, and stay put where there is not? Whole runs, without Prefect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs.running import RUN, SMALL, TASK, Server, lines, on_server, paths, run, store
from tfgrpo.stores.files.atomic import read_lines
from tfgrpo.stores.files.layout import TaskPaths


def gates(out: Path, world: str, seeds: int) -> list[dict[str, Any]]:
    """The gate of each seed's run; seeds of run and world differ together."""
    decided = []
    for seed in range(seeds):
        summary = run(
            out / str(seed), world=world, seed=seed, simulated__seed=seed, sample_size=44, batch_size=22, run_id=RUN
        )
        assert summary.exit_code == 0, summary.message
        assert summary.details["simulated"] is True
        decided.append(summary.details["gate"])
    return decided


@pytest.mark.untraced
def test_lessons_that_lift_held_out_reward_are_promoted_for_each_of_ten_seeds(tmp_path):
    decided = gates(tmp_path, "arithmetic", 10)
    assert {gate["decision"] for gate in decided} == {"promote"}, [gate["explanation"] for gate in decided]
    assert all(gate["candidate"]["estimate"] > gate["champion"]["estimate"] for gate in decided)
    clear = [gate for gate in decided if gate["difference"]["low"] > 0.0]
    assert len(clear) >= 9, "the sweep alone shows most of them"


@pytest.mark.untraced
def test_no_library_is_promoted_where_learning_is_impossible(tmp_path):
    decided = gates(tmp_path, "unlearnable", 5)  # of two hundred `python -m benchmarks promotions` says the same
    assert [gate["decision"] for gate in decided if gate["decision"] == "promote"] == []
    for seed in range(5):
        state = json.loads(TaskPaths.of(tmp_path / str(seed), TASK).state.read_text())
        assert state["champion"]["experiences"] == []


def test_prompts_of_the_second_epoch_hold_the_lessons_of_the_first_byte_for_byte(tmp_path):
    with Server() as server:
        summary = run(tmp_path, run_id=RUN, **on_server(server, sample_size=20, batch_size=20))
        assert summary.exit_code == 0, summary.message
    rollouts = [json.loads(body) for body in server.bodies]
    sent = {body["messages"][0]["content"] for body in rollouts if "response_format" not in body}
    learned = [row for row in map(json.loads, read_lines(Path(summary.details["store"]))) if row["epoch"] == 1]
    written = {row["digest"]: row for row in lines(paths(tmp_path).prompts)}
    assert {row["system"] for row in written.values()} == sent

    second = {row["prompt_digest"] for row in lines(paths(tmp_path).rollouts) if row["epoch"] == 2}
    prompt, champion = sorted((written[digest] for digest in second), key=lambda row: not row["experience_ids"])
    assert prompt["experience_ids"], "the first epoch taught nothing"
    assert not champion["experience_ids"], "the other half of each group has the champion's prompt"
    known = {row["experience_id"]: row for row in learned}
    for name in prompt["experience_ids"]:
        lesson = known[name]
        lead = "Do" if lesson["polarity"] == "do" else "Avoid"
        assert f"\n- {lead}: {lesson['summary32']}\n" in prompt["system"]
    first = {row["prompt_digest"] for row in lines(paths(tmp_path).rollouts) if row["epoch"] == 1}
    assert all("<lessons>" not in written[digest]["system"] for digest in first)


def test_the_same_seed_gives_the_same_run(tmp_path):
    stores = []
    for name in ("one", "two"):
        summary = run(tmp_path / name, run_id=RUN, seed=3, tfgrpo__concurrency=4 if name == "one" else 32, **SMALL)
        stores.append((summary.details["gate"], store(tmp_path / name)))
    assert stores[0] == stores[1]
    assert stores[0][1]
