"""Pipeline files are read strictly; every fault names the file and the line."""

from pathlib import Path
from typing import Any

import pytest

from tfgrpo.pipelines.settings.pipeline_file import find_pipeline, load_pipeline
from tfgrpo.stores.errors import PipelineError


def read(tmp_path: Path, text: str | bytes) -> Any:
    path = tmp_path / "p.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return dict(load_pipeline(path))


def refusal(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(PipelineError) as caught:
        read(tmp_path, text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6), ("1E3", 1000.0), (".5", 0.5), ("5.", 5.0), ("-.inf", float("-inf")), ("7", 7), ("+7", 7),
        ("007", "007"), ("0x10", "0x10"), ("1_000", "1_000"), ("12:30", "12:30"), ("2026-01-01", "2026-01-01"), ("no", "no"),
        ("on", "on"), ("true", True), ("False", False), ("~", None), ("", None), ("null", None), ("'3'", "3"), ("<<", "<<"),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(tmp_path, text, value):
    found = read(tmp_path, f"\ufeffother:\r\n  deep: x\r\nkey: {text}\r\n")["key"]  # as Windows writes it
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "line", "given"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "a second 'a'"),
        ("a:\n  x: 1\n  x: 1\n", 3, "a second 'x'"),
        ("a: {x: 1, x: 2}\n", 1, "a second 'x'"),
        ("a: 1\n3: 2\n", 2, "a key that is no text"),
        ("a: 1\n[x]: 2\n", 2, "a key that is no text"),
        ("a: &x 1\nb: *x\n", 2, "an alias"),
        ("a: &x [*x]\n", 1, "an alias"),
        ("a: 1\nb: !!python/object:os.system x\n", 2, "could not determine a constructor"),
        ("a: 1\n---\nb: 2\n", 2, "but found another document"),
        ("a: 1\n b: 2\n", 2, "mapping values are not allowed here"),
        ("a: [1\n", 2, "expected ',' or ']'"),
        ("a:\n\t- 1\n", 2, "found character '\\t'"),
    ],
)
def test_a_fault_names_the_line(tmp_path, text, line, given):
    told = refusal(tmp_path, text)
    assert told.startswith(f"pipeline file {tmp_path / 'p.yaml'}: line {line}: got ")
    assert given in told


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("", "nothing"),
        ("# nothing here\n", "nothing"),
        ("- a\n- b\n", "no mapping"),
        ("just text\n", "no mapping"),
        (b"a: \xff\n", "no UTF-8 at byte 3"),
        (b"a: \x01\n", "unacceptable character"),
        ("a: " + "[" * 1000, "nesting without end"),
        ("a: " + "9" * 5000, "Exceeds the limit"),
    ],
)
def test_what_is_no_mapping_is_refused(tmp_path, text, given):
    assert given in refusal(tmp_path, text)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(PipelineError, match="Is a directory"):
        load_pipeline(tmp_path)
    with pytest.raises(PipelineError, match="No such file"):
        load_pipeline(tmp_path / "missing.yaml")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("tfgrpo-learnin", "tfgrpo-learning (did you mean that?)"),
        ("xyz", "one of general, tfgrpo-learning"),
        ("some/where.yaml", "where no file is"),
        ("tfgrpo-learning.yml", "where no file is"),
    ],
)
def test_an_unknown_pipeline_is_refused_with_the_known_ones(name, told):
    with pytest.raises(PipelineError) as caught:
        find_pipeline(name)
    assert told in str(caught.value)
    assert str(caught.value).startswith("--pipeline: got ")
