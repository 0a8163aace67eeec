"""Calls of functions as a program writes them, compared by their values: ``[find(q="tea", most=5.0)]``."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from tfgrpo.rewarders.text.answers import Stated
from tfgrpo.rewarders.text.spelling import one_spelling

CallsBeside: TypeAlias = Literal["same", "more", "others", ""]
_LONGEST: Final = 10_000
"""Characters of a text that may be calls."""
_BETWEEN_BLOCKS: Final = re.compile(r"\n[ \t]*\n|:[ \t]*\n|^[ \t]*```[^`\n]*$", re.MULTILINE)
"""What parts calls from the prose above and below them."""
_NAMED: Final = re.compile(r"[(,][\w ]{1,60}=(?!=)")
"""An argument with its name; calls without are formulas: ``f(2)``, ``O(n)``."""
_AROUND: Final = " \t\n`;"


class _Notation(ast.NodeTransformer):
    """Numbers, lists and the order of named arguments in one notation."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        is_whole = isinstance(node.value, float) and node.value.is_integer()
        return ast.Constant(int(node.value)) if is_whole else node  # type: ignore[arg-type]

    def visit_Tuple(self, node: ast.Tuple) -> ast.List:
        return ast.List([self.visit(each) for each in node.elts], node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.keywords.sort(key=lambda each: each.arg or "~")
        return self.generic_visit(node)


@lru_cache(maxsize=64)
def _calls_in(text: str) -> tuple[str, ...]:
    """Return the calls that a text is, in a list, in a line or a line each, in one spelling; none where it has more."""
    if "=" not in text or len(text) > _LONGEST:
        return ()
    try:
        lines = ast.parse(text.strip(_AROUND)).body
        values = [each.value if isinstance(each, ast.Expr) else None for each in lines]
        found = [one for each in values for one in (each.elts if isinstance(each, ast.List | ast.Tuple) else [each])]
        calls = [each for each in found if isinstance(each, ast.Call)]
        spelled = tuple(one_spelling(ast.unparse(_Notation().visit(each))) for each in calls)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return ()
    return spelled if len(calls) == len(found) else ()


def makes_calls(text: str) -> bool:
    """Return whether a text is calls of functions, some with a named argument, and nothing else."""
    return any(map(_NAMED.search, _calls_in(text)))


def calls_beside(wanted: str, stated: Stated) -> CallsBeside:
    """Return what the calls of an answer, the last ones, are beside those that are wanted; empty where either has none.

    ``more`` are calls in no list, of which the others may be steps before or after them.
    """
    if not makes_calls(wanted):
        return ""
    blocks = [] if stated.is_marked else [each for each in _BETWEEN_BLOCKS.split(stated.whole) if _calls_in(each)]
    texts = [each for each in (stated.text, *blocks[-1:], stated.whole) if _calls_in(each)][: 1 if stated.is_marked else None]
    ours = _calls_in(wanted)
    if ours in map(_calls_in, texts):
        return "same"
    if any({*_calls_in(each)} >= {*ours} and each.strip(_AROUND)[:1] != "[" for each in texts):
        return "more"
    return "others" if texts else ""
