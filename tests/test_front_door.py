"""``import tfgrpo`` learns, plans and selects with Python callables, in a script, a running loop and a worker thread."""

import asyncio
import inspect
import json
import os
import pydoc
import re
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest

import tfgrpo
from tests.support.runs.running import SHORT, Server
from tfgrpo.flows.api import RUN_KEYWORDS, SELECT_KEYWORDS
from tfgrpo.flows.orchestration.request import RunRequest, SelectRequest
from tfgrpo.pipelines.settings.layers import fields_by_key
from tfgrpo.stores.errors import DatasetError, RunAborted, SettingsError, StoreError

SMALL = {"dry_run": True, "sample_size": 4, "batch_size": 2, "epochs": 2}
ROWS = [{"id": str(number), "prompt": f"{number} + {number}?", "answer": str(2 * number)} for number in range(20)]


@pytest.fixture(autouse=True)
def _at_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


def double(prompt: str) -> str:
    return f"Answer: {2 * int(prompt.split(maxsplit=1)[0])}"


def test_an_agent_that_changes_the_working_directory_moves_no_later_run(tmp_path):
    (tmp_path / "else").mkdir()

    def agent(prompt, chat):
        os.chdir(tmp_path / "else")
        return chat(prompt)

    nights = [tfgrpo.learn(ROWS, agent=agent, task_id="t", **SMALL) for _ in range(2)]
    for _ in range(2):
        tfgrpo.select("2 + 2?", k=2, agent=agent, task_id="t", dry_run=True)
    assert Path.cwd() == tmp_path
    assert [*(tmp_path / "else").iterdir()] == []
    assert [*(tmp_path / "out" / "t").glob("select-*")] == []
    assert [night.folder.parent for night in nights] == [tmp_path / "out" / "t" / "runs"] * 2


def test_the_names_are_thirteen_each_with_an_example_and_its_options_in_its_help():
    assert len(tfgrpo.__all__) == 13
    assert set(tfgrpo.__all__) <= set(dir(tfgrpo))
    for name in tfgrpo.__all__:
        doc = getattr(tfgrpo, name).__doc__
        assert "Examples:" in doc, name
    with pytest.raises(AttributeError, match="no attribute 'train'"):
        _ = tfgrpo.train
    for call, options in ((tfgrpo.learn, RUN_KEYWORDS), (tfgrpo.plan, RUN_KEYWORDS), (tfgrpo.select, SELECT_KEYWORDS)):
        parameters = inspect.signature(call).parameters
        assert parameters.keys() >= options.keys()
        assert all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    assert "group_size: int" in pydoc.render_doc(tfgrpo.alearn)


def test_the_keywords_are_the_fields_of_the_requests_with_the_types_that_the_settings_declare():
    for typed, kind, beside, own in (
        (
            RUN_KEYWORDS,
            RunRequest,
            {"dataset", "actor", "flow_run_id", "measures", "test", "caps", "as_begun"},
            {"agent", "tools", "rewarders"},
        ),
        (SELECT_KEYWORDS, SelectRequest, {"prompt", "k", "actor", "caps"}, {"agent"}),
    ):
        assert set(typed) == {*kind.model_fields, *kind.KEYS} - beside | own
        fields = {name: fields_by_key()[key] for name, key in kind.KEYS.items() if name not in {"out", *beside}}
        for name, field in fields.items():
            assert typed[name] == (Literal[field.choices] if field.choices else field.type), name


def test_a_run_on_the_simulated_model_has_a_result_that_can_be_loaded_again(capfd):
    result = tfgrpo.learn(dry_run=True, sample_size=10, batch_size=5, task_id="t")
    assert (result.status, result.task_id, result.simulated) == ("finished", "t", True)
    assert result.decision in {"in force", "not yet"}
    assert result.decision == "in force" or result.lessons == (), "what is only on trial is not in force"
    assert result.usage.calls > 0
    assert result.usage.cost_usd > 0
    assert result.report.is_file()
    assert [tfgrpo.load_run(name) for name in (result.folder, result.run_id, "latest")] == [result] * 3
    assert tfgrpo.load_run("latest", task_id="t", out="out") == result
    said = str(result).splitlines()
    assert said[0].startswith("    night  ")
    assert result.run_id in said[0]
    assert said[-1].startswith("     next  tfgrpo experiences ")
    assert len(said) <= 10
    assert "held out " in result._repr_html_()
    assert capfd.readouterr() == ("", "")


def test_rows_are_the_rollouts_and_a_frame_of_them_names_what_it_needs(monkeypatch, capfd):
    result = tfgrpo.learn(ROWS, agent=double, progress=True, **SMALL)
    said = capfd.readouterr()
    assert (said.out, "\nNot yet: " in said.err, "epoch 1/2 train" in said.err) == ("", True, True)
    usage = result.usage
    assert (usage.calls, usage.tokens, usage.cost_usd) == (None, None, None), "of an agent that calls models itself"
    assert "unknown" in str(usage)
    hostile = replace(
        result, message="<b>", folder=Path(), lessons=(tfgrpo.Lesson("exp-1", "do", "<script>alert(1)</script>"),)
    )
    assert "<script>" not in hostile._repr_html_()
    assert "&lt;b&gt;" in hostile._repr_html_()
    rows = result.rows()
    assert list(rows[0])[:8] == ["item_id", "epoch", "arm", "index", "outcome", "reward", "reason", "output"]
    assert {row["outcome"] for row in rows} == {"scored"}
    assert {row["reward"] for row in rows} == {1.0}
    assert rows[0]["item_id"] in {row["id"] for row in ROWS}
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'tfgrpo\[pandas\]'"):
        result.frame()
    frames = type(sys)("pandas")
    frames.DataFrame = list
    monkeypatch.setitem(sys.modules, "pandas", frames)
    assert result.frame() == rows


def test_lambdas_and_local_functions_are_agents_and_rewarders():
    seen = []

    async def agent(prompt, system):
        seen.append(system)
        return double(prompt)

    graded = [{"name": lambda output, answer: float(output.endswith(answer)), "weight": 3.0}, lambda output, answer: 0.5]
    result = tfgrpo.learn(ROWS, agent=agent, rewarders=graded, **SMALL)
    assert len(seen) == len(result.rows())
    assert {row["reward"] for row in result.rows()} == {0.875}
    manifest = json.loads((result.folder / "manifest.json").read_text())
    assert manifest["settings"]["actor"]["kind"].endswith(".<locals>.agent")
    assert "#2" in manifest["settings"]["rewarders"][1]["name"]


class Pandas:
    """As much of a frame of pandas as is used."""

    columns = ("id", "prompt", "answer")

    def to_json(self, **options):
        assert (options["orient"], options["lines"]) == ("records", True)
        return "".join(f"{json.dumps({**row, 'metadata': None})}\n" for row in ROWS)


class Frame:
    """As much of a frame of polars, or of a lazy one, as is used; iterating one gives its columns."""

    columns = ("id", "prompt", "answer")

    def __init__(self, method, rows):
        setattr(self, method, lambda: rows)

    def __iter__(self):
        return iter([["1", "2"]])


class Dask(Frame):
    """The method of that name writes files."""

    def to_json(self, filename):
        raise AssertionError(filename)


class HuggingFace(list):
    """As much of a ``datasets.Dataset`` as can be mistaken for a frame."""

    def to_json(self, path):
        raise AssertionError(path)


def test_items_are_a_path_dicts_a_frame_or_a_table(tmp_path):
    path, table = tmp_path / "items.jsonl", pa.Table.from_pylist(ROWS)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    frames = [Pandas(), Frame("to_dicts", ROWS), Dask("compute", iter(ROWS)), Frame("collect", table)]
    for items in (path, str(path), ROWS, iter(ROWS), HuggingFace(ROWS), table, *frames):
        plan = tfgrpo.plan(items, agent=double, **SMALL)
        every = [*plan.learn_items, *plan.data.split.held_out]
        assert {item.answer for item in every} == {row["answer"] for row in ROWS}
        assert plan.forecast.calls.high > 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["items.jsonl"]


def test_pandas_goes_in_and_comes_out():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([*ROWS, {"id": "x", "prompt": "1 + 1?"}])
    result = tfgrpo.learn(frame, agent=double, settings={"dataset.held_out": 0.5}, **SMALL)
    assert result.frame().reward.mean() == 1.0
    small = tfgrpo.plan(frame.assign(answer=1.5e-12), settings={"dataset.held_out": 0.5}, **SMALL)
    assert {item.answer for item in small.data.split.held_out} == {"1.5e-12"}
    for wrong in (pandas.concat([frame, frame[["id"]]], axis=1), frame.assign(raw=b"\xff")):
        with pytest.raises(DatasetError, match="items: got a frame that is no JSON: "):
            tfgrpo.learn(wrong, **SMALL)


def test_functions_are_tools():
    calls = []

    def look_up(number: int) -> int:
        """Twice a number."""
        calls.append(number)
        return 2 * number

    assert "look_up" in str(tfgrpo.plan(ROWS, tools=[look_up], **SMALL).settings.actor.tools)
    with pytest.raises(SettingsError, match="tools: got "):
        tfgrpo.plan(ROWS, tools=[lambda number: number], **SMALL)


def said(call, *args, kind=tfgrpo.ConfigError, **options):
    """Return what is refused before anything is written."""
    with pytest.raises(kind) as caught:
        call(*args, **options)
    assert not any(Path.cwd().iterdir())
    return str(caught.value)


def test_problems_of_items_speak_of_items_and_of_arguments_as_python_does_and_equal_ones_are_counted():
    for items, message in (
        ({"id": ["a"], "prompt": ["b"]}, "items: got a value of type dict; accepted: a path, a list of dicts"),
        (5, "items: got a value of type int"),
        (["a"], "items[0]: got a value of type str; accepted: a dict of JSON values"),
    ):
        assert message in said(tfgrpo.plan, items, kind=DatasetError, agent=double, **SMALL)
    for call in (tfgrpo.plan, tfgrpo.learn):
        message = said(call, [{"id": "1", "prompt": "x"}, {"prompt": "y"}], agent=lambda question: "", **SMALL)
        for part in ("items[1]: got no 'id' among", "settings={'dataset.fields.id': 'none'}", "agent: got "):
            assert part in message
        assert ".jsonl" not in message
    message = said(tfgrpo.learn, [ROWS[0], ROWS[0], {"id": None, "prompt": "x"}], **SMALL)
    assert "items[1]: got the id '0' of items[0] again" in message
    assert "items[2]: got null in the field 'id'" in message
    message = said(tfgrpo.learn, [{"id": number, "prompt": 5} for number in range(9)], **SMALL)
    assert message.startswith("items[0], items[1], items[2] and 6 more: got int in the field 'prompt'")
    lines = said(tfgrpo.learn, [{"id": 1, "answer": float("nan")}, {"id": 2, "raw": b"x"}, *[None] * 100], **SMALL).splitlines()
    assert [line.partition(":")[0] for line in lines[:2]] == ["items[0]", "items[1]"]
    assert lines[2].startswith("items[2], items[3], items[4] and 97 more: got a value of type NoneType")
    assert len(lines) == 3


def test_every_problem_is_one_error_and_nothing_is_written():
    items, settings = [*ROWS, {"id": object()}, 7, {"prompt": "\ud800"}], {"nope": 1, "gate.group_size": 0}
    message = said(tfgrpo.learn, items, kind=DatasetError, epoch=3, epochs="x", seed=[1], settings=settings)
    for part in (
        "items[20]: got ",
        "items[21]: got ",
        "items[22]: got 'utf-8' codec can't encode",
        "epoch: got an unknown option; accepted: epochs",
        "epochs: got 'x'; accepted: a whole number",
        "seed: got ",
        "settings['nope']: got an unknown setting",
        "settings['gate.group_size']: got 0",
    ):
        assert part in message
    for command in ({"test": True}, {"measures": {"rollouts": 60}}):  # the sealed items are opened by the command alone
        assert "got an unknown option; accepted: the command tfgrpo" in said(tfgrpo.plan, dry_run=True, **command)
    assert re.search("agent: got .*nowhere", said(tfgrpo.learn, ROWS, agent="nowhere:agent", dry_run=True))


def test_it_runs_inside_a_running_loop_and_concurrently_in_one_process():
    def agent_of(number):
        return lambda prompt: f"Answer: {number}"

    async def notebook():
        first = tfgrpo.learn(ROWS, agent=double, task_id="first", **SMALL)
        learning = [tfgrpo.alearn(ROWS, agent=agent_of(each), task_id=f"t{each}", **SMALL) for each in (10, 20)]
        best = tfgrpo.select("2 + 2?", k=2, agent=double, rewarders=["gt"], answer="4", dry_run=True)
        return first, await asyncio.gather(*learning), best.text

    first, others, text = asyncio.run(notebook())
    assert {row["reward"] for row in first.rows()} == {1.0}
    assert [{row["output"] for row in each.rows()} for each in others] == [{"Answer: 10"}, {"Answer: 20"}]
    assert text == "Answer: 4"
    for each in (first, *others):
        assert tfgrpo.load_run(each.run_id) == each, "of whichever task"


def test_items_without_a_pipeline_are_a_task_of_their_own_with_the_general_pack(monkeypatch):
    Path("Meine Aufgaben.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    of_file = tfgrpo.plan("Meine Aufgaben.jsonl", agent=double, **SMALL)
    assert (of_file.settings.task_id, of_file.pack.manifest.id) == ("meine-aufgaben", "general")
    of_list, again, other = (tfgrpo.plan(rows, agent=double, **SMALL) for rows in (ROWS, iter(ROWS), ROWS[1:]))
    assert re.fullmatch("items-[0-9a-f]{8}", of_list.settings.task_id)
    assert of_list.settings.task_id == again.settings.task_id != other.settings.task_id
    assert of_list.pack.manifest.id == "general"
    mine = tfgrpo.plan(ROWS, agent=double, task_id="mine", pack="arithmetic", **SMALL)
    assert (mine.settings.task_id, mine.pack.manifest.id) == ("mine", "arithmetic")
    assert tfgrpo.plan(ROWS, agent=double, settings={"task_id": "mine"}, **SMALL).settings.task_id == "mine"
    shipped = tfgrpo.plan(ROWS, agent=double, pipeline="tfgrpo-learning", **SMALL)
    assert (shipped.settings.task_id, shipped.pack.manifest.id) == ("tfgrpo-learning", "arithmetic")
    assert tfgrpo.plan(dry_run=True).settings.task_id == "tfgrpo-learning", "the items that ship"
    monkeypatch.setenv("TFGRPO_TASK_ID", "of-the-environment")
    assert tfgrpo.plan(ROWS, agent=double, **SMALL).settings.task_id == "of-the-environment"


def test_the_prompt_holds_the_lessons_in_force_and_the_result_what_they_gain_and_how_likely():
    with pytest.raises(SettingsError, match="a task with runs under out: there is none"):
        tfgrpo.prompt("t")
    result = tfgrpo.learn(SHORT, dry_run=True, pipeline="tfgrpo-learning", task_id="t", sample_size=10, batch_size=5, epochs=3)
    text = tfgrpo.prompt("t")
    assert result.decision == "in force"
    for interval in (result.gain, result.held_out):
        assert interval.low < interval.estimate < interval.high
        assert (interval.n > 0, interval.confidence) == (True, 0.95)
    assert result.likely > 0.8
    assert result.lessons
    assert {lesson.polarity for lesson in result.lessons} <= {"do", "avoid"}
    assert all(lesson.text in text for lesson in result.lessons)
    assert result.lessons[0].text in result._repr_html_()
    assert tfgrpo.load_run("latest", task_id="t").lessons == result.lessons
    manifest = result.folder / "manifest.json"
    damaged = {**json.loads(whole := manifest.read_text()), "tfgrpo": 5, "settings": {"model": 5}}
    manifest.write_text(json.dumps(damaged))
    with pytest.raises(StoreError, match="not of the expected shape"):
        tfgrpo.prompt("t")
    assert f"look at  {result.folder}: not of the expected shape" in str(result)
    manifest.write_text(whole)
    capped = tfgrpo.learn(dry_run=True, task_id="t", max_calls=20)
    assert (capped.decision, capped.lessons) == (None, result.lessons), "what was in force before is so after"


def test_select_takes_callables_and_names_and_says_what_else_it_was_given():
    best = tfgrpo.select("2 + 2?", k=2, agent=double, rewarders=["gt=2", lambda output, answer: 1.0], answer="4", dry_run=True)
    assert (best.text, best.status) == ("Answer: 4", "finished")
    assert repr(best) == f"Selected(finished: {best.message})"
    plan = tfgrpo.plan(ROWS, agent=double, **SMALL)
    assert str(plan.forecast) in repr(plan)
    assert len(repr(plan)) < 500
    with pytest.raises(SettingsError, match="rewarders: got a mapping; accepted: callables and names"):
        tfgrpo.select("2 + 2?", rewarders=[{"name": "gt"}], answer="4", dry_run=True)
    with pytest.raises(SettingsError, match="temperature: got an unknown option"):
        tfgrpo.select("2 + 2?", temperature=1, dry_run=True)


def test_a_stopped_run_is_a_result_and_is_resumed_and_replayed_with_the_same_function_without_its_task_being_named():
    def agent(prompt, chat):
        return chat(prompt)

    stopped = tfgrpo.learn(ROWS, agent=agent, max_calls=5, allow_zero=True, **SMALL)
    assert (stopped.status, stopped.decision, stopped.task_id[:6]) == ("stopped", None, "items-")
    assert stopped.folder.parts[-3] == stopped.task_id
    assert tfgrpo.load_run("latest") == stopped
    with pytest.raises(SettingsError, match="a function of a script or notebook"):
        tfgrpo.learn(resume=stopped.run_id, max_calls=500)
    finished = tfgrpo.learn(resume="latest", agent=agent, max_calls=500)
    assert (finished.status, finished.run_id, finished.task_id) == ("finished", stopped.run_id, stopped.task_id)
    assert tfgrpo.learn(replay="latest", agent=agent).status == "finished"


def test_a_run_that_fails_is_an_error_that_says_where_its_files_are():
    with Server() as server:
        server.before_answer = lambda number: 401 if number > 6 else None
        with pytest.raises(RunAborted, match="ModelAuthRefused") as caught:
            tfgrpo.learn(ROWS, agent="chat", model="simulated", base_url=server.url, sample_size=6, task_id="t")
    assert "out/t/runs/" in caught.value.__notes__[0]


def test_cancelling_stops_the_run_so_that_it_can_be_resumed():
    started = threading.Event()

    async def agent(prompt):
        started.set()
        await asyncio.sleep(0.05)
        return double(prompt)

    async def cancelled():
        learning = asyncio.ensure_future(
            tfgrpo.alearn(ROWS, agent=agent, task_id="t", **{**SMALL, "concurrency": 2, "group_size": 2})
        )
        assert await asyncio.to_thread(started.wait, 30)
        learning.cancel()
        await learning

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert tfgrpo.load_run("latest").status == "stopped"
    assert tfgrpo.learn(resume="latest", agent=agent, task_id="t").status == "finished"


def test_numbers_of_numpy_are_numbers_in_items_and_settings():
    rows = [{**row, "answer": np.int64(2), "metadata": {"weight": np.float32(0.5)}} for row in ROWS]
    plan = tfgrpo.plan(rows, settings={"tfgrpo.epochs": np.int64(3)}, max_calls=np.int64(5000), dry_run=1)
    assert {item.answer for item in plan.data.split.held_out} == {"2"}
    assert plan.settings.tfgrpo.epochs == 3


def test_an_unknown_keyword_names_the_nearest_of_python():
    for wrong, nearest in {"rewarder": "rewarders", "agents": "agent", "actor": "agent", "dataset": "items"}.items():
        assert f"{wrong}: got an unknown option; accepted: {nearest}" in said(tfgrpo.learn, ROWS, **SMALL, **{wrong: 1})
    for wrong in ("actor", "flow_run_id"):
        assert f"{wrong}: got an unknown option" in said(tfgrpo.select, "x", dry_run=True, **{wrong: "chat"})
    assert "flow_run_id: got an unknown option" in said(tfgrpo.learn, dry_run=True, flow_run_id="x")
    assert "accepted: one that `help(tfgrpo.learn)` lists" in said(tfgrpo.learn, ROWS, dry_run=True, api_key="x")


def test_wrong_keywords_shapes_values_and_items_are_one_error():
    wrong = {"tfgrpo.min_spread": object(), "gate.group_size": {1j}}
    message = said(tfgrpo.learn, ROWS, settings=wrong, **SMALL)
    assert all(f"settings['{key}']: got " in message for key in wrong)
    for rewarders, problem in (
        ([{"name": "gt", "options": {"x": object()}}], "rewarders.0.options.x: got "),
        ([], "rewarders: got no weight above 0 on a rewarder"),
    ):
        assert said(tfgrpo.learn, ROWS, rewarders=rewarders, **SMALL).startswith(problem)
    assert said(tfgrpo.select, "x", rewarders=["gt"], dry_run=True).startswith("rewarders: got gt without an answer")
    runner = {"agent": lambda prompt: "x", "task_runner": "dask", "dry_run": True}
    assert "task_runner: got 'dask'; accepted: 'threads', or functions of a module" in said(tfgrpo.plan, ROWS, **runner)
    wrong = {"modle": "x", "rewarders": "gt", "tools": b"x", "settings": 3, "epochs": "x", "seed": -1}
    message = said(tfgrpo.learn, [7], dry_run=True, **wrong)
    for source in ("items[0]", *wrong):
        assert f"{source}: got " in message
    for rewarders in ("gt", [{"name": "gt"}]):
        message = said(tfgrpo.select, "x", dry_run=True, refernce="a", rewarders=rewarders, format="xml")
        assert all(f"{source}: got " in message for source in ("refernce", "rewarders", "format"))


def test_truth_values_are_no_numbers_and_bytes_no_text():
    for name, accepted in (("max_usd", "a number"), ("max_calls", "a whole number"), ("seed", "a whole number")):
        assert said(tfgrpo.plan, ROWS, dry_run=True, **{name: True}).startswith(f"{name}: got True; accepted: {accepted}")
    for name in ("model", "eval_dataset", "pipeline"):
        assert said(tfgrpo.plan, ROWS, dry_run=True, **{name: b"x"}).startswith(f"{name}: got b'x'; accepted: text")
    assert said(tfgrpo.select, b"x", dry_run=True) == "prompt: got b'x'; accepted: text"


@pytest.mark.parametrize("wrong", [5, b"x", []])
def test_a_name_of_another_type_is_one_clear_error(wrong):
    assert said(tfgrpo.prompt, wrong).startswith(f"task_id: got {wrong!r}; accepted: 1 to 100 of")
    assert said(tfgrpo.load_run, wrong) == f"run: got {wrong!r}; accepted: the folder of a run, its id or latest"
    assert said(tfgrpo.load_run, "x", out=wrong) == f"out: got {wrong!r}; accepted: a directory for tasks"


def test_a_rewarder_gets_its_arguments_by_name_and_an_unclear_one_is_refused():
    def contains(answer, output):
        return answer in output

    def metric(gold, pred, trace=None):
        return {"score": float(gold.answer in pred.answer and gold.question == f"{gold.kind}?"), "feedback": "right"}

    def unclear(a, b):
        return 1.0

    assert "got a function of (a, b), where a and b may be anything; accepted: a function of (output, answer)" in said(
        tfgrpo.learn, ROWS, agent=double, rewarders=[unclear], **SMALL
    )
    rows = [{**row, "metadata": {"kind": row["prompt"][:-1]}} for row in ROWS]
    result = tfgrpo.learn(rows, agent=double, rewarders=[contains, metric], **SMALL)
    assert {row["reward"] for row in result.rows()} == {1.0}


def test_templates_further_columns_and_several_answers_reach_agent_rewarder_and_files(tmp_path):
    rows = [
        {"nr": n, "question": f"{n} + {n}?", "A": "x", "note": f"n{n}", "answer": [f"{2 * n}", f"{2 * n}.0"]} for n in range(20)
    ]
    asked, graded = [], []

    def agent(prompt, item):
        asked.append((prompt, dict(item.metadata)))
        return double(prompt)

    def scores(context):
        graded.append((context.answer, context.alternatives, dict(context.metadata)))
        return [0.5 for _ in context.outputs]

    fields = {"dataset.fields.id": "q-{nr}", "dataset.fields.prompt": "{question}\nA) {A}"}
    result = tfgrpo.learn(rows, agent=agent, rewarders=[scores], settings=fields, **SMALL)
    assert {row["reward"] for row in result.rows()} == {0.5}
    metadata = {n: {"nr": n, "question": f"{n} + {n}?", "A": "x", "note": f"n{n}"} for n in range(20)}
    assert all((f"{seen['nr']} + {seen['nr']}?\nA) x", metadata[seen["nr"]]) == (prompt, seen) for prompt, seen in asked)
    for answer, alternatives, seen in graded:
        assert (answer, alternatives) == (f"{2 * seen['nr']}", (f"{2 * seen['nr']}.0",))
        assert seen == metadata[seen["nr"]]
    stored = [json.loads(line) for line in (result.folder / "items.jsonl").read_text().splitlines()]
    assert stored
    assert all(row["alternatives"] == [f"{row['answer']}.0"] and row["item_id"].startswith("q-") for row in stored)


@pytest.mark.parametrize(
    "agent", [lambda chat: chat("?"), lambda base_url, api_key: "7", lambda: "7", lambda question="?": "7", lambda *args: "7"]
)
@pytest.mark.parametrize("call", [tfgrpo.plan, tfgrpo.learn])
def test_an_agent_that_cannot_see_its_item_is_refused(agent, call):
    said_of_it = said(call, ROWS, agent=agent, **SMALL)
    assert said_of_it.startswith("agent: got ")
    assert "it takes neither prompt nor item, so it cannot see what it is asked" in said_of_it
