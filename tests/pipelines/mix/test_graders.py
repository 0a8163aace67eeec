"""Graders that a mix declares, and the records that they grade: what is none is refused where it is loaded."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.pipelines.mixes import document, rows, write_mix, write_rows
from tfgrpo.pipelines.mix.config import load_mix_config
from tfgrpo.stores.errors import PipelineError


@pytest.mark.parametrize("key", ["graders", "multiplicative_graders"])
def test_references_that_are_no_single_number_are_counted_when_a_mix_is_loaded(tmp_path, key):
    changed = document(python_graders={"mine": {"builtin": "number_match"}})
    changed["datasets"]["a"] = {"path": "a.jsonl", key: ["mine"], "grader_weights": [1.0] * (key == "graders")}
    path = write_mix(tmp_path, changed)
    assert load_mix_config(path).warnings == ()
    bad = [{"prompt": "p", "answer": answer} for answer in ("3, 7", "2\\pi", None)]
    write_rows(tmp_path / "data" / "a.jsonl", [*rows("a"), *bad])
    (warning,) = load_mix_config(path).warnings
    assert warning.startswith("dataset 'a': mine: 2 of 22 items that it cannot grade: ")
    assert f"{tmp_path / 'data' / 'a.jsonl'}:21: the reference '3, 7' is no single number" in warning


NO_GRADERS = """
    import re

    def text(item): return "good"
    def nothing(item): return None
    def reads_text(each): return len(each.strip())
    def sort(output, answer, reverse=False): return "good"
    def looks_up(item): return item["answer"]
    def leaves(item): raise SystemExit(0)

    class Nothing:
        def grade_batch(self, inputs): return None

    class Fewer:
        def grade_batch(self, inputs): return []

    class Alone:
        def grade_batch(self): return [1.0]

    def picky(item): return float(item.record["only in my data"])
    def typed(item): return 1.0 + item.record["answer"]
    def infinite(item): return float("inf")

    class Compares:
        def grade_batch(self, inputs): raise ValueError("too few to compare")

    class Promises:
        def grade_batch(self, inputs):
            async def later(): return [1.0]
            return later()

    async def calls(item): return "a service, which is not asked about a made-up item"
"""


NONE = {
    "os:system": "TypeError: expected str, bytes or os.PathLike object, not GraderInput",
    "json:loads": "TypeError: the JSON object must be",
    "my_none.py:leaves": "SystemExit: 0",
    "builtins:repr": "is no number",
    "my_none.py:text": "the reward 'good' is no number",
    "my_none.py:reads_text": "AttributeError: 'GraderInput' object has no attribute 'strip'",
    "my_none.py:sort": "the reward 'good' is no number",
    "my_none.py:looks_up": "TypeError: 'GraderInput' object is not subscriptable",
    "my_none.py:Nothing": "returned a NoneType, expected a list of results",
    "my_none.py:Alone": "takes 1 positional argument but 2 were given",
}
MAY_BE = [f"my_none.py:{name}" for name in ("picky", "typed", "infinite", "nothing", "Compares", "Fewer", "Promises", "calls")]


def mix_with(folder: Path, texts: Sequence[str]) -> Path:
    (folder / "my_none.py").write_text(textwrap.dedent(NO_GRADERS))
    named = {f"mine{at}": {"path" if ".py" in text else "import": text} for at, text in enumerate(texts)}
    changed = document(python_graders=named)
    changed["datasets"]["a"] = {"path": "a.jsonl", "graders": [*named], "grader_weights": [1] * len(named)}
    return write_mix(folder, changed)


def test_what_is_no_grader_is_refused_where_it_is_loaded(tmp_path):
    path = mix_with(tmp_path, [*NONE])
    with pytest.raises(PipelineError) as caught:
        load_mix_config(path)
    for at, (problem, (text, said)) in enumerate(zip(caught.value.problems, NONE.items(), strict=True)):
        assert problem.source == f"{path}: python_graders.mine{at}.{'path' if '.py' in text else 'import'}: {text}"
        assert said in problem.given
        assert problem.given.endswith("(a call with a made-up item)")
    assert len(load_mix_config(path, try_graders=False).datasets["a"].graders.parts) == len(NONE) + 1


def test_a_grader_that_cannot_grade_a_made_up_item_may_be_right_about_others(tmp_path):
    assert len(load_mix_config(mix_with(tmp_path, MAY_BE)).datasets["a"].graders.parts) == len(MAY_BE) + 1


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
def test_records_are_numbered_without_blank_lines_and_white_space_is_none_of_them(tmp_path, raw, prompts):
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
def test_what_can_be_graded_and_not_served_is_kept_and_named_by_its_line(tmp_path, line, reason):
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
        (b'{"prompt": "x"}\n{\n', "no JSON: Expecting property name enclosed in double quotes at column 2"),
        (b'{"prompt": "x"}\n\xff', "no UTF-8 at byte 0"),
        (b"\n" + b"[" * 100_000, "JSON nested without end"),
        (b'\n{"prompt": ' + b"1" * 5000 + b"}", "Exceeds the limit"),
        (b'\n[{"prompt": "x"}, {"prompt": "y"}]\n', "a JSON array; accepted: one JSON object on the line"),
    ],
    ids=range(5),
)
def test_what_is_no_json_is_refused_by_line(tmp_path, line, told):
    with pytest.raises(PipelineError) as caught:
        records(tmp_path, line)
    assert str(caught.value).startswith(f"{tmp_path / 'data' / 'a.jsonl'}:2: got {told}")
