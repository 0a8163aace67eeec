"""Console of the command line: results on stdout, everything for people on stderr. No other module prints."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from itertools import chain, islice
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console as RichConsole
from rich.table import Table
from rich.text import Text

from tfgrpo.stores.errors import ConfigError

_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_MAX_ROWS = 10_000
# What a drawn table has between two columns.
_BETWEEN = 3
_BAR, _MIN_QUOTE, _MAX_QUOTE = "    │ ", 20, 120
# Width up to which columns of a plain table are padded.
_MAX_WIDTH = 48


def visible(text: str) -> str:
    """Return the text without what could steer a terminal: control and direction characters, and halves of surrogate pairs."""
    # A model may write such a half as JSON, and it has no bytes: printing it would raise.
    return _HIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


def _widths(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return widths that leave every word whole, and share the rest evenly; none where there is no room for the words."""
    # Rich itself narrows columns below their longest word, and cuts it.
    columns = [*zip(*rows, strict=True)]
    words = [max(cell_len(word) for cell in column for word in ("", *cell.split())) for column in columns]
    whole = [max(map(cell_len, column)) for column in columns]
    tried = ([max(word, min(cell, most)) for word, cell in zip(words, whole, strict=True)] for most in range(room, -1, -1))
    return next((widths for widths in tried if sum(widths) <= room), [])


def leave_lost_terminal() -> None:
    """Discard further output to a terminal that was closed; else every ``print`` of a user's code would raise."""
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError:
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


class PeopleConsole(RichConsole):
    """Console for people. When its reader goes away it discards further output, and the run continues."""

    @property
    def is_terminal(self) -> bool:
        """Whether lines can be drawn over."""
        # FORCE_COLOR, which notebooks and CI systems set, makes rich take any file for a terminal.
        return super().is_terminal and self.file.isatty()

    def on_broken_pipe(self) -> None:
        """Discard further output. Rich would end the process, and with it a run that is being paid for."""
        self.quiet = True
        with contextlib.suppress(OSError, ValueError):  # a file without a descriptor
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())

    def _check_buffer(self) -> None:
        try:
            super()._check_buffer()
        except OSError:  # what a closed terminal raises where a pipe breaks
            leave_lost_terminal()
            self.on_broken_pipe()


class LogFile(io.StringIO):
    """A file that logs its lines, such as to the logger of a flow run."""

    def __init__(self, logger: logging.Logger | logging.LoggerAdapter[Any]) -> None:
        super().__init__()
        self._logger = logger

    def write(self, text: str, /) -> int:
        """Log each line that is not empty."""
        for line in filter(str.strip, text.splitlines()):
            self._logger.info("%s", line.rstrip())
        return len(text)


class Console:
    """Outputs of a command. With ``as_json`` the result is one JSON object on stdout, without tables."""

    def __init__(self, *, as_json: bool = False, stdout: RichConsole | None = None, stderr: RichConsole | None = None) -> None:
        self.as_json = as_json
        self._stdout = stdout or RichConsole(file=sys.stdout, highlight=False, soft_wrap=True)
        self.people = stderr or PeopleConsole(file=sys.stderr, highlight=False, soft_wrap=True)

    def result(self, value: dict[str, Any]) -> None:
        """Print the command's result as one JSON object on stdout."""
        self._stdout.out(json.dumps(value, ensure_ascii=True, default=str, allow_nan=False), highlight=False)

    def answer(self, value: dict[str, Any], text: str) -> None:
        """Print the command's result: one JSON object, or for people ``text``."""
        if self.as_json:
            self.result(value)
        else:
            self.text(text)

    def text(self, text: str) -> None:
        """Print the command's result as plain text on stdout."""
        self._stdout.out(visible(text), highlight=False)

    def line(self, text: str) -> None:
        """Print one line of the result, after an empty one if it starts with a line end; others in it become spaces."""
        self.text("\n" * text.startswith("\n") + " ".join(text.strip("\n").splitlines()))

    def quote(self, text: str) -> None:
        """Print a text of others as part of the result, wrapped, behind a bar: it cannot pass for a line of ours."""
        width = max(_MIN_QUOTE, min(self._stdout.width, _MAX_QUOTE) - len(_BAR))
        for line in Text(visible(text)).wrap(self._stdout, width, overflow="fold"):
            self._stdout.out(f"{_BAR}{line.plain}".rstrip(), highlight=False)

    def say(self, text: str, *, style: str = "", wrap: bool = True) -> None:
        """Print a line for people. On a terminal it wraps between words; ``wrap=False`` keeps paths and commands whole."""
        # As ``Text``, never as markup: it may quote a model.
        self.people.print(Text(visible(text), style=style), soft_wrap=not (wrap and self.people.is_terminal))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], *, people: bool = False) -> None:
        """Print a table as the result, or for people: drawn on a terminal wide enough for its words, else a line per row.

        A drawn one would cut ids, which people copy. Only the first rows are kept in memory; they decide the widths.
        """
        console = self.people if people else self._stdout
        cells = ([" ".join(visible(cell).split()) for cell in row] for row in rows)
        head = list(islice(cells, _MAX_ROWS))
        first = [list(columns), *head]
        fits = console.is_terminal and len(head) < _MAX_ROWS
        if fits and (widths := _widths(first, console.width - _BETWEEN * len(columns))):
            drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
            for name, width in zip(columns, widths, strict=True):
                drawn.add_column(name, width=width)
            for row in head:
                drawn.add_row(*map(Text, row))
            console.print(drawn, soft_wrap=False)
            return
        widths = [min(max(map(len, column)), _MAX_WIDTH) for column in zip(*first, strict=True)]
        for row in chain(first, cells):
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            if people:
                self.say(line, wrap=False)
            else:
                self.text(line)

    def labelled(self, lines: Sequence[tuple[str, str]], *, style: str = "", whole: Collection[str] = ()) -> None:
        """Print labels with texts for people, the first line in ``style``; those labelled as in ``whole`` never wrap."""
        width = max((len(label) for label, _ in lines), default=0) + 2
        for number, (label, text) in enumerate(lines):
            shown = Text(visible(text), style="" if number else style)
            if not self.people.is_terminal or label in whole:
                self.people.print(Text(f"{label:>{width}}  ").append(shown), soft_wrap=True)
                continue
            row = Table.grid(padding=(0, 2))
            row.add_column(width=width, justify="right")
            row.add_row(Text(label, style="dim"), shown)
            self.people.print(row)

    def problems(self, error: ConfigError) -> None:
        """Print the problems of the input, one a line."""
        if len(error.problems) == 1:
            self.say(f"tfgrpo: {error.problems[0]}", style="bold red")
        else:
            self.say(f"tfgrpo: {len(error.problems)} problems, nothing was done", style="bold red")
            for problem in error.problems:
                self.say(f"  {problem}")
        if self.as_json:
            self.result({"status": "refused", "problems": [asdict(problem) for problem in error.problems]})

    def failure(self, message: str, *, status: str = "failed") -> None:
        """Print why a command failed."""
        self.say(f"tfgrpo: {message}", style="bold red")
        if self.as_json:
            self.result({"status": status, "message": message})
