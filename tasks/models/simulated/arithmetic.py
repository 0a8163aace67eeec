"""The ``arithmetic`` world: word problems from business life, solved exactly, with one or two pitfalls each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Final

from tfgrpo.tasks.models.simulated.puzzle import Puzzle, Solution, Solver, World, to_cents

_WAYS: Final[Mapping[str, tuple[Callable[..., Decimal], Callable[..., Decimal]]]] = {
    "inclusive_days": (lambda first, last: last - first + 1, lambda first, last: last - first),
    "hours_minutes": (lambda hours, minutes: hours + minutes / 60, lambda hours, minutes: hours + minutes / 100),
    "cents_euros": (lambda cents: cents / 100, lambda cents: cents),
    "round_end": (lambda total, units: total / units, lambda total, units: to_cents(total / units)),
    "per_person": (lambda total, people: total / people, lambda total, _: total),
    "stacked_percentages": (
        lambda amount, first, second: amount * (1 + first / 100) * (1 + second / 100),
        lambda amount, first, second: amount * (1 + (first + second) / 100),
    ),
    "fence_posts": (lambda length, gap: length / gap + 1, lambda length, gap: length / gap),
    "refund_sign": (lambda amount, refund: amount - refund, lambda amount, refund: amount + refund),
    "reverse_tax": (lambda gross, tax: gross / (1 + tax / 100), lambda gross, tax: gross * (1 - tax / 100)),
}
"""By pitfall, the right way to work that step, and the mistake."""
_SIGNS: Final[Mapping[str, Callable[..., Decimal]]] = {"+": sum, "x": math.prod}


class _Working(Solution):
    """The solution of one problem. Its methods take numbers, or the names of their slots."""

    def __getitem__(self, slot: str) -> Decimal:
        return Decimal(self.slots[slot])

    def _values(self, numbers: Sequence[Decimal | str]) -> list[Decimal]:
        return [self[number] if isinstance(number, str) else number for number in numbers]

    def work(self, pitfall: str, *numbers: Decimal | str) -> Decimal:
        right, wrong = _WAYS[pitfall]
        values = self._values(numbers)
        result = (right if self.avoids(pitfall) else wrong)(*values)
        self.step(self.pitfalls[pitfall].working, *values, result)
        return result

    def combined(self, label: str, sign: str, *numbers: Decimal | str) -> Decimal:
        values = self._values(numbers)
        result = _SIGNS[sign](values)
        self.step(f"{label} {f' {sign} '.join(['{}'] * len(values))} = {{}}", *values, result)
        return result

    def bill(self, *numbers: Decimal | str) -> Decimal:
        amount, discount, tax = self._values(numbers)
        less = amount * discount / 100
        base = amount - less if self.avoids("discount_tax") else amount
        bill = amount - less + base * tax / 100
        self.step("{} - {} + {}% of {} = {}", amount, less, tax, base, bill)
        return bill


_FORMULAS: Final[Mapping[str, Callable[[_Working], Decimal]]] = {
    "invoice": lambda w: w.bill(w.combined("goods", "x", "units", "price"), "discount", "tax"),
    "rental": lambda w: w.work("inclusive_days", "first", "last") * w["rate"],
    "shift": lambda w: w.work("hours_minutes", "hours", "minutes") * w["shifts"] * w["wage"],
    "shipping": lambda w: (w["postage"] + w.work("cents_euros", "label")) * w["parcels"],
    "batch": lambda w: w.work("round_end", "total", "units") * w["sold"],
    "outing": lambda w: w.work("per_person", w.combined("dinner and room", "+", "dinner", "room"), "people"),
    "rises": lambda w: w.work("stacked_percentages", "price", "first", "second"),
    "fence": lambda w: w.work("fence_posts", "length", "gap") * w["price"],
    "till": lambda w: w.work("refund_sign", w.combined("sales", "+", "first", "second", "third"), "back"),
    "receipt": lambda w: w.work("reverse_tax", "gross", "tax"),
    "party": lambda w: w.work("per_person", w.bill("list", "discount", "tax"), "people"),
    "booth": lambda w: w.work("refund_sign", w.work("inclusive_days", "first", "last") * w["rate"], "back"),
    "temp": lambda w: w.work("hours_minutes", "hours", "minutes") * w["wage"] + w.work("cents_euros", "meal"),
    "office": lambda w: w.work("per_person", w.work("stacked_percentages", "rent", "first", "second"), "people"),
    "avenue": lambda w: w.work("reverse_tax", w.work("fence_posts", "length", "gap") * w["gross"], "tax"),
    "resale": lambda w: w.work("refund_sign", w.work("round_end", "total", "units") * w["sold"], "back"),
    "parking": lambda w: w.work("inclusive_days", "first", "last") * w.work("cents_euros", "cents") + w["card"],
    "upgrade": lambda w: w.work("stacked_percentages", w.work("reverse_tax", "gross", "tax"), "first", "second"),
}
"""How each kind of problem is worked. Steps are written in the order of evaluation, which is from the left."""


class _WordProblem(Puzzle):
    def solved(self, solver: Solver) -> str:
        working = _Working(self, solver)
        return working.answered(to_cents(_FORMULAS[self.kind](working)))


ARITHMETIC = World("arithmetic", __file__, _WordProblem)
