"""Records of a mix: numbered without blank lines, graded even where they cannot be served, refused where they are no JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pipelines.mixes import document, write_mix
from tfgrpo.pipelines.mix.config import load_mix_config
from tfgrpo.stores.errors import PipelineError


def mix_on(folder: Path, raw: bytes, name: str = "a.jsonl") -> Path:
    changed = document()
    changed["datasets"]["a"] = {"path": name}
    path = write_mix(folder, changed)
    (folder / "data" / name).write_bytes(raw)
    return path


def records(folder: Path, raw: bytes) -> list[object]:
    return list(load_mix_config(mix_on(folder, raw)).datasets["a"].records)


SPACES = ("\u00a0", "\x0c", "\x1c", "\u2028", "\x85", "\u3000 \t")


@pytest.mark.parametrize(
    ("raw", "prompts"),
    [
        (b'\xef\xbb\xbf{"prompt": "a"}\r\n\n  \n{"prompt": "zwei \xc3\xbc"}\n{"prompt": "z"}', ["a", "zwei ü", "z"]),
        (b"[1]\n" + b'{"prompt": "x"}\n', [None, "x"]),
        *(
            (f'{each}\n{{"prompt": "p"}}{each}\n{each}{{"prompt": "q"}}\n{each}{each}\n'.encode(), ["p", "q"])
            for each in SPACES
        ),
    ],
)
def test_records_are_numbered_without_blank_lines_and_white_space_is_none_of_them(
    tmp_path: Path, raw: bytes, prompts: list[str | None]
) -> None:
    found = records(tmp_path, raw)
    assert [each.get("prompt") if isinstance(each, dict) else None for each in found] == prompts


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[1]", "no JSON object"),
        ('{"answer": "42"}', "no 'prompt'"),
        ('{"prompt": 3}', "int in 'prompt'"),
        ('{"prompt": "x", "system_prompt": 1}', "int in 'system_prompt'"),
        ('{"prompt": "x", "metadata": []}', "list in 'metadata'"),
        ('{"prompt": "x", "metadata": {"v": NaN}}', "NaN or infinity, which is no JSON number"),
        ('{"prompt": "\\ud800"}', "half a surrogate pair, which is no character"),
    ],
)
def test_what_can_be_graded_and_not_served_is_kept_and_named_by_its_line(
    tmp_path: Path, line: str, reason: str
) -> None:
    fine = '{"prompt": "fine", "system_prompt": null, "metadata": {}, "answer": NaN}\n{"prompt": "\\ud83d\\ude00"}\n'
    path = mix_on(tmp_path, f'{fine}\n{line}\n{{"prompt": "a", "prompt": "b"}}\n'.encode())
    config = load_mix_config(path)
    told = f"1 of 4 records can be graded but not served; the first: {tmp_path / 'data' / 'a.jsonl'}:4: {reason}"
    assert config.warnings == (f"dataset 'a': {told}",)
    assert config.datasets["a"].records.servable == (0, 1, 3)
    assert config.locate("a:2") == ("a", 2)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"{", "no JSON: Expecting property name enclosed in double quotes at column 2"),
        (b"\xff", "no UTF-8 at byte 0"),
        (b"[" * 100_000, "JSON nested without end"),
        (b'{"prompt": ' + b"1" * 5000 + b"}", "Exceeds the limit"),
    ],
    ids=range(4),
)
def test_what_is_no_json_is_refused_by_line(tmp_path: Path, line: bytes, told: str) -> None:
    with pytest.raises(PipelineError) as caught:
        records(tmp_path, b'{"prompt": "x"}\n' + line + b"\n")
    assert str(caught.value).startswith(f"{tmp_path / 'data' / 'a.jsonl'}:2: got {told}")


def test_a_whole_array_in_one_line_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"a\.jsonl:2: got a JSON array; accepted: one JSON object on the line"):
        records(tmp_path, b'\n[{"prompt": "x"}, {"prompt": "y"}]\n')
