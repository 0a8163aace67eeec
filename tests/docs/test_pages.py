"""What the pages in docs/ say of files, names and formulas is what the program has."""

import json
import os
import re
import shlex
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import Settings as PrefectSettings

from benchmarks.generated_items import POWL
from tests.support.runs.pages import ROOT, blocks, page, pages
from tests.support.runs.running import BOOKS, Server, in_process, lines, on_server, run
from tfgrpo.flows.cli import main
from tfgrpo.flows.console.observer import Observers
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.flows.run.execution import execute
from tfgrpo.pipelines.settings.layers import fields_by_key
from tfgrpo.rewarders.advantages.group import EPSILON
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.telemetry import setup
from tfgrpo.tasks.models.simulated import engine

EXAMPLES, ERRANDS = "examples/README.md", "examples/errands.jsonl"
pytestmark = pytest.mark.xdist_group("readme")


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """A task after one run on the world with tools."""
    out = tmp_path_factory.mktemp("files")
    request = RunRequest(**BOOKS, dry_run=True, sample_size=10, batch_size=5, out=str(out), task_id="t", run_id="night")
    summary = execute(request, os.environ, Observers(), in_process, clock=utc_now)
    assert summary.exit_code == 0, summary.message
    (out / "lessons.json").write_text(json.dumps({"lessons": [{"says": "do", "text": "Name the unit."}]}))
    lessons, process = (shlex.quote(str(path)) for path in (out / "lessons.json", ROOT / "benchmarks/powl/items.jsonl"))
    for command in (
        f"select --dry-run --item {process}#po-0001 --world {POWL} --format powl --rewarder powl_footprint --memory record",
        "export night --to jsonl",
        f"experiences import {lessons} --reviewed-by Ann",
    ):
        assert main([*shlex.split(command), "--out", str(out), "--task-id", "t"]) == 0, command
    return out / "t"


def sections() -> dict[str, str]:
    """Text of docs/files.md below each heading that names a file."""
    parts = re.split(r"^## `([^`]+)`$", page("docs/files.md"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def documented(text: str) -> set[str]:
    cells = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", text, flags=re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def written(path: Path) -> set[str]:
    rows: list[dict[str, Any]] = lines(path) if path.suffix == ".jsonl" else [json.loads(path.read_text())]
    assert rows
    return {name for row in rows for name in row} - {"sum"}


@pytest.mark.parametrize("name", [name for name in sections() if not name.startswith("ledger")])
def test_every_field_of_every_file_is_on_the_page_and_the_other_way_round(name, task):
    (path,) = task.glob(re.sub(r"<\w+>", "*", name))
    assert documented(sections()[name]) == written(path)


def test_the_files_without_a_schema_version_are_those_that_the_page_names(task):
    (named,) = re.findall(r"but for (.*?) of a run, which have none", page("docs/files.md"))
    held = {path.name: path for path in task.rglob("*") if path.suffix in {".json", ".jsonl"}}
    bare = {name for name, path in held.items() if not written(path) & {"schema", "schema_version"}}
    assert bare == set(re.findall(r"`([\w.]+)`", named))


def test_the_roles_of_the_journal_are_on_the_page(task):
    (row,) = [line for line in page("docs/files.md").splitlines() if line.startswith("| `payload` |")]
    entries = lines(task / "runs/night/journal.jsonl")
    assert {entry["key"].split("/")[6] for entry in entries} <= set(re.findall(r"`(\w+)`", row))
    results = [entry["payload"] for entry in entries if "/tool/" in entry["key"]]
    assert {name for result in results for name in result} == {"text", "ok", "cost_usd", "latency_ms"}


def test_files_are_made_for_their_owner_alone(task):
    modes = {path.name: path.stat().st_mode & 0o777 for path in task.rglob("*") if path.is_file()}
    assert {name: oct(mode) for name, mode in modes.items() if mode != 0o600} == {}


def test_settings_named_on_the_pages_exist():
    sections_of_settings = {key.split(".")[0] for key in fields_by_key() if "." in key}
    for path in pages():
        for word in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", path.read_text(encoding="utf-8")):
            if word.split(".")[0] in sections_of_settings - {"tfgrpo"}:
                assert word in fields_by_key() or Path(word).suffix in {".py", ".md"}, f"{path.name}: {word}"


def test_prefect_reads_its_settings_on_the_page_about_scale_as_the_page_says(monkeypatch):
    exported = re.findall(r"^export (PREFECT_\w+)=(\S+)$", page("docs/scale.md"), re.MULTILINE)
    for name, value in exported:
        monkeypatch.setenv(name, value)
    server = PrefectSettings().server
    assert server.services.db_vacuum.enabled_vacuum_types >= {"events", "flow_runs"}
    assert server.services.db_vacuum.retention_period == timedelta(days=90)
    assert server.database.connection_url.get_secret_value().startswith("postgresql+asyncpg://")
    assert server.events.retention_period == timedelta(days=7)


def test_the_examples_hold_out_as_many_items_as_their_page_says(tmp_path):
    words = {"Forty": 40, "Thirteen": 13, "eight": 8}
    said = re.search(r"(\w+) items show .*? (\w+) of them are held out, of which the sweep measures (\w+)", page(EXAMPLES))
    assert said is not None
    summary = run(tmp_path, run_id="own", pipeline=str(ROOT / "examples/own-agent.yaml"), dataset=str(ROOT / ERRANDS))
    counts = json.loads((tmp_path / "own-agent/runs/own/manifest.json").read_text())["dataset"]
    assert summary.exit_code == 0, summary.message
    assert [words[word] for word in said.groups()] == [
        counts["learn"] + counts["held_out_of"],
        counts["held_out_of"],
        counts["held_out"],
    ]


def test_span_and_metric_names_on_the_page_exist():
    known = {*setup.KEYS.values(), *(metric.name for metric in setup.all_metrics()), "gen_ai.evaluation.result"}
    for word in re.findall(r"`((?:tfgrpo|gen_ai)\.[a-z_.]+)`", page("docs/observability.md")):
        assert word in known, word


def test_the_formulas_on_the_pages_are_those_of_the_code():
    assert f"{EPSILON:g}".replace("e-0", "e-") in page("docs/learning.md")
    margin = re.search(r"`(SKILL .*? z)`", page("docs/tutorial.md"))
    assert margin is not None
    constants = set(re.findall(r"[A-Z_]{4,}", margin[1]))
    assert constants == {name for name, value in vars(engine).items() if name.isupper() and isinstance(value, float)}


def test_epochs_learn_at_one_temperature_and_measure_at_the_other(tmp_path):
    with Server() as server:
        asked = on_server(server, sample_size=10, batch_size=5, epochs=3)
        summary = run(tmp_path, **asked)
    assert summary.exit_code == 0, summary.message
    acting = [body for body in map(json.loads, server.bodies) if "response_format" not in body]
    assert Counter(body["temperature"] for body in acting) == {0.7: 2 * 10 * 4, 0.3: 2 * 10 * 2}


def test_files_of_the_code_named_on_the_pages_exist():
    for path in pages():
        for name in re.findall(r"`((?:\w+/)+\w+\.\w+)`", path.read_text(encoding="utf-8")):
            if not name.startswith(("out/", "path/")):
                assert (ROOT / name).exists(), f"{path.name}: {name}"


def test_the_transcript_of_show_is_what_the_commands_print(at_home, capsys):
    transcript = next(each.text for each in blocks("docs/report.md", "text") if "tfgrpo show" in each.text)
    made, *parts = transcript.split("$ tfgrpo ")[1:]
    assert made == "run --dry-run --sample-size 8 --batch-size 4\n…\n"
    assert run(Path("out"), dry_run=True, sample_size=8, batch_size=4).exit_code == 0
    for part in parts:
        command, *lines = part.splitlines()
        assert main(shlex.split(command)) == 0
        pattern = "\n".join(map(re.escape, lines)).replace("…", r"[\s\S]*")
        assert re.fullmatch(rf"{pattern}\n*", capsys.readouterr().out), command


def test_no_page_names_a_place_on_one_machine():
    for path in pages():
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(?<![\w.])/(?:home|root|tmp|work|opt)/", text), path.name


def test_the_tests_that_keep_a_promise_of_durability_exist():
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page("docs/durability.md"))
    assert len(named) >= 10
    for path, test in named:
        assert f"def {test}" in (ROOT / path).read_text(encoding="utf-8"), (path, test)
