"""What a run writes while it is open, and what it does when curation cannot decide."""

import json
import shutil
import zlib
from dataclasses import replace
from functools import partial

import pytest

from tests.support.runs.running import (
    LEARNING,
    PACKS,
    RUN,
    SMALL,
    TASK,
    At,
    Server,
    lines,
    manifest,
    on_server,
    paths,
    run,
    store,
)
from tfgrpo.flows.run import lessons
from tfgrpo.flows.run.loop import learn
from tfgrpo.flows.run.loop.books import Books
from tfgrpo.prompt_packs.stamps import MergedPrompt, merge_each, stamp_pack
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.outcomes import Failed
from tfgrpo.tasks.learning.ask import Spend
from tfgrpo.tasks.learning.curate import curate_batch


def curated(monkeypatch, **changes):
    """Let curation come to something else than it does."""

    async def changed(batch, runtime):
        return replace(await curate_batch(batch, runtime), **changes)

    monkeypatch.setattr(learn, "curate_batch", changed)


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"records": (), "spend": Spend(fatal="ModelAuthRefused: 401")}, 1, "ModelAuthRefused: 401"),
        ({"records": (), "spend": Spend(budget_refused="max_calls: 9 of 9")}, 3, "max_calls: 9 of 9"),
    ],
)
def test_a_failed_curation_ends_the_run_before_any_record_is_stored(tmp_path, monkeypatch, changes, code, said):
    curated(monkeypatch, **changes)
    summary = run(tmp_path, run_id=RUN, **SMALL)
    assert summary.exit_code == code
    assert said in summary.message
    assert store(tmp_path) == []
    monkeypatch.undo()
    assert run(tmp_path, resume=RUN).exit_code == 0
    assert store(tmp_path)


def test_a_lost_curation_is_a_warning_and_its_broken_call_is_final(tmp_path, monkeypatch):
    broken = Failed("RepairExhausted", "no usable answer", "1/train/0/-/0/0/curate/0#0123456789abcdef")
    curated(monkeypatch, lost=1, spend=Spend(failure=broken, broken=[broken]))
    assert run(tmp_path, run_id=RUN, **LEARNING).exit_code == 0
    said = [text for text in manifest(tmp_path)["warnings"] if text.startswith("epoch 1, batch 1: 1 of ")]
    assert "questions about the batch brought no usable answer (no usable answer)" in said[0]
    kept = [row for row in lines(paths(tmp_path).journal) if row["kind"] == "failure"]
    assert [row["key"] for row in kept] == [broken.call_key], "once, however often it is met again"


def without_the_first(pack, prompts):
    for merged, experiences in zip(merge_each(pack, [each[1:] for each in prompts]), prompts, strict=True):
        skipped = tuple((record.experience_id, "stamp of another pack version") for record in experiences[:1])
        yield MergedPrompt(merged.text, merged.experience_ids, merged.skipped + skipped)


def test_lessons_kept_out_by_their_stamp_are_counted_as_violations_and_in_no_row(tmp_path, monkeypatch, otlp_receiver):
    for name, value in otlp_receiver.environment().items():
        monkeypatch.setenv(name, value)
    holds = ExperienceStore.verify_stamp
    monkeypatch.setattr(lessons, "merge_each", without_the_first)
    # The second epoch writes under a stamp that is not in force.
    monkeypatch.setattr(ExperienceStore, "verify_stamp", lambda self, it: it.epoch == 1 and holds(self, it))
    assert run(tmp_path, run_id=RUN, **LEARNING).exit_code == 0
    said = manifest(tmp_path)["warnings"]
    counted = {point.attributes["tfgrpo.rule"]: point.value for point in otlp_receiver.points("tfgrpo.guardrail.violations")}
    unsigned = [int(text.split(": ")[1].split()[0]) for text in said if "not stamped for the pack in force" in text]
    assert counted["stamp"] == sum(unsigned) > 0
    not_injected = [text for text in said if "was not injected: stamp of another pack version" in text]
    assert counted["injection"] >= len(not_injected) > 0
    rows = lines(TaskPaths.of(tmp_path, TASK).credit)
    (swept,) = {tuple(row["one"]) for row in rows if row.get("source") == "sweep"}
    assert list(swept) in [row["experience_ids"] for row in lines(paths(tmp_path).prompts)]
    words = [row for row in rows if row["kind"] == "word"]
    assert {row["experience_id"] for row in words} <= {row["experience_id"] for row in store(tmp_path)}, "of no other"


def breaks(server, number):
    return 500 if zlib.crc32(server.bodies[number - 1].encode()) % 9 == 0 else None


@pytest.mark.untraced
def test_failures_are_final_before_their_rollouts_are_on_record_and_a_resumed_run_does_not_try_them_again(
    tmp_path, monkeypatch
):
    real, early = Books.groups, []

    def recorded(files, results):
        final = {row["key"] for row in lines(paths(tmp_path).journal) if row["kind"] == "failure"}
        broken = [it.outcome.call_key for result in results for it in result.rollouts if it.outcome.name == "failed"]
        early.extend(key not in final for key in broken)
        real(files, results)

    monkeypatch.setattr(Books, "groups", recorded)
    with Server() as server:
        # One call in nine breaks, the same in whatever order they arrive, and would not break again.
        server.before_answer = partial(breaks, server)
        summary = run(tmp_path, run_id=RUN, **on_server(server, model__max_retries=0))
        assert summary.exit_code == 0, summary.message
        assert summary.details["lost"]["rollouts"] == len(early) > 0
        assert not any(early)
        sent = len(server.bodies)
        server.before_answer = lambda _: None
        again = run(tmp_path, resume=RUN)
        assert again.exit_code == 0
        assert len(server.bodies) == sent
    assert again.details["lost"] == summary.details["lost"]
    failures = [row for row in lines(paths(tmp_path).journal) if row["kind"] == "failure"]
    assert len(failures) == sent - sum(row["kind"] == "reply" for row in lines(paths(tmp_path).journal))
    # A replay of the same journal meets the same failures.
    assert run(tmp_path, replay=RUN).exit_code == 0


def test_prompts_hold_at_most_as_many_lessons_as_the_pack_has_slots(tmp_path):
    pack = tmp_path / "packs" / "arithmetic"
    shutil.copytree(PACKS / "arithmetic", pack)
    described = json.loads((pack / "manifest.json").read_text())
    (pack / "manifest.json").write_text(json.dumps({**described, "experience_slots": 3}))
    stamp_pack(pack, utc_now)
    summary = run(tmp_path, run_id=RUN, packs_root=str(pack.parent), **LEARNING)
    assert summary.exit_code == 0, summary.message
    held = [len(row["experience_ids"]) for row in lines(paths(tmp_path).prompts)]
    assert max(held) == 3
    block = manifest(tmp_path)["tfgrpo"]
    assert len(block["on_trial"]) == 3 < len(block["lessons"]), "the lessons never outgrew the pack"


def test_a_curation_gets_the_rejections_of_the_ones_before_and_the_manifest_has_each_epoch(tmp_path, monkeypatch):
    told, drawn, ended = [], [], []

    async def refuses(batch, runtime):
        told.append(batch.rejected_before)
        memory = {**batch.rejected_before, f"idea {len(told)}": len(told)}
        return replace(await curate_batch(batch, runtime), memory=memory)

    monkeypatch.setattr(learn, "curate_batch", refuses)
    looking = At("epoch_started", lambda _: drawn.append(list(manifest(tmp_path)["cohorts"])))
    looking.epoch_ended = lambda _: ended.append([row["epoch"] for row in manifest(tmp_path)["tfgrpo"]["epochs"]])
    assert run(tmp_path, run_id=RUN, observer=looking, **SMALL).exit_code == 0
    assert (drawn, ended) == ([["1"], ["1", "2"]], [[1], [1, 2]])
    assert len(told) > 1
    assert told == [{f"idea {number}": number for number in range(1, count)} for count in range(1, len(told) + 1)]
