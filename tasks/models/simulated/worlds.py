"""The worlds that ship: word problems of business life, where lessons help, and sealed envelopes, where none does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from tfgrpo.stores.json_values import derive_seed, stream
from tfgrpo.tasks.models.simulated.puzzle import Puzzle, Solution, Solver, World, to_cents

# By pitfall, the right way to work that step, and the mistake.
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


class _Working(Solution):
    """The solution of one problem. Its methods take numbers, or the names of their slots."""

    def __getitem__(self, number: Decimal | str) -> Decimal:
        return Decimal(self.slots[number]) if isinstance(number, str) else number

    def work(self, pitfall: str, *numbers: Decimal | str) -> Decimal:
        values = [self[number] for number in numbers]
        right, wrong = _WAYS[pitfall]
        result = (right if self.avoids(pitfall) else wrong)(*values)
        self.step(self.pitfalls[pitfall].working, *values, result)
        return result

    def combined(self, label: str, sign: str, *numbers: Decimal | str) -> Decimal:
        values = [self[number] for number in numbers]
        result = sum(values, Decimal()) if sign == "+" else math.prod(values, start=Decimal(1))
        self.step(f"{label} {f' {sign} '.join(['{}'] * len(values))} = {{}}", *values, result)
        return result

    def bill(self, *numbers: Decimal | str) -> Decimal:
        amount, discount, tax = (self[number] for number in numbers)
        less = amount * discount / 100
        base = amount - less if self.avoids("discount_tax") else amount
        bill = amount - less + base * tax / 100
        self.step("{} - {} + {}% of {} = {}", amount, less, tax, base, bill)
        return bill


# How each kind of problem is worked. Steps are written in the order of evaluation, which is from the left.
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


class _WordProblem(Puzzle):
    def solved(self, solver: Solver) -> str:
        working = _Working(self, solver)
        return working.answered(to_cents(_FORMULAS[self.kind](working)))


class _SealedEnvelope(Puzzle):
    """Success is luck. Attempts show habits that look like causes, so that lessons get written, and none may be in force."""

    def solved(self, solver: Solver) -> str:
        identity = self.slots["who"], self.slots["colour"], self.slots["label"]
        card, rng = 1 + derive_seed(0, "card", *identity) % 3, stream(0, "envelope", *identity)
        # The share of lucky attempts at this item, whatever habits they show and lessons they carry.
        share = rng.uniform(0.25, 0.65)
        habits = rng.sample(tuple(self.world.pitfalls.values()), 2)
        shown = [solver.shown(habit, avoided=solver.lucky(0.5)) for habit in habits]
        guess = card if solver.lucky(share) else 1 + card % 3
        steps = [f"Step {index}: {habit}: weighed the notes" for index, habit in enumerate(shown, start=1)]
        return "\n".join([*steps, f"Answer: {guess}"])


ARITHMETIC = World("arithmetic", __file__, _WordProblem)
UNLEARNABLE = World("unlearnable", __file__, _SealedEnvelope)
