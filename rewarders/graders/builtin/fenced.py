"""What does a text hold when it is not the document itself? A fenced block, or a value written as Python.

It reads literals only: nothing is ever executed.
"""

from __future__ import annotations

import ast
import re
from typing import Any, Final

_FENCE: Final = re.compile(r"```[\w-]*\n(.*?)```", re.DOTALL)
_NO_LITERAL: Final = re.compile(r"""[ \t]*(?!(?:[bBrRuU]{1,2}['"]|True\b|False\b|None\b|set\b))[A-Za-z_<`]""")
_ESCAPE: Final = re.compile(r"""\\(?:[\r\n\\'"abfnrtv0-7xNuU]|(.?))""", re.DOTALL)
_RAW_STRING: Final = re.compile(r"""(?<!\w)(?:[bB]?[rR]|[rR][bB])['"]""")


def fenced_block(text: str) -> str | None:
    """The stripped content of the first fenced block; None without one, or when it is empty.

    A block opens with three backticks, at most letters, digits, ``_`` or ``-``, and a line feed right behind them; it ends
    at the next three backticks.
    """
    fence = _FENCE.search(text)
    return (fence[1].strip() or None) if fence else None


def python_literal(text: str) -> Any:
    """The value of a Python literal. Raises ``ValueError`` for any other text.

    Prose and markup are told apart by how they begin, because the parser's way of saying no costs far more.
    """
    if _NO_LITERAL.match(text):
        raise ValueError("no Python literal")
    try:
        return ast.literal_eval(_quiet(text))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("no Python literal") from error


def _quiet(text: str) -> str:
    r"""The text with unknown escapes such as ``\q`` doubled, which means the same and lets the parser warn of nothing.

    Warnings cannot be silenced for one thread alone. Where raw strings are, doubling would change them.
    """
    if "\\" not in text or _RAW_STRING.search(text):
        return text
    return _ESCAPE.sub(lambda match: match[0] if match[1] is None else f"\\\\{match[1]}", text)
