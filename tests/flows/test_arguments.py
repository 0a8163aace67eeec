"""Arguments of the Python functions: what is read as it is meant, and what is refused with everything that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tfgrpo

SMALL = {"dry_run": True, "sample_size": 6, "batch_size": 3, "epochs": 2}
ROWS = [{"id": str(number), "prompt": f"{number} + {number}?", "answer": str(2 * number)} for number in range(20)]


@pytest.fixture(autouse=True)
def _at_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


def said(call, *args, **options):
    with pytest.raises(tfgrpo.ConfigError) as caught:
        call(*args, **options)
    assert not any(Path.cwd().iterdir())
    return str(caught.value)


def double(prompt):
    return f"Answer: {2 * int(prompt.split(maxsplit=1)[0])}"


def test_small_numbers_of_a_frame_stay_as_they_are():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([{**row, "answer": 1.5e-12} for row in ROWS])
    assert {item.answer for item in tfgrpo.plan(frame, **SMALL).data.split.held_out} == {"1.5e-12"}


def test_a_frame_that_is_no_json_is_one_problem_of_the_items():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS)
    for wrong in (pandas.concat([frame, frame[["id"]]], axis=1), frame.assign(raw=b"\xff")):
        assert "items: got a frame that is no JSON: " in said(tfgrpo.learn, wrong, **SMALL)


class Lazy:
    """As much of a frame of Dask, or of a lazy one of polars, as is used; the ``to_json`` of Dask writes files."""

    columns = ("id", "prompt", "answer")

    def __init__(self, method, rows):
        setattr(self, method, lambda: rows)

    def to_json(self, filename):
        raise AssertionError(filename)


def test_lazy_frames_and_tables_of_arrow_are_items():
    table = pa.Table.from_pylist(ROWS)
    for items in (Lazy("compute", iter(ROWS)), Lazy("collect", table), table):
        held_out = tfgrpo.plan(items, **SMALL).data.split.held_out
        assert {item.answer for item in held_out} < {row["answer"] for row in ROWS}


def test_numbers_of_numpy_are_numbers_in_items_and_settings():
    rows = [{**row, "answer": np.int64(2), "metadata": {"weight": np.float32(0.5)}} for row in ROWS]
    plan = tfgrpo.plan(rows, settings={"tfgrpo.epochs": np.int64(3)}, max_calls=np.int64(5000), dry_run=1)
    assert {item.answer for item in plan.data.split.held_out} == {"2"}
    assert plan.settings.tfgrpo.epochs == 3


def test_what_is_no_json_is_named_and_equal_ones_are_counted():
    wrong = [{"id": 1, "answer": float("nan")}, {"id": 2, "raw": b"x"}, *[None] * 100]
    message = said(tfgrpo.learn, wrong, **SMALL)
    assert [line.partition(":")[0] for line in message.splitlines()[:2]] == ["items[0]", "items[1]"]
    assert message.splitlines()[2].startswith("items[2], items[3], items[4] and 97 more: got a value of type NoneType")
    assert len(message.splitlines()) == 3


def test_problems_of_stored_items_speak_of_items():
    message = said(tfgrpo.learn, [ROWS[0], ROWS[0], {"id": None, "prompt": "x"}], **SMALL)
    assert "items[1]: got the id '0' of items[0] again" in message
    assert "items[2]: got null in the field 'id'" in message
    message = said(tfgrpo.learn, [{"id": number, "prompt": 5} for number in range(9)], **SMALL)
    assert message.startswith("items[0], items[1], items[2] and 6 more: got int in the field 'prompt'")


def test_an_unknown_keyword_names_the_nearest_of_python():
    for wrong, nearest in {"rewarder": "rewarders", "agents": "agent", "actor": "agent", "epoch": "epochs"}.items():
        assert f"{wrong}: got an unknown option; accepted: {nearest}" in said(tfgrpo.learn, ROWS, **SMALL, **{wrong: 1})
    for wrong in ("actor", "flow_run_id"):
        assert f"{wrong}: got an unknown option" in said(tfgrpo.select, "x", dry_run=True, **{wrong: "chat"})
    assert "flow_run_id: got an unknown option" in said(tfgrpo.learn, dry_run=True, flow_run_id="x")
    assert "accepted: one that `help(tfgrpo.learn)` lists" in said(tfgrpo.learn, ROWS, dry_run=True, api_key="x")


def test_wrong_keywords_shapes_values_and_items_are_one_error():
    wrong = {"modle": "x", "rewarders": "gt", "tools": b"x", "settings": 3, "epochs": "x", "seed": -1}
    message = said(tfgrpo.learn, [7], dry_run=True, **wrong)
    for source in ("items[0]", *wrong):
        assert f"{source}: got " in message
    for rewarders in ("gt", [{"name": "gt"}]):
        message = said(tfgrpo.select, "x", dry_run=True, refernce="a", rewarders=rewarders, format="xml")
        assert all(f"{source}: got " in message for source in ("refernce", "rewarders", "format"))


def test_settings_that_are_no_json_are_named():
    wrong = {"tfgrpo.min_spread": object(), "gate.group_size": {1j}}
    message = said(tfgrpo.learn, ROWS, settings=wrong, **SMALL)
    assert all(f"settings['{key}']: got " in message for key in wrong)
    rewarders = [{"name": "gt", "options": {"x": object()}}]
    assert said(tfgrpo.learn, ROWS, rewarders=rewarders, **SMALL).startswith("rewarders.0.options.x: got ")


def test_truth_values_are_no_numbers_and_bytes_no_text():
    for name, accepted in (("max_usd", "a number"), ("max_calls", "a whole number"), ("seed", "a whole number")):
        assert said(tfgrpo.plan, ROWS, dry_run=True, **{name: True}).startswith(
            f"{name}: got True; accepted: {accepted}"
        )
    for name in ("model", "eval_dataset", "pipeline"):
        assert said(tfgrpo.plan, ROWS, dry_run=True, **{name: b"x"}).startswith(f"{name}: got b'x'; accepted: text")
    assert said(tfgrpo.select, b"x", dry_run=True) == "prompt: got b'x'; accepted: text"


@pytest.mark.parametrize("wrong", [5, b"x", []])
def test_a_name_of_another_type_is_one_clear_error(wrong):
    assert said(tfgrpo.prompt, wrong).startswith(f"task_id: got {wrong!r}; accepted: 1 to 100 of")
    assert said(tfgrpo.load_run, wrong) == f"run: got {wrong!r}; accepted: the folder of a run, its id or latest"
    assert said(tfgrpo.load_run, "x", out=wrong) == f"out: got {wrong!r}; accepted: a directory for tasks"


def test_messages_name_no_option_of_the_command_line():
    assert said(tfgrpo.learn, ROWS, rewarders=[], **SMALL).startswith("rewarders: got no rewarder that counts")
    assert said(tfgrpo.select, "x", rewarders=["gt"], dry_run=True).startswith("rewarders: got gt without an answer")


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
        {"nr": n, "question": f"{n} + {n}?", "A": "x", "note": f"n{n}", "answer": [f"{2 * n}", f"{2 * n}.0"]}
        for n in range(20)
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
    assert all(
        (f"{seen['nr']} + {seen['nr']}?\nA) x", metadata[seen["nr"]]) == (prompt, seen) for prompt, seen in asked
    )
    for answer, alternatives, seen in graded:
        assert (answer, alternatives) == (f"{2 * seen['nr']}", (f"{2 * seen['nr']}.0",))
        assert seen == metadata[seen["nr"]]
    stored = [json.loads(line) for line in (result.folder / "items.jsonl").read_text().splitlines()]
    assert stored
    assert all(row["alternatives"] == [f"{row['answer']}.0"] and row["item_id"].startswith("q-") for row in stored)


@pytest.mark.parametrize(
    "agent",
    [lambda chat: chat("?"), lambda base_url, api_key: "7", lambda: "7", lambda question="?": "7", lambda *args: "7"],
)
@pytest.mark.parametrize("call", [tfgrpo.plan, tfgrpo.learn])
def test_an_agent_that_cannot_see_its_item_is_refused(agent, call):
    said_of_it = said(call, ROWS, agent=agent, **SMALL)
    assert said_of_it.startswith("agent: got ")
    assert "it takes neither prompt nor item, so it cannot see what it is asked" in said_of_it
