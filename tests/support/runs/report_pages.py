"""Read the page of a run as a browser would, and change the files that it is made of."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.support.records.line_files import seal
from tfgrpo.flows.report.night import Night
from tfgrpo.flows.report.page import write_report
from tfgrpo.stores.files.layout import TaskPaths

VOID = {"meta"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; every tag must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str | None] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in {"src", "href", "action", "data", "xlink:href"}]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(run: Any) -> Page:
    """Write and return the page of a run."""
    return checked_page(write_report(Night.of(run.task, run.paths)).read_text())


def checked_page(text: str) -> Page:
    """Return a page, which loads nothing and holds no character that could hide another."""
    page = Page(text)
    assert "script" not in page.tags
    assert not {"link", "iframe", "object", "embed", "img"} & set(page.tags)
    assert page.addresses == []
    assert not re.search(r"@import|url\(", text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    return page


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    """Change a JSON file, in place or by what is returned."""
    value = json.loads(path.read_text())
    path.write_text(json.dumps(change(value) or value))


def edit_rows(path: Path, change: Callable[[Any], Any]) -> None:
    """Change each line of a file."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(change(row) or row) + "\n" for row in rows))
    seal(path)


class Elsewhere:
    """A run of a folder, as far as the page needs it."""

    def __init__(self, out: Path, run_id: str) -> None:
        self.task = TaskPaths.of(out, "tfgrpo-learning")
        self.paths = self.task.run(run_id)
