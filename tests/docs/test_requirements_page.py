"""Every demand on the project names tests that exist, and the list is whole."""

import ast
import re
from functools import cache

import pytest

from tests.support.runs.pages import ROOT, page

PAGE = "docs/requirements.md"
_ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)


def rows(heading: str) -> dict[int, str]:
    """Last cell of every row below a heading, by its number."""
    part = page(PAGE).partition(f"## {heading}")[2].partition("\n## ")[0]
    return {int(number): proof for number, _, proof in _ROW.findall(part)}


@cache
def functions(path: str) -> set[str]:
    """Names of the tests a file defines."""
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_specification_is_listed_without_a_gap():
    assert list(rows("The specification")) == list(range(1, 87))


@pytest.mark.parametrize(
    "heading",
    [
        "The specification",
        "Beyond it",
        "What the main job must show",
        "What credit must show",
        "What rewards and the data server must show",
        "What process models must show",
        "What experience batches must show",
    ],
)
def test_every_row_names_tests_that_exist(heading):
    missing = []
    for number, proof in rows(heading).items():
        named = re.findall(r"`([^`]+)`", proof)
        assert named or re.search(r"issue \d", proof), number
        for name in named:
            path, _, test = name.partition("::")
            if test:
                found = (ROOT / "tests" / path).is_file() and test in functions(path)
            else:
                found = path.startswith("benchmarks/") and (ROOT / path).is_file()
            if not found:
                missing.append((number, name))
    assert missing == []
