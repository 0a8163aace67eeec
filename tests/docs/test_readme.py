"""The README and the how-to pages work: their commands are run, their code is executed, their figures and tables compared."""

import importlib
import io
import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console as RichConsole

import tfgrpo as package
from docs import house
from docs.tables import PAGES, filled
from tests.support.runs.pages import ROOT, blocks, commands, links, page, pages, table
from tests.support.runs.running import LEARNING, SMALL, Server, in_process
from tfgrpo.flows import learning_flow
from tfgrpo.flows.cli import CHECKING, main
from tfgrpo.flows.commands.run import run
from tfgrpo.flows.commands.table import COMMANDS
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.observer import Observers, Screen
from tfgrpo.flows.orchestration.request import EXIT_CODES, RunRequest, RunSummary
from tfgrpo.flows.run.execution import execute
from tfgrpo.flows.run.lessons import effect_text
from tfgrpo.flows.run.prepare import Prepared
from tfgrpo.pipelines.settings.guardrails import validate_tfgrpo_config
from tfgrpo.pipelines.settings.layers import resolve_settings
from tfgrpo.pipelines.settings.tree import SimulatedSettings
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.files.layout import RunPaths, TaskPaths

pytestmark = pytest.mark.xdist_group("readme")
PREFECT = "prefect "
HOW_TO = ("docs/own-tasks.md", "docs/own-agent.md", "docs/use-lessons.md", "docs/resume.md", "docs/tutorial.md")
MAKE = ("make run", "make test")
ELLIPSIS = "…"


def run_here(request: RunRequest) -> RunSummary:
    """A run without Prefect's server."""
    return execute(request, os.environ, Observers(), in_process, clock=utc_now)


def as_command(prepared: Prepared, screen: Screen, _server: None) -> RunSummary:
    """A run without Prefect's server; everything else as the command does it."""
    summary = execute(prepared, os.environ, Observers(screen.progress), in_process, clock=utc_now)
    screen.ended(summary)
    return summary


def at_desk(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a directory as the README's reader has it: the checkout's pipelines and examples at hand, runs quick."""
    for name in ("pipelines", "examples"):
        (place / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "examples" / "errands.jsonl", place / "items.jsonl")
    monkeypatch.chdir(place)
    monkeypatch.setattr(learning_flow, "run_locally", as_command)
    monkeypatch.setattr("tfgrpo.flows.orchestration.local_server.start_server", lambda _environment: None)
    return place


@pytest.fixture
def desk(tmp_path, monkeypatch):
    return at_desk(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def main_job(tmp_path_factory):
    """The task of the main job, whose run is called as in the tutorial, and what it printed."""
    said = io.StringIO()
    people = RichConsole(file=said, width=100, highlight=False, soft_wrap=True)
    with pytest.MonkeyPatch.context() as patch:
        place = at_desk(tmp_path_factory.mktemp("desk"), patch)
        told = Console(stderr=people)
        assert run("tfgrpo-learning", {"dry_run": "true"}, told, run_id="first") == 0
    return TaskPaths.of(place / "out", "tfgrpo-learning"), said.getvalue()


def tfgrpo(line: str, **stand_ins: str) -> int:
    """Do a command of the page, with real names where it has placeholders."""
    words = [stand_ins.get(word, word) for word in shlex.split(line)]
    if words[:3] == ["python", "-m", "flows.tfgrpo"]:
        return main(["run", *words[3:]])
    assert words[0] == "tfgrpo"
    return main(words[1:])


def all_commands(name: str = "README.md") -> list[str]:
    return [line for block in blocks(name, "bash") for line in commands(block)]


def lines_with(*parts: str, name: str = "README.md") -> list[str]:
    found = [line for line in all_commands(name) if any(part in line for part in parts)]
    assert found
    return found


def test_every_command_of_the_page_is_accounted_for():
    kinds = ("git clone ", "cp ", "export ", *MAKE, "tfgrpo ", "python -m flows.tfgrpo ", PREFECT)
    for name in ("README.md", *HOW_TO):
        assert [line for line in all_commands(name) if not line.startswith(kinds)] == []


def test_the_page_opens_with_what_it_is_and_the_two_commands():
    opening, _, rest = page("README.md").partition("## Two commands")
    sentences = re.findall(r"\.(?=\s)", re.sub(r"\(\S+\)", "", opening))
    assert len(sentences) == 3
    assert rest.index("make run") < rest.index("make test") < rest.index("## On my own tasks")


def test_the_two_commands_are_targets_that_set_up_what_they_need():
    makefile = page("Makefile")
    for target in (line.removeprefix("make ") for line in MAKE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert "-m flows.tfgrpo --dry-run" in makefile
    assert [line for line in page(".ci/run").splitlines() if line.startswith("make ")] == ["make test", "make run"]


def test_the_transcript_is_what_the_main_job_prints(main_job):
    said = main_job[1].splitlines()
    printed = [shape(line) for line in said]
    printed.append(CHECKING)
    shown = [line for line in transcript() if line.strip() and line.strip() != ELLIPSIS]
    assert [line for line in shown[1:] if shape(line) not in printed] == []
    assert shown[0] == "$ make run"
    exact = [line for line in shown if line.startswith("In force: ")]
    assert exact == [line for line in said if line.startswith("In force: ")]


def transcript() -> list[str]:
    return page("README.md").partition("<!-- transcript -->")[2].partition("```text\n")[2].partition("```")[0].splitlines()


def shape(line: str) -> str:
    """A line without what differs from run to run: times, names, amounts and the place on disk."""
    line = re.sub(r"\d{8}T\d{6}-[0-9a-f]+|\bfirst\b", "RUN", line)
    line = re.sub(r"\S*(?=out/tfgrpo-learning/)", "", line)
    line = re.sub(r"[-+−]?\d[\d.,]*", "0", line)
    return " ".join(re.sub(r"about \S+ left", "left", line).split())


def test_the_pipeline_parts_on_the_pages_are_settings(tmp_path):
    for name in ("docs/own-tasks.md", "docs/own-agent.md", "docs/settings.md", "docs/endpoints.md", "docs/process-models.md"):
        for number, shown in enumerate(blocks(name, "yaml")):
            path = tmp_path / f"part{number}.yaml"
            path.write_text(shown.text)
            assert yaml.safe_load(shown.text)
            validate_tfgrpo_config(resolve_settings(cli={}, env={}, pipeline_path=path).settings)


def test_my_own_tasks_against_an_endpoint(desk, capsys):
    with Server(SimulatedSettings()) as server:
        page_of_tasks = lines_with("--pipeline tfgrpo.yaml", name="docs/own-tasks.md")
        for line in [*lines_with("tfgrpo init", "--pipeline tfgrpo.yaml", "show latest"), *page_of_tasks]:
            small = f"{line} --sample-size 6 --batch-size 6 --group-size 2" if "run" in line.split() else line
            code = tfgrpo(small, **{"NAME": "simulated", "http://localhost:8000/v1": server.url})
            assert code == 0, capsys.readouterr().err
    assert TaskPaths.of("out", "items").state.is_file()


def test_the_python_of_the_page_learns(desk, capsys):
    (shown,) = [block.text for block in blocks("README.md", "python") if "tfgrpo.learn" in block.text]
    scope: dict[str, Any] = {}
    with Server(SimulatedSettings()) as server:
        here = shown.replace("http://localhost:8000/v1", server.url).replace("NAME", "simulated")
        small = here.replace("range(60)", "range(20)").replace("max_calls=2000", "max_calls=2000, sample_size=4")
        exec(compile(small, "README.md", "exec"), scope)
    assert scope["result"].report.is_file()
    assert capsys.readouterr().out.startswith(f"{scope['result'].decision} ")


def test_the_example_agent_learns(desk, capsys):
    (line,) = lines_with("own-agent.yaml", name="docs/own-agent.md")
    assert tfgrpo(f"{line} --run-id once") == 0, capsys.readouterr().err
    rows = [json.loads(row) for row in TaskPaths.of("out", "own-agent").run("once").rollouts.read_text().splitlines()]
    assert {row["outcome"]["name"] for row in rows} == {"scored"}
    assert {row["calls"] for row in rows} == {2}


def test_the_agent_on_the_page_is_the_one_of_the_examples():
    (shown,) = [block.text for block in blocks("docs/own-agent.md", "python") if "async def agent" in block.text]
    kept = page("examples/agent.py")
    assert all(line in kept for line in shown.splitlines())
    assert len(shown.splitlines()) <= 5


def test_the_figures_of_the_tutorial_are_those_of_its_run(main_job):
    assert "tfgrpo run --dry-run --run-id first" in all_commands("docs/tutorial.md")
    task, _ = main_job
    run = task.run("first")
    rows = {row["item_id"]: row for row in lines_of(task.credit) if row["line_id"].startswith("first/first:e1:")}
    sides = {"one": [], "other": []}
    for rollout in lines_of(run.rollouts):
        if (rollout["item_id"], rollout["epoch"]) == ("ar-0381", 1):
            sides[rollout["arm"]].append(rollout["output"])
    lessons = {each["experience_id"]: each for each in lines_of(task.experiences)}
    manifest = json.loads(run.manifest.read_text())
    (learned,) = [name for name, each in lessons.items() if each["summary32"] == tutorial("lesson")]
    assert tutorial("prompt") in [item["prompt"] for item in lines_of(run.items) if item["item_id"] == "ar-0381"]
    assert tutorial("wrong") in sides["one"]
    assert tutorial("right") in sides["other"]
    for side in ("one", "other"):
        assert tutorial(side).splitlines() == [as_in_prompts(lessons[name]) for name in rows["ar-0381"][side]]
    for shown in (json.loads(tutorial(name, "json").replace("[…]", "null")) for name in ("row", "later row")):
        row = rows[shown["item_id"]]
        assert shown == {key: None if value is None else row[key] for key, value in shown.items()}
    assert lessons[learned]["group_id"] == rows["ar-0381"]["line_id"].removeprefix("first/")
    assert learned in row["other"]
    assert any(tutorial("after") in prompt["system"] for prompt in lines_of(run.prompts))
    assert tutorial("effect") == effect_text(manifest["tfgrpo"]["lessons"][learned]["effect"])
    assert tutorial("decision") == manifest["decision"]["sentence"]
    swept = [f"{manifest['decision']['rewards'][side]['mean']:.3f}" for side in ("library", "none")]
    assert re.findall(r"is (0\.\d+) with them and (0\.\d+) without", page("docs/tutorial.md")) == [tuple(swept)]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def as_in_prompts(lesson: dict[str, Any]) -> str:
    return f"- {lesson['polarity'].capitalize()}: {lesson['summary32']}"


def tutorial(name: str, language: str = "text") -> str:
    marked = page("docs/tutorial.md").partition(f"<!-- tutorial {name} -->\n```{language}\n")
    text = marked[2].partition("\n```")[0]
    assert text
    return text


def test_every_page_is_in_the_site_and_no_other():
    listed = re.findall(r"([\w-]+\.md)", page("mkdocs.yml"))
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_the_api_page_has_every_public_name():
    named = re.findall(r"^::: (tfgrpo(?:\.\w+)*)\.(\w+)$", page("docs/api.md"), flags=re.MULTILINE)
    assert sorted(name for _, name in named) == sorted(package.__all__)
    for module, name in named:
        assert getattr(importlib.import_module(module), name) is getattr(package, name)


def test_what_was_learned_can_be_used_as_the_page_says(desk, capsys):
    summary = run_here(RunRequest(dry_run=True, run_id="night", **LEARNING))
    assert summary.details["decision"]["decision"] == "in force"
    stand_ins = {"ID": summary.details["decision"]["experience_ids"][0], "RUN": "night"}
    printed = {}
    parts = ("packs render", "experiences ", "tfgrpo history", "--resume", "--replay", "tfgrpo report")
    lines = [line for name in ("README.md", "docs/use-lessons.md", "docs/resume.md") for line in lines_with(*parts, name=name)]
    for line in dict.fromkeys(lines):
        capsys.readouterr()
        small = " --rollouts 60" if "experiences measure" in line else ""
        assert tfgrpo(line.partition("#")[0] + small, **stand_ins) == 0, line
        printed[line.replace(" ID", "").replace(" RUN", "")] = capsys.readouterr().out
    (shown,) = [block.text for block in blocks("docs/use-lessons.md", "python") if "system_prompt" in block.text]
    scope: dict[str, Any] = {}
    exec(compile(shown, "use-lessons.md", "exec"), scope)
    rendered = next(text for line, text in printed.items() if line.startswith("tfgrpo packs render"))
    assert scope["system_prompt"].strip() == rendered.strip()
    assert "<lessons>" in scope["system_prompt"]
    in_force = [lesson["text"] for lesson in summary.details["lessons"] if lesson["state"] == "in force"]
    assert in_force
    assert all(text in printed["tfgrpo experiences export"] for text in in_force)


def test_the_nightly_commands_are_those_of_the_deployment_page():
    """Which ``tests/flows/orchestration/test_deployments.py`` follows to its end, on a real server."""
    proven = [line.replace(".venv/bin/", "") for line in all_commands("docs/deploy.md")]
    shown = lines_with(PREFECT, "PREFECT_API_URL", "tfgrpo deploy")
    assert [line for line in proven if line in shown] == shown
    assert len(shown) == 5


def test_the_exit_codes_are_those_of_the_program():
    shown = {int(code) for code, _ in table(page("docs/resume.md"), "exit code")}
    assert shown == set(EXIT_CODES.values())


@pytest.mark.parametrize("name", PAGES)
def test_generated_tables_are_up_to_date(name):
    assert page(name) == filled(page(name)), "run: python -m docs.tables"


def test_the_picture_of_the_house_is_that_of_the_code():
    assert page("docs/house.svg") == house.picture(), "run: python -m docs.tables"


def test_the_files_on_the_page_are_those_that_a_run_writes(desk):
    run_here(RunRequest(dry_run=True, run_id="night", **SMALL))
    root = desk / "out" / "tfgrpo-learning"
    written = {path.name for path in root.rglob("*") if path.is_file() and not path.name.endswith(".lock")}
    (shown,) = [block.text for block in blocks("docs/files.md", "text") if "out/<task_id>" in block.text]
    named = set(re.findall(r"[\w-]+\.(?:jsonl|json|html|index)\b", shown))
    assert written == named
    selecting = {"selections.jsonl", "patterns.jsonl"}
    assert {path.name for path in layout_of(root)} <= named | selecting
    assert all(name in page("docs/files.md") for name in selecting)


def layout_of(root: Path) -> set[Path]:
    """Every file that the layout has a name for."""
    task, run = TaskPaths(root), RunPaths(root / "runs" / "night")
    ours = [(task, TaskPaths), (run, RunPaths)]
    return {getattr(place, name) for place, kind in ours for name, value in vars(kind).items() if isinstance(value, property)}


def test_commands_named_on_the_pages_exist():
    for path in pages():
        for word in re.findall(r"`tfgrpo ([a-z][\w-]*)", path.read_text(encoding="utf-8")):
            assert word in COMMANDS, f"{path.name}: tfgrpo {word}"


def test_links_between_the_pages_lead_somewhere():
    for path in pages():
        for target in links(path.read_text(encoding="utf-8")):
            if not target.startswith(("http://", "https://", "#")):
                assert (path.parent / target.partition("#")[0]).exists(), f"{path.name}: {target}"
