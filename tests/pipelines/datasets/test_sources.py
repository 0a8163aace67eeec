"""The same items come out of every kind of source."""

import csv
import datetime as dt
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tfgrpo.pipelines.datasets.datasets import load_dataset
from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.stores.errors import DatasetError

ROWS: list[dict[str, Any]] = [
    {"id": f"q-{n}", "prompt": f"Question {n}?\nAnd “why”?", "answer": str(n), "metadata": {"level": n}} for n in range(25)
]

Write = Callable[[Path, list[dict[str, Any]]], str]


def write_jsonl(folder: Path, rows: list[dict[str, Any]], name: str = "items.jsonl") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\xef\xbb\xbf" + "".join(f"\n{json.dumps(row, ensure_ascii=False)}\r\n" for row in rows).encode())
    return str(path)


def write_csv(folder: Path, rows: list[dict[str, Any]], name: str = "items.csv") -> str:
    path = folder / name
    with path.open("w", encoding="utf-8-sig", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows({**row, "metadata": json.dumps(row["metadata"])} for row in rows)
    return str(path)


def write_array(folder: Path, rows: list[dict[str, Any]]) -> str:
    path = folder / "items.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(rows, ensure_ascii=False, indent=1).encode())
    return str(path)


def write_parquet(folder: Path, rows: list[dict[str, Any]], name: str = "items.parquet") -> str:
    pq.write_table(pa.Table.from_pylist(rows), folder / name, row_group_size=4)
    return str(folder / name)


def write_folder(folder: Path, rows: list[dict[str, Any]]) -> str:
    place = folder / "parts"
    (place / "b").mkdir(parents=True)
    (place / ".hidden").mkdir()
    write_jsonl(place, rows[:7], "a.jsonl")
    write_parquet(place / "b", rows[7:16], "1.parquet")
    write_csv(place / "b", rows[16:], "2.CSV")
    write_jsonl(place / ".hidden", rows[:3])
    (place / "README.md").write_text("about", encoding="utf-8")
    return str(place)


def write_saved(folder: Path, rows: list[dict[str, Any]]) -> str:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list(rows).save_to_disk(folder / "saved")
    return str(folder / "saved")


def write_splits(folder: Path, rows: list[dict[str, Any]]) -> str:
    datasets = pytest.importorskip("datasets")
    splits = {"train": datasets.Dataset.from_list(rows[:3]), "test": datasets.Dataset.from_list(rows)}
    datasets.DatasetDict(splits).save_to_disk(folder / "splits")
    return f"hf:{folder / 'splits'}#test"


def write_hub(folder: Path, rows: list[dict[str, Any]]) -> str:
    (folder / "repo").mkdir()
    write_parquet(folder / "repo", rows, "train.parquet")
    return f"hf:{folder / 'repo'}"


KINDS: list[Write] = [
    write_jsonl, write_csv, write_array, write_parquet, write_folder, write_saved, write_splits, write_hub
]  # fmt: skip


@pytest.fixture(autouse=True)
def _no_cache_of_anybody(tmp_path_factory, monkeypatch):
    datasets = sys.modules.get("datasets") or pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


def said(items: Any) -> list[tuple[Any, ...]]:
    return [(item.id, item.prompt, item.answer, dict(item.metadata)) for item in items]


EXPECTED = [tuple(row.values()) for row in ROWS]


@pytest.mark.parametrize("write", KINDS)
def test_items_are_the_same_from_every_source(tmp_path, write):
    assert said(load_dataset(write(tmp_path, ROWS))) == EXPECTED


def test_rows_are_named_by_their_own_file_and_line(tmp_path):
    folder = Path(write_folder(tmp_path, ROWS))
    sources = [item.source for item in load_dataset(folder)]
    assert sources[1] == f"{folder / 'a.jsonl'}:4"
    assert sources[8] == f"{folder / 'b' / '1.parquet'}:2"
    assert sources[17] == f"{folder / 'b' / '2.CSV'}:4"
    write_jsonl(folder, ROWS[:1], "z.jsonl")
    with pytest.raises(DatasetError) as caught:
        load_dataset(folder)
    assert str(caught.value.problems[0]).startswith(f"{folder / 'z.jsonl'}:2: got the id 'q-0' at {folder / 'a.jsonl'}:2 again")


def test_values_outside_json_become_text_or_are_refused(tmp_path):
    rows = [{"id": 1, "prompt": "x", "answer": 1.5, "metadata": {"day": dt.date(2026, 1, 2)}}]
    assert said(load_dataset(write_parquet(tmp_path, rows))) == [("1", "x", "1.5", {"day": "2026-01-02"})]
    bad = [{"id": "a", "prompt": "x", "answer": float("nan")}, {"id": "b", "prompt": "y", "answer": 1.0}]
    with pytest.raises(DatasetError, match=r"parquet:1: got nan in the field 'answer'; accepted: text or a number"):
        load_dataset(write_parquet(tmp_path, bad))
    broken = [{"id": "a", "prompt": "x", "metadata": "{no"}, {"id": "b", "prompt": "y", "metadata": "{1}"}]
    with pytest.raises(DatasetError) as caught:
        load_dataset(write_parquet(tmp_path, broken))
    assert [str(problem).partition(": got ")[2][:7] for problem in caught.value.problems] == ["no JSON", "no JSON"]
    with pytest.raises(DatasetError, match=r"saved:1: got no JSON"):
        load_dataset(write_saved(tmp_path, broken))


@pytest.mark.parametrize("write", [write_jsonl, write_parquet, write_folder, write_saved])
def test_templates_metadata_and_several_answers_are_the_same_from_every_source(tmp_path, write):
    rows = [
        {"nr": n, "q": f"Q{n}?", "options": {"A": "x", "B": "y"}, "metadata": {"level": n}, "note": None if n % 2 else "odd"}
        | {"answers": {"text": [f"{n}", f"{n}.0", f"{n}"]}, "ok": bool(n % 2)}
        for n in range(25)
    ]
    if write is write_folder:
        write_jsonl(tmp_path / "parts", rows[:7], "a.jsonl")
        write_parquet(tmp_path / "parts", rows[7:], "b.parquet")
        name = str(tmp_path / "parts")
    else:
        name = write(tmp_path, rows)
    fields = FieldMap(id="{nr}", prompt="{q}\nA) {options.A}\nB) {options.B}", answer="answers.text")
    for n, item in enumerate(load_dataset(name, fields)):
        assert (item.prompt, item.accepted) == (f"Q{n}?\nA) x\nB) y", (f"{n}", f"{n}.0"))
        assert {**item.metadata, "note": item.metadata.get("note")} == {
            "nr": n, "q": f"Q{n}?", "options": {"A": "x", "B": "y"}, "level": n, "ok": bool(n % 2),
            "note": None if n % 2 else "odd",
        }  # fmt: skip
    assert [item.answer for item in load_dataset(name, FieldMap(id="nr", prompt="q", answer="ok"))][:2] == ["false", "true"]


def test_columns_that_a_library_would_have_to_decode_are_not_read(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = [{"id": "a", "prompt": "x", "seen": {"bytes": b"no picture", "path": None}}]
    datasets.Dataset.from_list(rows).cast_column("seen", datasets.Image()).save_to_disk(tmp_path / "saved")
    assert load_dataset(tmp_path / "saved")[0].metadata == {}


def test_a_saved_folder_of_splits_is_read_by_its_path_and_names_its_splits(tmp_path):
    datasets = pytest.importorskip("datasets")
    write_splits(tmp_path, ROWS)
    assert said(load_dataset(tmp_path / "splits")) == EXPECTED[:3]
    datasets.DatasetDict({"dev": datasets.Dataset.from_list(ROWS)}).save_to_disk(tmp_path / "dev")
    with pytest.raises(DatasetError) as caught:
        load_dataset(tmp_path / "dev")
    assert str(caught.value).endswith(f"got no split 'train'; accepted: one of dev, as hf:{tmp_path / 'dev'}#dev")
    assert said(load_dataset(f"hf:{tmp_path / 'dev'}#dev")) == EXPECTED


@pytest.mark.parametrize("write", [write_parquet, write_hub, write_saved])
def test_a_table_without_a_required_column_is_refused_with_those_it_has(tmp_path, write):
    with pytest.raises(DatasetError) as caught:
        load_dataset(write(tmp_path, [{"question": "x", "answer": "y"}]))
    told = [str(problem) for problem in caught.value.problems]
    there, numbered = (
        "among 'question', 'answer'; accepted:",
        "what `init` finds, or rows numbered by --set dataset.fields.id=none",
    )
    assert [text.partition(": got ")[2] for text in told] == [
        f"no column 'id' {there} a column 'id', another name by dataset.fields.id, {numbered}",
        f"no column 'prompt' {there} a column 'prompt', another name by dataset.fields.prompt",
    ]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("none.parquet", "none.parquet: got No such file or directory; accepted: a file that can be read"),
        ("text.parquet", "text.parquet: got "),
        ("empty", "got a folder without data; accepted: a .jsonl, .json, .csv, .tsv or .parquet file"),
        ("hf:", "accepted: hf:owner/name, hf:owner/name:config or a folder"),
        ("hf:#train", "accepted: hf:owner/name"),
        ("hf:{folder}/empty#train", "accepted: hf:owner/name"),
        ("hf:{folder}/splits#dev", "got no split 'dev'; accepted: one of test, train"),
    ],
)
def test_unreadable_sources_are_refused_with_the_accepted_ones(tmp_path, name, told):
    (tmp_path / "text.parquet").write_text("no table", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    write_splits(tmp_path, ROWS)
    place = name.format(folder=tmp_path) if name.startswith("hf:") else str(tmp_path / name)
    with pytest.raises(DatasetError) as caught:
        load_dataset(place)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("module", "write", "extra"), [("pyarrow.parquet", write_parquet, "parquet"), ("datasets", write_saved, "hf")]
)
def test_a_missing_library_is_reported_with_its_extra(tmp_path, monkeypatch, module, write, extra):
    name = write(tmp_path, ROWS)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DatasetError, match=rf"accepted: the extra '{extra}': pip install 'tfgrpo\[{extra}\]'"):
        load_dataset(name)


def test_reading_text_loads_none_of_these_libraries():
    code = "import sys, tfgrpo.pipelines.plan.plan; print(sorted({'pyarrow', 'datasets', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_name_config_and_split_reach_the_library_and_any_failure_there_is_one_error(monkeypatch):
    import datasets  # noqa: PLC0415

    asked: list[Any] = []

    def load(path: str, config: str | None, *, split: str) -> Any:
        if path == "away":
            raise ConnectionError("no  network\nhere")
        asked.append((path, config, split))
        return datasets.Dataset.from_list(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", load)
    for name in ("hf:owner/name:main#test", "hf:owner/name", "hf:name#train[:10%]"):
        assert len(load_dataset(name)) == len(ROWS)
    assert asked == [("owner/name", "main", "test"), ("owner/name", None, "train"), ("name", None, "train[:10%]")]
    with pytest.raises(DatasetError) as caught:
        load_dataset("hf:away:main#test")
    assert str(caught.value).startswith("hf:away:main#test: got ConnectionError: no network here; accepted: hf:")
