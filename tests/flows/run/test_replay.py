"""A replay compares what it comes to with its run, and refuses a damaged journal."""

import json
import re
import shutil
from collections import Counter

import pytest

from tests.support.records.line_files import seal
from tests.support.runs.running import LEARNING, RUN, SMALL, TASK, Server, lines, manifest, on_server, paths, run
from tfgrpo.flows.report.page import read_costs
from tfgrpo.flows.run.close import compare_with_original
from tfgrpo.pipelines.settings.tree import LearningSettings
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.runs import attempt_and_role
from tfgrpo.stores.text import LONGEST_IDENTIFIER


def test_digests_of_long_attempts_are_checked_foreseen_and_replayed(tmp_path, monkeypatch):
    monkeypatch.setattr(LearningSettings, "REFLECTION_CHARS", 4_000)
    agent = "tests.support.agents.agents:rambles"
    summary = run(tmp_path, run_id=RUN, actor__kind=agent, **SMALL)
    assert summary.exit_code == 0, summary.message
    roles = Counter(attempt_and_role(row["key"])[1] for row in lines(paths(tmp_path).journal))
    assert roles["reflect"] < roles["digest"] <= 2 * roles["reflect"]
    written = manifest(tmp_path)
    assert roles.total() - roles["agent"] <= written["forecast"]["calls"]["high"]
    assert written["status"] == "finished"
    assert run(tmp_path, replay=RUN).exit_code == 0


def test_failed_attempts_of_an_own_agent_are_replayed_and_resumed_with_what_they_used(tmp_path):
    run(tmp_path, run_id=RUN, actor__kind="tests.support.agents.agents:asks_and_often_fails", **SMALL)
    failed = [row for row in lines(paths(tmp_path).rollouts) if row["outcome"]["name"] == "failed"]
    assert failed
    assert all(row["calls"] == 1 and row["completion_tokens"] for row in failed)
    before, costs = manifest(tmp_path)["tfgrpo"], read_costs(paths(tmp_path))
    assert "unfinished" not in costs
    assert sum(each.calls for each in costs.values()) == manifest(tmp_path)["ledger"]["calls"]
    summary = run(tmp_path, replay=RUN)
    assert summary.exit_code == 0, summary.message
    assert run(tmp_path, resume=RUN).exit_code == 0
    assert manifest(tmp_path)["tfgrpo"]["per_tool_metrics"] == before["per_tool_metrics"]


def test_a_replay_takes_the_first_number_that_is_free(tmp_path):
    name = "n" * LONGEST_IDENTIFIER
    run(tmp_path, run_id=name, **SMALL)
    first, second, third = (TaskPaths.of(tmp_path, TASK).root / "replays" / f"{name[:-2]}-{number}" for number in (1, 2, 3))
    for taken in (first, third):
        taken.mkdir(parents=True)
    assert run(tmp_path, replay=name).exit_code == 0
    assert sorted(first.parent.iterdir()) == [first, second, third]
    assert second.stat().st_mode & 0o777 == 0o700
    assert second.joinpath("experiences.jsonl").is_file()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that put lessons into force."""
    out = tmp_path_factory.mktemp("finished")
    assert run(out, run_id=RUN, **LEARNING).details["decision"]["decision"] == "in force"
    return out


@pytest.fixture
def copy(tmp_path, finished):
    """Directory of a copy of that run."""
    shutil.copytree(finished, tmp_path / "out")
    return tmp_path / "out"


def write(path, rows):
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    seal(path)


def test_edited_answers_fail_the_replay(copy):
    def wrong(row):
        if row["key"].startswith("3/library/"):
            row["payload"]["content"] = "Answer: 1"
        return row

    journal = paths(copy).journal
    write(journal, [wrong(row) for row in lines(journal)])
    summary = run(copy, replay=RUN)
    assert summary.exit_code == 1
    assert re.match(r"the replay differs from its run: rollout \d+ differs: night:e3:library:", summary.message)


def edit_rollout(out):
    rows = lines(paths(out).rollouts)
    rows[7]["outcome"]["reward"] = 0.5
    write(paths(out).rollouts, rows)
    return f"rollout 8 differs: {rows[7]['rollout_id']}: outcome"


def edit_signal(out):
    rows = lines(paths(out).groups)
    rows[2]["signal"] = "flat"
    write(paths(out).groups, rows)
    return f"group 3 differs: {rows[2]['group_id']}: signal"


def drop_group(out):
    rows = lines(paths(out).groups)
    write(paths(out).groups, rows[:-1])
    return f"{len(rows) - 1} groups then, {len(rows)} now"


def edit_record(out):
    path = TaskPaths.of(out, TASK).experiences
    rows = lines(path)
    rows[1]["polarity"] = "avoid" if rows[1]["polarity"] == "do" else "do"
    write(path, rows)
    return f"record 2 differs: {rows[1]['experience_id']}: polarity"


def edit_row(out):
    path = TaskPaths.of(out, TASK).credit
    rows = lines(path)
    rows[3]["rewards_one"][0] = 0.25
    write(path, rows)
    return f"line of credit 4 differs: {rows[3]['line_id']}: rewards_one"


def drop_word(out):
    path = TaskPaths.of(out, TASK).credit
    rows = lines(path)
    last = max(at for at, row in enumerate(rows) if row["kind"] == "word")
    write(path, rows[:last] + rows[last + 1 :])
    return f"line of credit {last + 1} differs: "


def edit_decision(out):
    path = TaskPaths.of(out, TASK).promotions
    write(path, [row | {"experience_ids": row["experience_ids"][1:]} for row in lines(path)])
    return "decision 1 differs: in force: experience_ids"


def damage_rollouts(out):
    path = paths(out).rollouts
    number = len(lines(path)) + 1
    with path.open("a") as file:
        file.write("{\n")
    return f"{path}: line {number} is damaged"


def add_field(out):
    path = paths(out).groups
    write(path, [row | {"more": 1} for row in lines(path)])
    return f"group 1 differs: {lines(path)[0]['group_id']}: more"


def edit_surrogate(out):
    path = paths(out).groups
    write(path, [row | {"signal": "\ud800"} for row in lines(path)])
    return "group 1 differs: "


@pytest.fixture(scope="module")
def compared(tmp_path_factory, finished):
    """What a replay of that run was compared with it by."""
    out, asked = tmp_path_factory.mktemp("compared") / "out", []
    shutil.copytree(finished, out)
    with pytest.MonkeyPatch.context() as patch:
        # After its end: nobody reads the comparison that is made here.
        patch.setattr("tfgrpo.flows.run.close.compare_with_original", lambda *of: asked.append(of) or ("finished", ""))
        assert run(out, replay=RUN).exit_code == 0
    return asked[0]


@pytest.mark.parametrize("edit", [
    edit_rollout, edit_signal, drop_group, edit_record, edit_row, drop_word, edit_decision, damage_rollouts, add_field,
    edit_surrogate,
])  # fmt: skip
def test_a_replay_names_the_first_difference(copy, compared, edit):
    session, _, message = compared
    original = TaskPaths.of(copy, TASK)
    assert compare_with_original(session, original, message)[0] == "finished"
    difference = edit(copy)
    status, said = compare_with_original(session, original, message)
    assert status == "failed"
    assert said.startswith(f"the replay differs from its run: {difference}")
    assert said.encode(), "the manifest can hold it"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A run that an endpoint answered."""
    out = tmp_path_factory.mktemp("served")
    with Server() as server:
        assert run(out, run_id=RUN, **on_server(server)).exit_code == 0
    return out


def test_a_damaged_line_is_refused_by_a_replay_and_asked_again_by_a_resumed_run(tmp_path, served):
    shutil.copytree(served, tmp_path, dirs_exist_ok=True)
    with Server() as server:
        journal = paths(tmp_path).journal
        whole = journal.read_bytes().splitlines(keepends=True)
        journal.write_bytes(b"".join((*whole[:5], whole[5][:-3] + b"??\n", *whole[6:])))
        refused = run(tmp_path, replay=RUN)
        assert (refused.status, refused.exit_code) == ("refused", 2)
        assert "night with 1 damaged line; accepted: a whole journal; `--resume night --pay-again`" in refused.message
        assert not (TaskPaths.of(tmp_path, TASK).root / "replays").exists()
        assert run(tmp_path, resume=RUN, base_url=server.url).exit_code == 2
        assert server.bodies == []
        resumed = run(tmp_path, resume=RUN, base_url=server.url, pay_again=True)
        assert resumed.exit_code == 0, resumed.message
        assert len(server.bodies) == 1
        [warning] = [text for text in resumed.details["warnings"] if "journal" in text]
        assert warning == "1 damaged line of journal.jsonl (6) moved to journal.jsonl.torn; those calls are asked again"
        assert json.loads(json.dumps(manifest(tmp_path)["stages"]))[-1]["ok"]
    assert run(tmp_path, replay=RUN).exit_code == 0


def test_an_entry_that_is_no_reply_is_asked_again_by_a_resumed_run(tmp_path, served):
    shutil.copytree(served, tmp_path, dirs_exist_ok=True)
    with Server() as server:
        journal = paths(tmp_path).journal
        journal.write_text(journal.read_text().replace('"finish_reason"', '"FINISH_REASON"', 1))
        seal(journal)
        assert run(tmp_path, replay=RUN).exit_code == 1
        resumed = run(tmp_path, resume=RUN, base_url=server.url)
        assert (resumed.exit_code, len(server.bodies)) == (0, 1), resumed.message
        assert any(text.startswith("1 damaged line of journal.jsonl (") for text in resumed.details["warnings"])


def test_a_run_whose_files_have_converted_line_ends_is_replayed(copy):
    for path in (*paths(copy).root.glob("*.jsonl"), *TaskPaths.of(copy, TASK).root.glob("*.jsonl")):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    summary = run(copy, replay=RUN)
    assert summary.exit_code == 0, summary.message
