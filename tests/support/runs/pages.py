"""Read fenced blocks, tables and links from the Markdown pages of the project."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    language: str
    text: str


def page(name: str) -> str:
    """Return the text of a page by its path in the project."""
    return (ROOT / name).read_text(encoding="utf-8")


def pages() -> list[Path]:
    """Return every Markdown page at the top, in docs/ and in examples/."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])


def blocks(name: str, language: str | None = None) -> list[Block]:
    """Return the fenced blocks of a page in order, without their indentation."""
    every = [Block(match["language"], textwrap.dedent(match["body"])) for match in _FENCE.finditer(page(name))]
    return [block for block in every if language in (None, block.language)]


def commands(block: Block) -> list[str]:
    """Return the commands of a shell block: lines joined at backslashes, without comments and prompts."""
    joined = block.text.replace("\\\n", " ")
    lines = (re.sub(r"\s+#\s.*$", "", line).strip() for line in joined.splitlines())
    return [re.sub(r" {2,}", " ", line) for line in lines if line and not line.startswith("#")]


def table(text: str, heading: str) -> list[list[str]]:
    """Return the cells, backticks included, of the first table whose header row starts with ``heading``."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    return [_cells(line) for line in _table_lines(lines[start + 2 :])]


def links(text: str) -> list[str]:
    """Return the targets of the links and pictures of a page."""
    return [match["target"] for match in _LINK.finditer(text)]


def _table_lines(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if not line.startswith("|"):
            return
        yield line


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
