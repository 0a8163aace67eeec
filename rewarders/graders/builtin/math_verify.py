"""Scorer of mathematical equality, by the library math-verify (extra ``math``), for worker processes only.

LaTeX can keep a computer algebra system busy for ever: no signal and no other thread interrupts ``$9^{9^9}$``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from tfgrpo.rewarders.gt import GroundTruth
from tfgrpo.rewarders.options import require
from tfgrpo.rewarders.scorer import GraderInput, ItemScorer, field_of, final_answer
from tfgrpo.stores.errors import RewardError

# Characters of a formula; the parser takes seconds for a long one
_LONGEST = 1_000
# Greatest relative difference of equal numbers: the library rounds to six decimals, to which 2^-98 and 2^-99 are equal
_SAME = 1e-12


class MathVerify(ItemScorer):
    """0.0 without a LaTeX formula in the final answer, 1.0 when it equals the record's ``answer``, else 0.5.

    The reference has to be LaTeX as well: a bare ``5`` has no formula. Raises ``PipelineError`` without the library.
    """

    def __init__(self) -> None:
        require("math_verify", "math-verify", "math")

    def prepare(self) -> None:
        """Load the library and its parser, which takes two seconds, before any clock runs."""
        _same_formula(parsed("$x$"), parsed("$x + 1$"))

    def score_one(self, item: GraderInput) -> float:
        answer, gold = final_answer(item), field_of(item, "answer")
        formula = parsed(answer) if answer is not None else []
        if not formula:
            return 0.0
        return 1.0 if _same_formula(parsed(gold) if isinstance(gold, str) else [], formula) else 0.5

    def wanted(self, item: GraderInput) -> None:
        # A look at the signs of LaTeX suffices.
        reference = field_of(item, "answer")
        if not (isinstance(reference, str) and any(sign in reference for sign in ("$", "\\"))):
            raise RewardError(f"{reference!r:.60} has no LaTeX formula")


def formulas_equal(one: str, other: str) -> bool:
    """Return whether two formulas, without units, are equal. Raise ``RewardError`` for one that the library does not read."""
    if max(len(one), len(other)) > _LONGEST:
        raise RewardError(f"a formula of more than {_LONGEST:,} characters is not compared")
    read = [parsed(f"${each.strip(' $')}$", units=False) for each in (one, other)]
    if len({frozenset(each[0].free_symbols) for each in read if each and getattr(each[0], "is_Relational", False)}) > 1:
        return False  # of other names
    answer, gold = map(_as_sets, read)
    for formula, text in ((gold, other), (answer, one)):
        if all(isinstance(each, str) for each in formula):
            raise RewardError(f"{text!r:.60} is no formula that math-verify reads")
    if _tried(False, _are_one_equation, answer[0], gold[0]):
        return True
    if _tried(False, lambda: (answer[0] - gold[0]).expand() == 0):
        return True
    difference = _tried(math.inf, _relative_difference, answer, gold)
    return _same_formula(gold, answer) if difference is None else difference <= _SAME


def _are_one_equation(one: Any, other: Any) -> bool:
    # They may differ by a factor: ``2y + 1 = 0`` and ``y = -1/2``.
    if not all(getattr(each, "is_Equality", False) for each in (one, other)) or one.free_symbols != other.free_symbols:
        return False
    left, right = (each.lhs - each.rhs for each in (one, other))
    ratio = _tried(None, (left / right).simplify)
    return bool(ratio is not None and ratio.is_number and ratio.is_finite and ratio != 0)


def _as_sets(read: list[Any]) -> list[Any]:
    # An inequality of one variable as the interval that it describes.
    relation: Any = read[0] if read else None
    if not hasattr(relation, "as_set") or getattr(relation, "is_Equality", False) or len(relation.free_symbols) != 1:
        return read
    return [_tried(relation, relation.as_set), *read[1:]]


def _relative_difference(one: list[Any], other: list[Any]) -> float | None:
    # None for formulas with variables.
    if not one or not other or not all(getattr(each[0], "is_number", False) for each in (one, other)):
        return None
    # No floats: 1/2004! would be zero.
    left, right = (each[0].evalf(30) for each in (one, other))
    size = max(abs(left), abs(right))
    return float(abs(left - right) / size) if size else 0.0


def parsed(text: str, *, units: bool = True) -> list[Any]:
    """Return the formula of a text, if any; ``units``: whether to drop what may be one, of ``5 - 5c`` the variable."""
    math_verify, wanted = _library(units)
    # Without the library's own limits, which are by the clock and count as no formula.
    return list(_tried((), math_verify.parse, text, extraction_config=wanted, parsing_timeout=None, raise_on_error=True))


def _same_formula(gold: list[Any], answer: list[Any]) -> bool:
    math_verify, _ = _library(units=True)
    return bool(_tried(False, math_verify.verify, gold, answer, timeout_seconds=None, raise_on_error=True))


def _tried(default: object, call: Callable[..., Any], *args: object, **options: object) -> Any:
    try:
        return call(*args, **options)
    except (MemoryError, RecursionError) as error:
        raise RewardError(f"too much work or memory for one formula ({type(error).__name__})") from error
    except Exception:  # noqa: BLE001 - the library raises many types for what it cannot read
        return default


def _library(units: bool) -> tuple[Any, list[Any]]:
    import math_verify  # noqa: PLC0415 - an extra, with sympy: two seconds, for worker processes only

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its own limits are off
    # The library's defaults would also rewrite formulas that are malformed, and prefer a stated answer to a box.
    rewritten = math_verify.parser.NormalizationConfig(
        basic_latex=True, units=units, malformed_operators=False, nits=False, boxed="all", equations=False
    )
    return math_verify, [math_verify.LatexExtractionConfig(boxed_match_priority=0, normalization_config=rewritten)]


class GroundTruthOfFormulas(GroundTruth):
    """``gt`` that also compares formulas which are written differently."""

    equal = staticmethod(formulas_equal)
    prepare = MathVerify.prepare
