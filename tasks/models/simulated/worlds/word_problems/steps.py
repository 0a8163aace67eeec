"""How is each pitfall of the ``arithmetic`` world worked through, rightly and wrongly? One function per pitfall."""

from __future__ import annotations

from decimal import Decimal

from tfgrpo.tasks.models.simulated.worlds.pitfalls import amounts, counts
from tfgrpo.tasks.models.simulated.worlds.word_problems.solution import Sheet, money, plain

_HUNDRED = Decimal(100)


def discounted_and_taxed(sheet: Sheet, amount: Decimal, discount: Decimal, tax: Decimal) -> Decimal:
    """The bill when a discount in percent comes off and a tax in percent comes on."""
    less = amount * discount / _HUNDRED
    base = amount - less if sheet.faces(amounts.DISCOUNT_TAX) else amount
    bill = amount - less + base * tax / _HUNDRED
    sheet.step(f"{plain(amount)} - {plain(less)} + {plain(tax)}% of {plain(base)} = {plain(bill)}")
    return bill


def days_between(sheet: Sheet, first: Decimal, last: Decimal) -> Decimal:
    """Days of a period that includes both its ends."""
    days = last - first + (1 if sheet.faces(counts.INCLUSIVE_DAYS) else 0)
    sheet.step(f"from the {plain(first)}. to the {plain(last)}. that is {plain(days)} days")
    return days


def as_hours(sheet: Sheet, hours: Decimal, minutes: Decimal) -> Decimal:
    """Hours and minutes as one number of hours."""
    parts = Decimal(60) if sheet.faces(counts.HOURS_MINUTES) else _HUNDRED
    total = hours + minutes / parts
    sheet.step(f"{plain(hours)} h {plain(minutes)} min = {plain(total)} h")
    return total


def as_euros(sheet: Sheet, cents: Decimal) -> Decimal:
    """An amount in cents, in euros."""
    euros = cents / _HUNDRED if sheet.faces(amounts.CENTS_EUROS) else cents
    sheet.step(f"{plain(cents)} cents count as {plain(euros)}")
    return euros


def unit_cost(sheet: Sheet, total: Decimal, units: Decimal) -> Decimal:
    """What one of a batch cost, which is used again."""
    exact = total / units
    cost = exact if sheet.faces(amounts.ROUND_END) else money(exact)
    sheet.step(f"{plain(total)} / {plain(units)} = {plain(cost)} apiece")
    return cost


def one_share(sheet: Sheet, total: Decimal, people: Decimal) -> Decimal:
    """What is asked for each of several people."""
    share = total / people if sheet.faces(counts.PER_PERSON) else total
    sheet.step(f"from {plain(total)} with {plain(people)} people: {plain(share)}")
    return share


def risen_twice(sheet: Sheet, amount: Decimal, first: Decimal, second: Decimal) -> Decimal:
    """An amount after two rises in percent, one after the other."""
    if sheet.faces(amounts.STACKED):
        risen = amount * (1 + first / _HUNDRED) * (1 + second / _HUNDRED)
    else:
        risen = amount * (1 + (first + second) / _HUNDRED)
    sheet.step(f"{plain(amount)} rises by {plain(first)}% and {plain(second)}% to {plain(risen)}")
    return risen


def posts(sheet: Sheet, length: Decimal, gap: Decimal) -> Decimal:
    """Posts of a row that begins and ends with one."""
    count = length / gap + (1 if sheet.faces(counts.FENCE_POSTS) else 0)
    sheet.step(f"{plain(length)} m with a gap of {plain(gap)} m: {plain(count)} posts")
    return count


def less_refund(sheet: Sheet, amount: Decimal, refund: Decimal) -> Decimal:
    """An amount after money was paid back."""
    left = amount - refund if sheet.faces(amounts.REFUND_SIGN) else amount + refund
    sheet.step(f"{plain(amount)} with {plain(refund)} paid back: {plain(left)}")
    return left


def net_of_tax(sheet: Sheet, gross: Decimal, tax: Decimal) -> Decimal:
    """What is left of an amount that includes a tax in percent."""
    rate = tax / _HUNDRED
    net = gross / (1 + rate) if sheet.faces(amounts.REVERSE_TAX) else gross * (1 - rate)
    sheet.step(f"{plain(gross)} including {plain(tax)}% tax leaves {plain(net)}")
    return net
