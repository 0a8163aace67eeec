"""How does the command line speak? Results on stdout, everything for people on stderr; nothing else prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console as RichConsole
from rich.table import Table
from rich.text import Text

from stores.errors import ConfigError


class Console:
    """The two voices of a command. ``as_json`` silences tables in favour of one JSON object on stdout."""

    def __init__(
        self, *, as_json: bool = False, stdout: RichConsole | None = None, stderr: RichConsole | None = None
    ) -> None:
        self.as_json = as_json
        self._stdout = stdout or RichConsole(file=sys.stdout, highlight=False, soft_wrap=True)
        self.people = stderr or RichConsole(file=sys.stderr, highlight=False, soft_wrap=True)

    def result(self, value: Any) -> None:
        """Print the command's result as JSON on stdout."""
        self._stdout.out(json.dumps(value, ensure_ascii=False, indent=None, default=str, allow_nan=False))

    def text(self, text: str) -> None:
        """Print the command's result as plain text on stdout."""
        self._stdout.out(text)

    def say(self, text: str, *, style: str = "") -> None:
        """Say a line to a person. Never interpreted as markup: it may hold a model's words."""
        self.people.print(Text(text, style=style))

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, result: bool = False) -> None:
        """Show a table to a person; on stdout when the table is what was asked for."""
        table = Table(*columns, title=title or None, title_justify="left", title_style="bold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        (self._stdout if result else self.people).print(table)

    def problems(self, error: ConfigError) -> None:
        """Say what was wrong with the input, every problem on a line of its own."""
        self.say(f"tfgrpo: nothing was run; {len(error.problems)} problem(s) found", style="bold red")
        for problem in error.problems:
            self.say(f"  {problem}")
