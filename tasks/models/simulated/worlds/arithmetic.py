"""The ``arithmetic`` world: word problems from business life, solved exactly, with one or two pitfalls each."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from tfgrpo.tasks.models.simulated.worlds.data import Slots, load_world, match_template
from tfgrpo.tasks.models.simulated.worlds.puzzle import (
    Dialogue,
    Draft,
    ScriptedSolver,
    Solution,
    Solver,
    Turn,
    answer_of,
    decimal_text,
    every_mistake_shows,
    to_cents,
)

_HUNDRED = Decimal(100)


class _Working(Solution):
    """The solution of one problem. One method for each pitfall works that step, rightly or wrongly, and writes it."""

    def __init__(self, solver: Solver, slots: Slots) -> None:
        super().__init__(solver, load_world("arithmetic").pitfalls)
        self._slots = slots

    def __getitem__(self, slot: str) -> Decimal:
        """Return the number in a slot."""
        return Decimal(self._slots[slot])

    def product(self, label: str, one: Decimal, other: Decimal) -> Decimal:
        """Multiply two numbers."""
        self.step(f"{label} {decimal_text(one)} x {decimal_text(other)} = {decimal_text(one * other)}")
        return one * other

    def total(self, label: str, *numbers: Decimal) -> Decimal:
        """Add numbers."""
        total = sum(numbers, Decimal(0))
        self.step(f"{label} {' + '.join(map(decimal_text, numbers))} = {decimal_text(total)}")
        return total

    def bill(self, amount: Decimal, discount: Decimal, tax: Decimal) -> Decimal:
        """Take a discount off and add a tax, both in percent."""
        less = amount * discount / _HUNDRED
        base = amount - less if self.avoids("discount_tax") else amount
        bill = amount - less + base * tax / _HUNDRED
        base_tax = f"{decimal_text(tax)}% of {decimal_text(base)}"
        self.step(f"{decimal_text(amount)} - {decimal_text(less)} + {base_tax} = {decimal_text(bill)}")
        return bill

    def days(self, first: Decimal, last: Decimal) -> Decimal:
        """Return the days of a period that includes both its ends."""
        days = last - first + (1 if self.avoids("inclusive_days") else 0)
        self.step(f"from the {decimal_text(first)}. to the {decimal_text(last)}. that is {decimal_text(days)} days")
        return days

    def hours(self, hours: Decimal, minutes: Decimal) -> Decimal:
        """Return hours and minutes as one number of hours."""
        total = hours + minutes / (Decimal(60) if self.avoids("hours_minutes") else _HUNDRED)
        self.step(f"{decimal_text(hours)} h {decimal_text(minutes)} min = {decimal_text(total)} h")
        return total

    def euros(self, cents: Decimal) -> Decimal:
        """Convert cents into euros."""
        euros = cents / _HUNDRED if self.avoids("cents_euros") else cents
        self.step(f"{decimal_text(cents)} cents count as {decimal_text(euros)}")
        return euros

    def unit_cost(self, total: Decimal, units: Decimal) -> Decimal:
        """Return the cost of one of a batch, an intermediate result."""
        cost = total / units if self.avoids("round_end") else to_cents(total / units)
        self.step(f"{decimal_text(total)} / {decimal_text(units)} = {decimal_text(cost)} apiece")
        return cost

    def share(self, total: Decimal, people: Decimal) -> Decimal:
        """Return what each of several people pays."""
        share = total / people if self.avoids("per_person") else total
        self.step(f"from {decimal_text(total)} with {decimal_text(people)} people: {decimal_text(share)}")
        return share

    def rises(self, amount: Decimal, first: Decimal, second: Decimal) -> Decimal:
        """Apply two rises in percent, one after the other."""
        if self.avoids("stacked_percentages"):
            risen = amount * (1 + first / _HUNDRED) * (1 + second / _HUNDRED)
        else:
            risen = amount * (1 + (first + second) / _HUNDRED)
        rates = f"{decimal_text(first)}% and {decimal_text(second)}%"
        self.step(f"{decimal_text(amount)} rises by {rates} to {decimal_text(risen)}")
        return risen

    def posts(self, length: Decimal, gap: Decimal) -> Decimal:
        """Count the posts of a row that has one at each end."""
        count = length / gap + (1 if self.avoids("fence_posts") else 0)
        self.step(f"{decimal_text(length)} m with a gap of {decimal_text(gap)} m: {decimal_text(count)} posts")
        return count

    def refunded(self, amount: Decimal, refund: Decimal) -> Decimal:
        """Take a refund off an amount."""
        left = amount - refund if self.avoids("refund_sign") else amount + refund
        self.step(f"{decimal_text(amount)} with {decimal_text(refund)} paid back: {decimal_text(left)}")
        return left

    def net(self, gross: Decimal, tax: Decimal) -> Decimal:
        """Take the tax in percent out of an amount that includes it."""
        rate = tax / _HUNDRED
        net = gross / (1 + rate) if self.avoids("reverse_tax") else gross * (1 - rate)
        self.step(f"{decimal_text(gross)} including {decimal_text(tax)}% tax leaves {decimal_text(net)}")
        return net


_FORMULAS: Final[Mapping[str, Callable[[_Working], Decimal]]] = {
    "invoice": lambda w: w.bill(w.product("goods", w["units"], w["price"]), w["discount"], w["tax"]),
    "rental": lambda w: w.days(w["first"], w["last"]) * w["rate"],
    "shift": lambda w: w.hours(w["hours"], w["minutes"]) * w["shifts"] * w["wage"],
    "shipping": lambda w: (w["postage"] + w.euros(w["label"])) * w["parcels"],
    "batch": lambda w: w.unit_cost(w["total"], w["units"]) * w["sold"],
    "outing": lambda w: w.share(w.total("dinner and room", w["dinner"], w["room"]), w["people"]),
    "rises": lambda w: w.rises(w["price"], w["first"], w["second"]),
    "fence": lambda w: w.posts(w["length"], w["gap"]) * w["price"],
    "till": lambda w: w.refunded(w.total("sales", w["first"], w["second"], w["third"]), w["back"]),
    "receipt": lambda w: w.net(w["gross"], w["tax"]),
    "party": lambda w: w.share(w.bill(w["list"], w["discount"], w["tax"]), w["people"]),
    "booth": lambda w: w.refunded(w.days(w["first"], w["last"]) * w["rate"], w["back"]),
    "temp": lambda w: w.hours(w["hours"], w["minutes"]) * w["wage"] + w.euros(w["meal"]),
    "office": lambda w: w.share(w.rises(w["rent"], w["first"], w["second"]), w["people"]),
    "avenue": lambda w: w.net(w.posts(w["length"], w["gap"]) * w["gross"], w["tax"]),
    "resale": lambda w: w.refunded(w.unit_cost(w["total"], w["units"]) * w["sold"], w["back"]),
    "parking": lambda w: w.days(w["first"], w["last"]) * w.euros(w["cents"]) + w["card"],
    "upgrade": lambda w: w.rises(w.net(w["gross"], w["tax"]), w["first"], w["second"]),
}
"""How each kind of problem is worked. Steps are written in the order of evaluation, which is from the left."""


@dataclass(frozen=True, slots=True)
class WordProblem:
    """One recognised word problem."""

    template: str
    slots: Slots

    def attempt(self, solver: Solver, dialogue: Dialogue) -> Turn:  # noqa: ARG002
        """Return the whole worked solution, in one turn."""
        working = _Working(solver, self.slots)
        amount = _FORMULAS[self.template](working)
        return Turn(working.answered(to_cents(amount)))


def recognise(text: str) -> WordProblem | None:
    """Return the word problem in a prompt."""
    match = match_template(load_world("arithmetic").templates, text)
    return None if match is None else WordProblem(match[0].name, match[1])


def draft(rng: random.Random) -> Draft | None:
    """Return a random problem, or None when a mistake would not show in its answer."""
    template = rng.choice(load_world("arithmetic").templates)
    slots = template.draw(rng)

    def answer(hit: frozenset[str]) -> str:
        return answer_of(WordProblem(template.name, slots).attempt(ScriptedSolver(hit), Dialogue()).text)

    if not every_mistake_shows(template.pitfalls, answer):
        return None
    return Draft(template.name, template.fill(slots), answer(frozenset()), template.pitfalls)
