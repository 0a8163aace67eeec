"""What docs/graders.md shows is what the graders do: its tables are scored, its code and its configuration are loaded."""

import ast
import inspect
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.rewards.judges import FakeJudge, judged
from tests.support.rewards.scoring import built
from tests.support.runs.pages import ROOT, blocks, page, table
from tfgrpo.flows.cli import main
from tfgrpo.pipelines.mix.config import load_mix_config
from tfgrpo.pipelines.settings.layers import resolve_settings
from tfgrpo.rewarders.graders import GraderInput
from tfgrpo.rewarders.graders.builtin.code_process import FILE_BYTES
from tfgrpo.rewarders.graders.builtin.code_tests import _BY_THE_CLOCK, _MOST_ENDLESS
from tfgrpo.rewarders.graders.builtin.sql_result import MOST_STEPS
from tfgrpo.rewarders.judge.model import Preset
from tfgrpo.rewarders.registry import GRADERS, build_scorer
from tfgrpo.rewarders.scorer import parse_completion

PAGE = "docs/graders.md"
TEXT = page(PAGE)
NEEDED: dict[str, dict[str, Any]] = {
    "category_match": {"allowed_categories": ["Alpha", "Beta"]},
    "completion_length_cap": {"max_completion_tokens": 9},
    **{name: {"worst": 1.0} for name in ("cost", "latency", "tokens")},
}
"""Options without a default."""


def plain(cell: str) -> str | None:
    """Text of a cell in backticks, with its line breaks; None for a word that says there is nothing."""
    cell = re.sub("^(`{4}) (.*) `{4}$", r"`\2`", cell)
    return cell[1:-1].replace(r"\n", "\n") if cell.startswith("`") else None


def score(name: str, completion: str, record: dict[str, Any]) -> float:
    score = built(name, **NEEDED.get(name, {})).call(GraderInput.of("s:0", record, completion))
    return score if isinstance(score, float) else score.score


def test_completions_are_cut_as_the_page_says():
    for completion, reasoning, answer in table(TEXT, "completion | reasoning | answer"):
        assert parse_completion(plain(completion) or "") == (plain(reasoning), plain(answer)), completion


def test_shapes_score_as_the_page_says():
    for completion, expected in table(TEXT, "completion | score"):
        assert score("reasoning_format", plain(completion) or "", {}) == pytest.approx(float(expected)), completion


@pytest.mark.parametrize(
    "heading",
    [
        "answer | record's `answer` | `math_exact` | `number_match` | `number_only`",
        "answer | record's `answer` | `category_match` | `label_match`",
        "schema | answer | `json_conforms`",
        "schema | answer | `json_schema`",
        "schema | answer | `xml_schema`",
    ],
)
def test_answers_score_as_the_page_says(heading):
    names = re.findall(r"`(\w+)`", heading.replace("record's `answer`", ""))
    for row in table(TEXT, heading):
        first, second = (plain(cell) or "" for cell in row[:2])
        by_schema = heading.startswith("schema")
        answer = second if by_schema else first
        record = {"metadata": {"schema": first}} if by_schema else {"answer": second}
        for name, expected in zip(names, row[2:], strict=True):
            assert score(name, f"<think>r</think>\n{answer}", record) == pytest.approx(float(expected)), (name, row)


def documented_options(cell: str) -> dict[str, Any]:
    found = re.findall(r"`(\w+)` (\(no default\)|[\w.]+)", cell)
    words = {"none": (), ".": "."}
    return {name: inspect.Parameter.empty if "(" in said else words.get(said, yaml.safe_load(said)) for name, said in found}


def test_every_grader_and_every_option_is_on_the_page_with_its_default():
    rows = {plain(row[0]): documented_options(row[2]) for row in table(TEXT, "name | looks at | options and their defaults")}
    assert set(rows) == set(GRADERS) - {"math-verify"}
    for name, options in rows.items():
        accepted = inspect.signature(type(built(str(name), **NEEDED.get(str(name), {})).made_from)).parameters
        assert {key: parameter.default for key, parameter in accepted.items()} == options, name


def test_the_code_on_the_page_makes_graders():
    written: dict[str, Any] = {}
    for block in blocks(PAGE, "python"):
        exec(compile(ast.parse(block.text), PAGE, "exec"), written)
    items = [GraderInput.of("s:0", {}, f"<think>r</think>\n{answer}") for answer in ("one two", "1 2 3 4 5 6")]
    assert [written["short_answer"](item) for item in items] == [1.0, 0.0]
    assert [result.reward for result in written["Fewest"](floor=0.25).grade_batch(items)] == [1.0, 0.25]


def test_the_part_of_a_pipeline_on_the_page_makes_rewarders(tmp_path):
    shown, _ = blocks(PAGE, "yaml")
    path = tmp_path / "part.yaml"
    path.write_text(shown.text)
    resolve_settings(cli={}, env={}, pipeline_path=path)
    made = [build_scorer(entry["name"], entry["options"]) for entry in yaml.safe_load(shown.text)["rewarders"]]
    assert [rewarder.rewarder_id for rewarder in made] == ["number_match", "completion_length_cap"]


def test_the_configuration_on_the_page_loads(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("sums", "letters"):
        (tmp_path / "data" / f"{name}.jsonl").write_text(json.dumps({"prompt": "p", "answer": "1"}) + "\n")
    (tmp_path / "my_graders.py").write_text("\n\n".join(block.text for block in blocks(PAGE, "python")))
    _, shown = blocks(PAGE, "yaml")
    path = tmp_path / "mix.yaml"
    path.write_text(shown.text)
    config = load_mix_config(path)
    assert set(config.datasets) == {"sums", "letters"}
    assert config.total_iterations == 400
    rows = {plain(row[0]) for row in table(TEXT, "key of `python_graders` | names")}
    assert rows == {key for entry in yaml.safe_load(shown.text)["python_graders"].values() for key in entry} - {"init_kwargs"}


def test_the_transcript_of_grade_is_what_the_command_prints(at_home, capsys):
    (lines,) = [each.text for each in blocks(PAGE, "jsonl") if "completion_index" in each.text]
    Path("completions.jsonl").write_text(lines)
    (transcript,) = [each.text for each in blocks(PAGE, "text") if "$ tfgrpo grade" in each.text]
    command, *shown = transcript.rstrip("\n").split("\n")
    arguments = command.removeprefix("$ tfgrpo ").replace("examples/", f"{ROOT}/examples/")
    assert main(shlex.split(arguments)) == 0
    pattern = "\n".join(map(re.escape, shown)).replace("…", r"[\s\S]*")
    assert re.fullmatch(rf"{pattern}\n*", capsys.readouterr().out)


TEXTS = table(TEXT, "scorer | what it accepts | reference | output | score")
WORK = table(TEXT, "scorer | what it accepts | record | attempt | score")


def made(cell: str) -> tuple[str, Any]:
    """Name and scorer of a cell with a name and perhaps options."""
    name, _, options = cell.strip("`").partition(" ")
    return name, build_scorer(name, json.loads(options or "{}"))


def record(cell: str) -> dict[str, object]:
    """Record of a cell: a whole one, one with a list or text as its answer, or an empty one."""
    known = json.loads(cell) if cell[:1] in ("{", "[") else cell
    return known if isinstance(known, dict) else {"answer": known or None}


@pytest.mark.parametrize(("scorer", "accepts", "reference", "output", "expected"), TEXTS)
def test_the_examples_of_texts_score_as_the_page_says(scorer, accepts, reference, output, expected):
    item = GraderInput.of("s:0", record(reference.strip("`")), output.strip("`").replace("\\n", "\n"))
    found = made(scorer)[1].call(item)
    assert round(found.score, 3) == float(expected), found.evidence


@pytest.mark.parametrize(("scorer", "accepts", "record", "attempt", "expected"), WORK)
def test_the_examples_of_work_score_as_the_page_says(scorer, accepts, record, attempt, expected):
    text = attempt.strip("`")
    facts = json.loads(text) if text.startswith("{") else {}
    tokens = facts.pop("completion_tokens", None)
    item = GraderInput("s:0", json.loads(record.strip("`") or "{}"), text, None, None, tokens, attempt=facts)
    found = made(scorer)[1].call(item)
    assert found.score == pytest.approx(float(expected)), found.evidence


@pytest.mark.parametrize(("kind", "rows"), [("Text", TEXTS), ("Work", WORK)])
def test_every_scorer_has_an_example(kind, rows):
    heading = next(line for line in TEXT.splitlines() if line.startswith(f"### {kind}: "))
    assert {made(row[0])[0] for row in rows} == set(re.findall(r"`(\w+)`", heading))


def test_the_limits_on_the_page_are_those_of_the_code():
    assert f"files of at most {FILE_BYTES >> 20} MiB" in TEXT
    assert f"{MOST_STEPS // 1_000_000} million steps" in TEXT
    assert (re.search(r"three times that by the clock", TEXT)[0], re.search(r"after three that do not end", TEXT)[0]) == (
        "three times that by the clock",
        "after three that do not end",
    )
    assert (_BY_THE_CLOCK, _MOST_ENDLESS) == (3, 3)


async def test_the_presets_on_the_page_are_those_of_the_judge_and_its_panel_scores():
    assert {row[0].strip("`") for row in table(page("docs/rewards.md"), "`preset` | asks | score")} == set(Preset.__args__)
    (shown,) = [block.text for block in blocks("docs/rewards.md", "yaml") if "checklist" in block.text]
    (entry,) = yaml.safe_load(shown)["rewarders"]
    points = [{"point": 1, "reason": "", "met": False}, {"point": 2, "reason": "", "met": True}]
    model = FakeJudge(lambda _: {"points": points})
    (verdict,) = await build_scorer(entry["name"], entry["options"]).call(judged(["a"], model))
    assert verdict.score == 0.75
    assert [row["model"] for row in verdict.details["panel"]] == entry["options"]["models"]
