"""Completions are graded offline as a run or the data server would, or refused with every problem before anything is done."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.support.runs import running as kit
from tfgrpo.flows import cli
from tfgrpo.flows.commands.attempts.grade import PipelineGrading
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.pipelines.mix.config import load_mix_config
from tfgrpo.pipelines.server.service import DataService, GradeItem
from tfgrpo.rewarders.runner import ScoreRunner

MIX = kit.ROOT / "examples/data_mix.yaml"


@pytest.fixture
def grade(at_home, capsys):
    def grade(*arguments, code=0):
        assert cli.main(["grade", *map(str, arguments)]) == code
        return capsys.readouterr()

    return grade


def jsonl(path: Path, *rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def mixed():
    """Completions of every dataset of the mix, right and wrong ones, some without the format."""
    records = {name: kit.lines(kit.ROOT / f"examples/data_mix/{name}.jsonl") for name in ("sums", "tickets")}
    return [
        {"sample_id": f"{name}:{number}", "completion": form.format(record["answer"]), "completion_index": index}
        for name, rows in records.items()
        for number, record in enumerate(rows[:6])
        for index, form in enumerate(("<think>a</think>\n{}", "{}", "<think>a</think>\nnone of it", ""))
    ]


def test_a_mix_grades_as_its_server_does_and_says_what_every_grader_gave(grade, tmp_path):
    rows = mixed()
    source, target = jsonl(tmp_path / "c.jsonl", *rows), tmp_path / "graded.jsonl"
    result = json.loads(grade(MIX, source, "--to", target, "--json").out)
    with ScoreRunner() as runner:
        service = DataService(load_mix_config(MIX), runner)
        served = asyncio.run(service.grade([GradeItem(**row) for row in rows]))
    written = kit.lines(target)
    assert [(row["sample_id"], row["completion_index"]) for row in written] == [
        (row["sample_id"], row["completion_index"]) for row in rows
    ]
    assert [row["reward"] for row in written] == [each.reward for each in served]
    assert [row["parts"] for row in written] == [dict(each.parts) for each in served]
    assert len({row["reward"] for row in written}) > 3
    for name, block in result["datasets"].items():
        own = [row for row in written if row["sample_id"].startswith(f"{name}:")]
        for part, figures in block["parts"].items():
            values = [row["parts"][part] for row in own]
            assert figures["mean"] == pytest.approx(sum(values) / len(values))
            assert (figures["lowest"], figures["highest"]) == (min(values), max(values))
    assert result["parts"]["right_number"]["graded"] == 24
    assert result["parts"]["reasoning_format"]["graded"] == 48
    assert result["reward"]["graded"] == result["completions"] == 48
    assert target.stat().st_mode & 0o777 == 0o600
    said = grade(MIX, source).out.splitlines()
    assert said[0].split() == ["dataset", "part", "graded", "ungraded", "mean", "lowest", "highest"]
    parts = ["right_number", "reasoning_format", "ticket_label", "reward"]
    assert [line.split()[:2] for line in said[1:5]] == [["all", part] for part in parts]


def test_the_attempts_of_a_run_are_worth_offline_what_they_were_worth_in_it(grade, small_run, tmp_path):
    target = tmp_path / "graded.jsonl"
    grade("tfgrpo-learning", small_run.paths.rollouts, "--to", target)
    rows = kit.lines(small_run.paths.rollouts)
    assert [row["reward"] for row in kit.lines(target)] == [row["outcome"]["reward"] for row in rows]
    assert [row["evidence"]["gt"] for row in kit.lines(target)] == [row["scores"][0]["evidence"] for row in rows]
    assert len({row["outcome"]["reward"] for row in rows}) == 2


PIPELINE = """\
pack: general
rewarders:
  - name: {name}
    options: {options}
dataset: {{path: items.jsonl}}
"""


@pytest.fixture
def pipeline(at_home):
    def pipeline(name="gt", options="{match: numeric}"):
        items = [{"id": str(number), "prompt": f"{number} + {number}?", "answer": str(2 * number)} for number in range(4)]
        jsonl(at_home / "items.jsonl", *items)
        path = at_home / "my.yaml"
        path.write_text(PIPELINE.format(name=name, options=options))
        return path

    return pipeline


def test_ids_and_texts_go_by_the_names_that_datasets_runs_and_trainers_give_them(grade, pipeline, tmp_path):
    source = jsonl(
        tmp_path / "c.jsonl",
        {"id": 1, "output": "Answer: 2"},
        {"item_id": "2", "completion": "Answer: 4", "completion_tokens": 3},
        {"sample_id": "3", "id": "of the line", "completion": "Answer: 7", "output": "Answer: 6"},
    )
    result = json.loads(grade(pipeline(), source, "--dry-run", "--json").out)
    assert (result["simulated"], result["spent"]) == (False, None)
    assert result["parts"]["gt"] == {"graded": 3, "ungraded": 0, "mean": 2 / 3, "lowest": 0.0, "highest": 1.0}


def test_every_line_and_id_that_cannot_be_graded_is_named_at_once_and_nothing_is_written(grade, pipeline, tmp_path):
    source = tmp_path / "c.jsonl"
    source.write_text(
        '{"id": "1", "completion": "2"}\n{torn\n[1]\n\n{"id": "9", "completion": "x"}\n{"completion": "x"}\n{"id": "1"}\n'
        '{"id": "1", "completion": 3}\n{"id": "1", "completion": "x", "completion_tokens": "many"}\n'
        '{"id": true, "completion": "x"}\n'
    )
    before = {*Path().rglob("*"), *tmp_path.iterdir()}
    said = grade(pipeline(), source, "--to", "out.txt", "--grader-timeout", "5", "--max-calls", "none", "--json", code=2)
    problems = {each["source"]: each for each in json.loads(said.out)["problems"]}
    assert len(problems) == 10
    assert {f"{source}:{line}" for line in (2, 3, 5, 6, 7, 8, 9, 10)} | {"--to", "--grader-timeout"} == {*problems}
    assert problems[f"{source}:5"]["given"] == "the unknown id '9'"
    assert "items.jsonl" in problems[f"{source}:5"]["accepted"]
    assert problems[f"{source}:9"]["given"] == "'many' in 'completion_tokens'"
    assert {*Path().rglob("*"), *tmp_path.iterdir()} - before == {Path("items.jsonl"), Path("my.yaml")}
    unknown = grade(MIX, jsonl(tmp_path / "d.jsonl", {"id": "sums:99", "completion": ""}), "--max-calls", "9", code=2)
    assert "got the unknown id 'sums:99'; accepted: <dataset>:<number of the record>: sums:0 to 15" in unknown.err
    assert "--set budget.max_calls: got a setting with a data mix; accepted: it with a pipeline" in unknown.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["my.yaml"], "COMPLETIONS: got nothing"),
        (["nowhere.yaml", "c.jsonl"], "CONFIG: got 'nowhere.yaml', where no file is"),
        (["my.yaml", "none.jsonl"], "none.jsonl: got No such file"),
        (["my.yaml", "empty.jsonl"], "empty.jsonl: got no completions"),
        (["my.yaml", "c.jsonl", "--to", "c.jsonl"], "--to: got c.jsonl; accepted: a file other than the one that is read"),
        (
            ["my.yaml", "c.jsonl", "--to", "there.jsonl"],
            "which is there already; accepted: a new file, or an existing one with",
        ),
        ([MIX, "c.jsonl", "--grader-timeout", "0"], "--grader-timeout: got '0'"),
    ],
)
def test_a_mistake_is_one_clear_error(arguments, said, grade, pipeline):
    pipeline()
    jsonl(Path("c.jsonl"), {"id": "1", "completion": "Answer: 2"})
    Path("empty.jsonl").write_text("")
    Path("there.jsonl").write_text("mine")
    assert said in grade(*arguments, code=2).err
    assert Path("there.jsonl").read_text() == "mine"


def test_what_is_ungraded_is_counted_by_reason_and_never_a_zero(grade, pipeline, tmp_path):
    Path("mine.py").write_text(
        "def mine(output, answer):\n"
        "    if 'boom' in output:\n        raise RuntimeError('out of order')\n"
        "    return 1.0 if answer in output else 0.0\n"
    )
    rows = [{"id": "1", "completion": text} for text in ("2", "boom", "boom 7", "", " \n")]
    source, target = jsonl(tmp_path / "c.jsonl", *rows), tmp_path / "graded.jsonl"
    config = pipeline("mine.py:mine", "{}")
    said = grade(config, source, "--to", target).out
    assert re.search(r"^reward\s+1\s+4\s+1\.000\s+1\.000\s+1\.000$", said, re.MULTILINE)
    assert "4 completions ungraded, for:\n" in said
    assert "       2  completion: empty" in said
    assert re.search(r"^       2  .*out of order", said, re.MULTILINE)
    assert [row["reward"] for row in kit.lines(target)] == [1.0, None, None, None, None]
    none = grade(config, jsonl(tmp_path / "d.jsonl", {"id": "1", "completion": ""}), code=1).out
    assert re.search(r"^reward\s+0\s+1\s+–\s+–\s+–$", none, re.MULTILINE)
    grade(config, source, "--to", target, "--force")


def test_a_reward_outside_its_declared_range_is_warned_of_as_a_run_does(grade, pipeline, tmp_path):
    Path("stars.py").write_text("def stars(output, answer):\n    return 5.0 if answer in output else 1.0\n")
    source = jsonl(tmp_path / "c.jsonl", {"id": "1", "completion": "2"}, {"id": "2", "completion": "2"})
    assert "rewards outside 0 to 1, their declared range" in grade(pipeline("stars.py:stars", "{}"), source).err
    config = pipeline("stars.py:stars", "{}\n    score_range: [1, 5]")
    assert "declared range" not in grade(config, source).err


def test_the_completions_of_an_item_are_ranked_together_wherever_they_stand(grade, pipeline, tmp_path):
    config = pipeline()
    config.write_text(config.read_text().replace("dataset:", "  - name: relative\n    weight: 0\ndataset:"))
    rows = [{"id": name, "completion": f"Answer: {text}"} for name, text in (("1", 2), ("2", 4), ("1", 3))]
    jsonl(tmp_path / "c.jsonl", *rows)
    grade(config, tmp_path / "c.jsonl", "--to", tmp_path / "graded.jsonl")
    ranks = [row["parts"].get("relative") for row in kit.lines(tmp_path / "graded.jsonl")]
    assert ranks == [1.0, None, 0.0]


def test_a_judge_without_a_model_is_refused_and_a_simulated_one_says_so(grade, pipeline, tmp_path):
    source = jsonl(tmp_path / "c.jsonl", {"id": "1", "completion": "Answer: 2"})
    refused = grade(pipeline("judge", "{}"), source, code=2).err
    assert "rewarders: judge: got a judge and no model to ask; accepted: --model and --base-url" in refused
    said = grade(pipeline("judge", "{}"), source, "--dry-run", "--json")
    result = json.loads(said.out)
    assert (result["simulated"], result["spent"]["calls"]) == (True, 1)
    assert "(SIMULATED)" in said.err


@pytest.mark.untraced
def test_a_judge_asks_the_model_of_the_pipeline_within_its_budget(grade, pipeline, tmp_path):
    config = pipeline("judge", "{}")
    config.write_text(config.read_text() + "tfgrpo: {group_size: 2}\ngate: {group_size: 2}\n")
    source = jsonl(tmp_path / "c.jsonl", *({"id": str(n), "completion": f"Answer: {2 * n}"} for n in range(4)))
    with kit.Server() as server:
        asked = ["--model", "simulated", "--base-url", server.url]
        result = json.loads(grade(config, source, *asked, "--json").out)
        assert (result["reward"]["graded"], result["spent"]["calls"], len(server.bodies)) == (4, 4, 4)
        assert all("Answer: " in body for body in server.bodies)
        server.bodies.clear()
        capped = grade(config, source, *asked, "--max-calls", "2", code=3)
        assert len(server.bodies) == 2
    assert re.search(r"^reward\s+2\s+2 ", capped.out, re.MULTILINE)
    assert "2 completions ungraded, for:" in capped.out
    assert "stopped: max_calls 2 is reached" in capped.err
    assert not Path("out").exists()


def test_a_large_file_is_graded_in_its_order(grade, pipeline, tmp_path):
    rows = [{"id": str(n % 4), "completion": f"Answer: {n % 7}"} for n in range(1_100)]
    grade(pipeline(), jsonl(tmp_path / "c.jsonl", *rows), "--to", tmp_path / "graded.jsonl")
    written = kit.lines(tmp_path / "graded.jsonl")
    assert [row["reward"] for row in written] == [float(n % 7 == 2 * (n % 4)) for n in range(1_100)]
    many = [{"sample_id": f"sums:{n % 16}", "completion": str(n)} for n in range(1_100)]
    grade(MIX, jsonl(tmp_path / "d.jsonl", *many), "--to", tmp_path / "graded.jsonl", "--force")
    assert [row["sample_id"] for row in kit.lines(tmp_path / "graded.jsonl")] == [row["sample_id"] for row in many]


def test_an_id_is_looked_up_without_a_walk_over_all_items(at_home):
    class Items(dict):
        def values(self):
            raise AssertionError("each of very many completions would walk over very many items")

    grading = PipelineGrading.load(RunRequest(dry_run=True).resolved({}))
    known, grading.items = next(iter(grading.items)), Items(grading.items)
    assert grading.unknown(known) == ""
