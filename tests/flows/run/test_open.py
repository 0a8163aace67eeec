"""What must hold before a run is opened? All of it is checked before anything is written."""

import json
import shutil
from pathlib import Path
from statistics import fmean

import pytest
from filelock import FileLock

from tests.support.runs.running import PACKS, RUN, SMALL, TASK, Server, lines, manifest, on_server, paths, run
from tfgrpo.flows.run import close as closing
from tfgrpo.pipelines.datasets.datasets import load_dataset
from tfgrpo.pipelines.datasets.items import item_texts
from tfgrpo.pipelines.plan.data import split_items
from tfgrpo.prompt_packs.stamps import stamp_pack
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.json_values import canonical_json, sha256_hex


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """A run with a pack and a dataset of its own, stopped early."""
    out = tmp_path_factory.mktemp("earlier")
    shutil.copytree(PACKS / "arithmetic", out / "packs" / "arithmetic")
    items = [{"id": f"i{number}", "prompt": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(30)]
    (out / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    asked = {"dataset": str(out / "items.jsonl"), "packs_root": str(out / "packs"), "max_calls": 8, "allow_zero": True}
    summary = run(out, run_id=RUN, **SMALL | asked)
    assert summary.exit_code == 3, summary.message
    return out


def copy_of(earlier, tmp_path):
    """The run again, with its files where they were."""
    out = tmp_path / "out"
    shutil.copytree(earlier, out)
    return out


def refused(summary, *words):
    assert (summary.status, summary.exit_code) == ("refused", 2), summary.message
    for word in words:
        assert word in summary.message
    return summary


def test_a_resumed_run_drops_warnings_that_no_longer_apply(earlier, tmp_path):
    out = copy_of(earlier, tmp_path)
    before = manifest(out)
    assert any("it would stop early" in text for text in before["warnings"])
    stale = "http://localhost:1 answered 404 to GET /models; the base URL has no path: probably http://localhost:1/v1 is meant"
    lasting = [text for text in before["warnings"] if "stop early" not in text]
    path = paths(out).manifest
    happened = "telemetry: 3 batches were not delivered"
    changed = {"warnings": [*before["warnings"], stale, happened], "lasting_warnings": [happened]}
    path.write_text(json.dumps({**before, **changed}))
    summary = run(out, resume=RUN, max_calls=100_000)
    assert summary.status == "finished", summary.message
    after = manifest(out)
    for said in (summary.details["warnings"], after["warnings"]):
        assert not any("stop early" in text or text == stale for text in said)
        assert {*lasting, happened} <= set(said)
    page = (paths(out).root / "report.html").read_text()
    assert "answered 404" not in page
    assert "stop early" not in page
    again = run(out, resume=RUN)
    assert again.details["warnings"] == summary.details["warnings"]


def test_a_resumed_run_warns_of_decisions_that_end_in_an_incomplete_line(earlier, tmp_path):
    out = copy_of(earlier, tmp_path)
    with TaskPaths.of(out, TASK).promotions.open("a") as file:
        file.write('{"schema_version":1,"run_id":"lost')
    assert "promotions.jsonl: the last line is incomplete and does not count" in run(out, resume=RUN).details["warnings"]


def test_a_pack_edited_since_the_run_began_is_refused(earlier, tmp_path):
    out = copy_of(earlier, tmp_path)
    pack = out / "packs" / "arithmetic"
    (pack / "house-rules.md").write_text((pack / "house-rules.md").read_text() + "\nMore.\n")
    stamp_pack(pack, utc_now)
    refused(run(out, resume=RUN, packs_root=str(pack.parent)), "the run's pack", "unchanged since the run began")


def test_a_telemetry_endpoint_that_is_none_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector.example")
    refused(run(tmp_path, run_id=RUN, **SMALL), "OTEL_EXPORTER_OTLP_ENDPOINT")
    assert list(tmp_path.iterdir()) == []


def test_the_key_of_an_endpoint_is_read_where_it_is_used_and_written_nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-indeed")
    with Server() as server:
        summary = run(tmp_path, run_id=RUN, **on_server(server, max_calls=12))
    assert summary.exit_code == 3
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if b"very-secret" in path.read_bytes()]
    assert "very-secret" not in json.dumps(summary.as_json())


def test_settings_go_into_the_manifest_with_their_sources(earlier):
    opened = manifest(earlier)
    assert opened["settings"]["tfgrpo"]["sample_size"] == SMALL["sample_size"]
    assert opened["sources"]["tfgrpo.sample_size"] == "command line --sample-size"
    assert opened["seeds"] == {"run": 0, "simulated": 0}
    assert opened["pack"]["id"] == "arithmetic"


def test_settings_of_a_deployment_are_no_command_line_in_the_manifest(tmp_path):
    asked = {**SMALL, "flow_run_id": "5e6f", "max_calls": 4}
    assert run(tmp_path, run_id="5e6f", **asked).exit_code == 3
    for _ in range(2):  # a retry resumes
        opened = manifest(tmp_path, "5e6f")
        assert opened["sources"]["tfgrpo.sample_size"] == "parameters of the flow run"
        assert not any("command line" in row["source"] for row in opened["settings_table"])
        assert run(tmp_path, run_id="5e6f", **asked).exit_code == 3


def other(field, value):
    return {"tests": ["f(1) == 2"]} if field == "metadata" else f"{value}0"


@pytest.mark.parametrize(("side", "field"), [("learn", "prompt"), ("held_out", "metadata")])
def test_an_item_changed_in_any_way_since_the_run_began_is_refused(earlier, side, field):
    dataset = earlier / "items.jsonl"
    kept = dataset.read_text()
    rows = [json.loads(line) for line in kept.splitlines()]
    share = manifest(earlier)["settings"]["dataset"]["held_out"]
    chosen = {item.id for item in getattr(split_items(load_dataset(dataset), share), side)}
    try:
        changed = [{**row, field: other(field, row.get(field, ""))} if row["id"] in chosen else row for row in rows]
        dataset.write_text("".join(json.dumps(row) + "\n" for row in changed))
        refused(run(earlier, resume=RUN), "the run's dataset")
    finally:
        dataset.write_text(kept)


def test_the_night_after_a_killed_run_says_how_to_go_on_with_it_as_long_as_that_is_possible(tmp_path):
    def said():
        return [text for text in manifest(tmp_path, name)["warnings"] if "was killed" in text]

    assert run(tmp_path, run_id="killed", max_calls=8, **SMALL).status == "stopped"
    path = paths(tmp_path, "killed").manifest
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "running"}))
    name = "held"
    with FileLock(path.parent / ".lock"):  # by a process that is still at it
        run(tmp_path, run_id=name, max_calls=8, **SMALL)
    assert said() == []
    shutil.rmtree(paths(tmp_path, name).root)
    name = "next"
    run(tmp_path, run_id=name, max_calls=8, **SMALL)
    (warning,) = said()
    assert warning.startswith("run killed was killed before its end: `tfgrpo run --resume killed` goes on with it")
    name = "after"
    run(tmp_path, run_id=name, max_calls=8, **SMALL)
    assert said() == [warning]
    assert run(tmp_path, resume="killed").exit_code == 3
    name = "last"
    run(tmp_path, run_id=name, max_calls=8, **SMALL)
    assert said() == []
    assert [manifest(tmp_path, each)["night"] for each in ("killed", "next", "after", "last")] == [1, 2, 3, 4]


def zero(path):
    path.write_bytes(b"\0" * path.stat().st_size)


def keep(lines):
    """Return a cut at a line end."""
    return lambda path: path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))


def break_line(path):
    path.write_bytes(path.read_bytes().replace(b'"finish_reason":"stop"', b'"finish_reason":"Stop"', 1))


DAMAGES = {"missing": Path.unlink, "empty": keep(0), "zeros": zero}
CUTS = {"half": (keep(4), 4), "all but the last": (keep(7), 1), "a damaged line": (break_line, 1)}
LOST = {name: (damage, 8) for name, damage in DAMAGES.items()} | CUTS


@pytest.mark.parametrize(("damage", "lost"), LOST.values(), ids=LOST)
def test_a_run_whose_answers_are_lost_pays_for_them_again_only_when_asked_to(earlier, tmp_path, damage, lost):
    out = copy_of(earlier, tmp_path)
    damage(paths(out).journal)
    before = {path: path.read_bytes() for path in paths(out).root.glob("*.jsonl")}
    said = refused(run(out, resume=RUN), "--resume", "journal.jsonl", "a new run", "--pay-again").message
    assert f"it lacks {lost} answered call{'s' if lost > 1 else ''} of 8" in said
    assert {path: data for path, data in before.items() if path.read_bytes() != data} == {}
    went_on = run(out, resume=RUN, pay_again=True, max_calls=8 + lost)
    assert (went_on.exit_code, went_on.details["ledger"]["calls"]) == (3, 8 + lost)
    again = run(out, resume=RUN)
    assert "max_calls" in again.message
    assert again.exit_code == 3, "what was lost is settled"


@pytest.mark.parametrize("damage", [zero, keep(50)])
def test_without_its_ledger_what_was_attempted_says_that_answers_are_lost(own_run, damage):
    damage(own_run.paths.journal)
    own_run.paths.ledger.unlink()
    opened = json.loads(own_run.paths.manifest.read_text())
    own_run.paths.manifest.write_text(json.dumps({**opened, "ledger": None}))
    refused(run(own_run.out, resume="small"), "--resume", "journal.jsonl", "a new run", "--pay-again")


def test_a_ledger_that_lost_its_newest_lines_begins_with_what_the_journal_counts(earlier, tmp_path):
    out = copy_of(earlier, tmp_path)
    spent = manifest(out)["ledger"]
    keep(3)(paths(out).ledger)
    summary = run(out, resume=RUN, max_calls=8)
    assert summary.exit_code == 3, summary.message
    assert {name: summary.details["ledger"][name] for name in ("calls", "tokens", "nano_usd", "journalled")} == {
        name: spent[name] for name in ("calls", "tokens", "nano_usd", "journalled")
    }
    assert spent["calls"] == 8


def test_paying_again_is_for_a_run_that_is_resumed(tmp_path):
    refused(run(tmp_path, pay_again=True, **SMALL), "--pay-again", "--resume")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_run_under_a_cap_whose_spending_is_lost_spends_nothing_more(earlier, tmp_path, damage):
    out = copy_of(earlier, tmp_path)
    damage(paths(out).ledger)
    before = paths(out).journal.read_bytes()
    refused(run(out, resume=RUN), "--resume", "ledger.jsonl")
    assert paths(out).journal.read_bytes() == before
    paths(out).ledger.unlink(missing_ok=True)
    refused(run(out, resume=RUN), "--resume", "ledger.jsonl is missing or empty", "--set budget.max_calls=none")
    summary = run(out, resume=RUN, budget__max_calls="none")
    assert summary.exit_code == 0
    assert any("what it has spent is unknown" in text for text in summary.details["warnings"])


def test_the_manifest_says_what_was_in_force_what_was_swept_and_what_was_decided(small_run):
    written, (line,) = json.loads(small_run.paths.manifest.read_text()), lines(small_run.task.promotions)
    assert (written["in_force"]["experience_ids"], written["began_with"]["credit_lines"]) == ([], 0)
    decision = written["decision"]
    unlike = {"schema_version", "signatures", "accepted", "credit_lines", "credit_sha256", "previous"}
    assert {key: decision[key] for key in line.keys() - unlike} == {key: line[key] for key in line.keys() - unlike}
    assert written["message"] == decision["explanation"] == decision["sentence"]
    for arm, (lost, made) in decision["lost"].items():
        rewards = [row["outcome"]["reward"] for row in lines(small_run.paths.rollouts) if row["arm"] == arm]
        assert (lost, made, decision["rewards"][arm]["n"]) == (0, len(rewards), decision["swept"])
        assert decision["rewards"][arm]["mean"] == pytest.approx(fmean(rewards))
    block = written["tfgrpo"]
    assert {*block["on_trial"]} <= {*block["lessons"]}
    assert {*block["proposals"]} <= {"confirmed", "contradicted", "new", "refused", "useless"}


def test_the_last_stage_is_the_guard_with_its_evidence(small_run):
    told = json.loads(small_run.paths.manifest.read_text())
    learned, guarded = told["stages"]
    assert (learned["name"], learned["epochs"]) == ("learn", len(told["tfgrpo"]["epochs"]))
    assert guarded["name"] == "spec-guard"
    assert guarded["ok"] is True, guarded["checks"]
    assert all(check["evidence"] for check in guarded["checks"])
    assert {"epochs", "experiences_written", "reward_scores", "per_tool_metrics"} <= {*told["tfgrpo"]}
    assert not [text for text in told["warnings"] if "spec guard" in text]


def test_what_breaks_at_the_end_of_a_run_is_a_warning_each_and_the_run_has_finished(tmp_path, monkeypatch, caplog):
    def unreadable(*_paths):
        raise CorruptFile("groups.jsonl: line 3 is no JSON")

    odd = {"name": "outcomes legal", "ok": False, "evidence": "r1 ended as 'odd'"}
    report = [odd, {"name": "budget", "ok": True, "evidence": ""}]
    monkeypatch.setattr(closing, "check_spec", lambda _root: report)
    monkeypatch.setattr(closing, "write_report", unreadable)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    summary = run(tmp_path, run_id=RUN, **SMALL)
    assert (summary.status, summary.exit_code, summary.details["report"]) == ("finished", 0, None)
    warnings = manifest(tmp_path)["warnings"]
    assert manifest(tmp_path)["stages"][1]["ok"] is False
    assert "spec guard: outcomes legal: r1 ended as 'odd'" in warnings
    assert "no report was written: groups.jsonl: line 3 is no JSON" in warnings
    assert len([text for text in warnings if "were not delivered" in text]) == 1
    assert "were not delivered" not in caplog.text, "the morning page shows it"


def test_an_unreadable_line_of_the_store_loses_only_its_lesson(own_run):
    before = own_run.task.experiences.read_text(encoding="utf-8")
    own_run.task.experiences.write_text(f"{before}garbage\n{{}}\n", encoding="utf-8")
    assert run(own_run.out, run_id="next", **SMALL).exit_code == 0
    assert own_run.task.run("next").report.exists()


def test_the_digest_of_the_items_is_that_of_runs_of_earlier_versions(small_run):
    dataset = json.loads(small_run.paths.manifest.read_text())["dataset"]
    plan = next(arguments[0] for name, arguments in small_run.told.moments if name == "run_started")
    for name, items in (("learn_digest", plan.learn_items), ("held_out_digest", plan.eval_items)):
        assert dataset[name] == sha256_hex(canonical_json([item_texts(item) for item in items])), "else none can be resumed"
