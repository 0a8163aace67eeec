"""Every run has a page: stopped, replayed, of an older version, with files missing or damaged, and however long."""

from __future__ import annotations

import html
import json
import re
import shutil
import tracemalloc

import pytest

from tests.support.records.line_files import seal
from tests.support.runs import running as kit
from tests.support.runs.report_pages import edit, edit_rows, page_of
from tfgrpo.flows.report.night import Night
from tfgrpo.flows.report.page import write_report
from tfgrpo.stores.errors import CorruptFile


def test_a_replay_has_a_page_without_costs(own_run):
    summary = kit.run(own_run.out, replay="small")
    assert summary.status == "finished", summary.message
    task = own_run.task.replay("small-1")
    replay = type("Replay", (), {"task": task, "paths": task.run("small")})
    assert "In force: +" in page_of(replay).text
    assert "tfgrpo show small ITEM --task-id small-1 --out" in page_of(replay).text
    assert "cost by role" not in page_of(replay).text


@pytest.mark.parametrize("key", ["schema_version", "tfgrpo", "decision", "ledger", "forecast", "stages", "pack", "settings"])
def test_no_key_but_the_version_is_needed(own_run, key):
    edit(own_run.paths.manifest, lambda value: value.pop(key) and None)
    if key == "schema_version":
        with pytest.raises(CorruptFile):
            write_report(Night.of(own_run.task, own_run.paths))
    else:
        page_of(own_run)


@pytest.mark.parametrize("name", ["groups", "rollouts", "metrics", "items"])
@pytest.mark.parametrize("damage", ["{torn\n", '{"some": "object"}\n'])
def test_a_damaged_file_is_named(own_run, name, damage):
    path = getattr(own_run.paths, name)
    with path.open("a") as file:
        file.write(damage)
    with pytest.raises(CorruptFile, match=re.escape(str(path))):
        write_report(Night.of(own_run.task, own_run.paths))


@pytest.mark.parametrize("name", ["rollouts", "items"])
def test_a_damaged_file_of_an_earlier_run_is_named_and_the_page_is_written(own_run, name):
    earlier = own_run.task.run("earlier")
    shutil.copytree(own_run.paths.root, earlier.root)
    edit_rows(own_run.task.experiences, lambda row: row.update(run_id="earlier"))
    for path in (own_run.paths.rollouts, own_run.paths.items):
        path.write_text("")
    path = getattr(earlier, name)
    assert "better</b>" in write_report(Night.of(own_run.task, own_run.paths)).read_text()
    path.write_bytes(path.read_bytes() + b"{torn\n")
    page = write_report(Night.of(own_run.task, own_run.paths)).read_text()
    assert html.unescape(page).count(str(path)) == 1
    assert ("better</b>" in page) is (name == "items")


@pytest.mark.untraced
def test_memory_does_not_grow_with_the_number_of_rollouts(own_run):
    row = kit.lines(own_run.paths.rollouts)[0]
    with own_run.paths.rollouts.open("a") as file:
        for number_of in range(3000):
            more = {**row, "rollout_id": f"more/{number_of}", "output": "y" * 8000}
            file.write(json.dumps(more) + "\n")
    seal(own_run.paths.rollouts)
    assert own_run.paths.rollouts.stat().st_size > 24_000_000
    tracemalloc.start()
    try:
        write_report(Night.of(own_run.task, own_run.paths))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12_000_000
