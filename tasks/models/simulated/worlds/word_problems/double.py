"""Which word problems of the ``arithmetic`` world hold two pitfalls at once? Eight kinds."""

from __future__ import annotations

import random
from typing import Final

from tfgrpo.tasks.models.simulated.roles.success import Mind
from tfgrpo.tasks.models.simulated.worlds.draws import day_pair, month, name, price, quantity
from tfgrpo.tasks.models.simulated.worlds.pitfalls import amounts, counts
from tfgrpo.tasks.models.simulated.worlds.word_problems import steps
from tfgrpo.tasks.models.simulated.worlds.word_problems.problem import Problem
from tfgrpo.tasks.models.simulated.worlds.word_problems.solution import Sheet, money
from tfgrpo.tasks.models.simulated.worlds.word_problems.template import Slots, Template, numbers


def _draw_party(rng: random.Random) -> Slots:
    return {
        "people": quantity(rng, 3, 12),
        "list": price(rng, 200, 2500),
        "discount": rng.choice(("5", "10", "15", "20", "25")),
        "tax": rng.choice(("7", "10", "19", "20", "21")),
    }


def _solve_party(slots: Slots, mind: Mind) -> str:
    people, amount, discount, tax = numbers(slots, "people", "list", "discount", "tax")
    sheet = Sheet(mind)
    bill = steps.discounted_and_taxed(sheet, amount, discount, tax)
    return sheet.answered(f"{money(steps.one_share(sheet, bill, people))}")


def _draw_booth(rng: random.Random) -> Slots:
    first, last = day_pair(rng)
    return {
        "who": name(rng),
        "first": first,
        "last": last,
        "month": month(rng),
        "rate": price(rng, 40, 90),
        "back": price(rng, 5, 60),
    }


def _solve_booth(slots: Slots, mind: Mind) -> str:
    first, last, rate, back = numbers(slots, "first", "last", "rate", "back")
    sheet = Sheet(mind)
    days = steps.days_between(sheet, first, last)
    return sheet.answered(f"{money(steps.less_refund(sheet, days * rate, back))}")


def _draw_temp(rng: random.Random) -> Slots:
    return {
        "who": name(rng),
        "hours": quantity(rng, 3, 9),
        "minutes": rng.choice(("12", "15", "18", "24", "30", "36", "45", "48")),
        "wage": quantity(rng, 12, 60),
        "meal": quantity(rng, 150, 950),
    }


def _solve_temp(slots: Slots, mind: Mind) -> str:
    hours, minutes, wage, meal = numbers(slots, "hours", "minutes", "wage", "meal")
    sheet = Sheet(mind)
    pay = steps.as_hours(sheet, hours, minutes) * wage
    return sheet.answered(f"{money(pay + steps.as_euros(sheet, meal))}")


def _draw_office(rng: random.Random) -> Slots:
    return {
        "people": quantity(rng, 3, 12),
        "rent": quantity(rng, 900, 6000),
        "first": quantity(rng, 4, 30),
        "second": quantity(rng, 4, 30),
    }


def _solve_office(slots: Slots, mind: Mind) -> str:
    people, rent, first, second = numbers(slots, "people", "rent", "first", "second")
    sheet = Sheet(mind)
    risen = steps.risen_twice(sheet, rent, first, second)
    return sheet.answered(f"{money(steps.one_share(sheet, risen, people))}")


def _draw_avenue(rng: random.Random) -> Slots:
    gap = rng.randrange(2, 9)
    return {
        "length": str(gap * rng.randrange(6, 40)),
        "gap": str(gap),
        "gross": price(rng, 10, 90),
        "tax": quantity(rng, 5, 25),
    }


def _solve_avenue(slots: Slots, mind: Mind) -> str:
    length, gap, gross, tax = numbers(slots, "length", "gap", "gross", "tax")
    sheet = Sheet(mind)
    lamps = steps.posts(sheet, length, gap)
    return sheet.answered(f"{money(steps.net_of_tax(sheet, lamps * gross, tax))}")


def _draw_resale(rng: random.Random) -> Slots:
    return {
        "who": name(rng),
        "units": rng.choice(("700", "900", "1100", "1300", "1700")),
        "parts": rng.choice(("screws", "gaskets", "fuses", "clips")),
        "total": quantity(rng, 1500, 4000),
        "sold": quantity(rng, 250, 650),
        "back": quantity(rng, 20, 200),
    }


def _solve_resale(slots: Slots, mind: Mind) -> str:
    units, total, sold, back = numbers(slots, "units", "total", "sold", "back")
    sheet = Sheet(mind)
    charged = steps.unit_cost(sheet, total, units) * sold
    return sheet.answered(f"{money(steps.less_refund(sheet, charged, back))}")


def _draw_parking(rng: random.Random) -> Slots:
    first, last = day_pair(rng)
    return {
        "who": name(rng),
        "first": first,
        "last": last,
        "month": month(rng),
        "cents": quantity(rng, 150, 990),
        "card": quantity(rng, 3, 25),
    }


def _solve_parking(slots: Slots, mind: Mind) -> str:
    first, last, cents, card = numbers(slots, "first", "last", "cents", "card")
    sheet = Sheet(mind)
    days = steps.days_between(sheet, first, last)
    return sheet.answered(f"{money(days * steps.as_euros(sheet, cents) + card)}")


def _draw_upgrade(rng: random.Random) -> Slots:
    return {
        "thing": rng.choice(("server", "fleet", "archive", "scanner")),
        "gross": price(rng, 300, 5000),
        "tax": quantity(rng, 5, 25),
        "first": quantity(rng, 4, 30),
        "second": quantity(rng, 4, 30),
    }


def _solve_upgrade(slots: Slots, mind: Mind) -> str:
    gross, tax, first, second = numbers(slots, "gross", "tax", "first", "second")
    sheet = Sheet(mind)
    net = steps.net_of_tax(sheet, gross, tax)
    return sheet.answered(f"{money(steps.risen_twice(sheet, net, first, second))}")


DOUBLE: Final = (
    Problem(
        Template(
            "party",
            "{people} people order catering with a list price of {list} euros together. They get {discount} percent "
            "discount and pay {tax} percent tax. How many euros does each of them pay?",
            _draw_party,
        ),
        (amounts.DISCOUNT_TAX, counts.PER_PERSON),
        _solve_party,
    ),
    Problem(
        Template(
            "booth",
            "{who} books a fair booth from the {first} to the {last} of {month}, both days included, at {rate} euros "
            "a day, and later gets {back} euros refunded. How many euros were spent in the end?",
            _draw_booth,
        ),
        (counts.INCLUSIVE_DAYS, amounts.REFUND_SIGN),
        _solve_booth,
    ),
    Problem(
        Template(
            "temp",
            "{who} is paid for {hours} hours {minutes} minutes at {wage} euros an hour, plus a meal allowance of "
            "{meal} cents. What is the pay in euros?",
            _draw_temp,
        ),
        (counts.HOURS_MINUTES, amounts.CENTS_EUROS),
        _solve_temp,
    ),
    Problem(
        Template(
            "office",
            "{people} partners share an office rent of {rent} euros evenly. The rent goes up by {first} percent and "
            "then by another {second} percent. How many euros does each partner pay now?",
            _draw_office,
        ),
        (amounts.STACKED, counts.PER_PERSON),
        _solve_office,
    ),
    Problem(
        Template(
            "avenue",
            "Lamp posts stand every {gap} metres along an avenue of {length} metres, one at each end. A lamp post "
            "costs {gross} euros with {tax} percent tax included. What do they all cost net, in euros?",
            _draw_avenue,
        ),
        (counts.FENCE_POSTS, amounts.REVERSE_TAX),
        _solve_avenue,
    ),
    Problem(
        Template(
            "resale",
            "{who} pays {total} euros for {units} {parts}, sells {sold} of them at cost and refunds {back} euros for "
            "a late delivery. How many euros come in, to the cent?",
            _draw_resale,
        ),
        (amounts.ROUND_END, amounts.REFUND_SIGN),
        _solve_resale,
    ),
    Problem(
        Template(
            "parking",
            "{who} parks from the {first} to the {last} of {month}, first and last day counted, for {cents} cents a "
            "day, plus {card} euros once for the card. What does it cost in euros?",
            _draw_parking,
        ),
        (counts.INCLUSIVE_DAYS, amounts.CENTS_EUROS),
        _solve_parking,
    ),
    Problem(
        Template(
            "upgrade",
            "A contract for a {thing} costs {gross} euros including {tax} percent tax. Its net price rises by {first} "
            "percent and a year later by {second} percent. What is the net price then, in euros?",
            _draw_upgrade,
        ),
        (amounts.REVERSE_TAX, amounts.STACKED),
        _solve_upgrade,
    ),
)
