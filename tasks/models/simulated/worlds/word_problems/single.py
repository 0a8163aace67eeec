"""Which word problems of the ``arithmetic`` world hold exactly one pitfall? Ten kinds."""

from __future__ import annotations

import random
from typing import Final

from tfgrpo.tasks.models.simulated.roles.success import Mind
from tfgrpo.tasks.models.simulated.worlds.draws import day_pair, month, name, price, quantity
from tfgrpo.tasks.models.simulated.worlds.pitfalls import amounts, counts
from tfgrpo.tasks.models.simulated.worlds.word_problems import steps
from tfgrpo.tasks.models.simulated.worlds.word_problems.problem import Problem
from tfgrpo.tasks.models.simulated.worlds.word_problems.solution import Sheet, money, plain
from tfgrpo.tasks.models.simulated.worlds.word_problems.template import Slots, Template, numbers


def _draw_invoice(rng: random.Random) -> Slots:
    return {
        "who": name(rng),
        "units": quantity(rng, 3, 40),
        "goods": rng.choice(("chairs", "lamps", "folders", "monitors", "desks", "toners")),
        "price": price(rng, 4, 90),
        "discount": rng.choice(("5", "10", "15", "20", "25")),
        "tax": rng.choice(("7", "10", "19", "20", "21")),
    }


def _solve_invoice(slots: Slots, mind: Mind) -> str:
    units, each, discount, tax = numbers(slots, "units", "price", "discount", "tax")
    sheet = Sheet(mind)
    goods = units * each
    sheet.step(f"goods {plain(units)} x {plain(each)} = {plain(goods)}")
    return sheet.answered(f"{money(steps.discounted_and_taxed(sheet, goods, discount, tax))}")


def _draw_rental(rng: random.Random) -> Slots:
    first, last = day_pair(rng)
    thing = rng.choice(("van", "projector", "stand", "crane", "trailer"))
    return {
        "who": name(rng),
        "thing": thing,
        "first": first,
        "last": last,
        "month": month(rng),
        "rate": price(rng, 15, 90),
    }


def _solve_rental(slots: Slots, mind: Mind) -> str:
    first, last, rate = numbers(slots, "first", "last", "rate")
    sheet = Sheet(mind)
    return sheet.answered(f"{money(steps.days_between(sheet, first, last) * rate)}")


def _draw_shift(rng: random.Random) -> Slots:
    minutes = rng.choice(("12", "15", "18", "24", "30", "36", "45", "48"))
    return {
        "who": name(rng),
        "hours": quantity(rng, 4, 8),
        "minutes": minutes,
        "shifts": quantity(rng, 3, 20),
        "wage": price(rng, 14, 60),
    }


def _solve_shift(slots: Slots, mind: Mind) -> str:
    hours, minutes, shifts, wage = numbers(slots, "hours", "minutes", "shifts", "wage")
    sheet = Sheet(mind)
    return sheet.answered(f"{money(steps.as_hours(sheet, hours, minutes) * shifts * wage)}")


def _draw_shipping(rng: random.Random) -> Slots:
    return {
        "who": name(rng),
        "parcels": quantity(rng, 4, 60),
        "postage": price(rng, 3, 19),
        "label": quantity(rng, 8, 95),
    }


def _solve_shipping(slots: Slots, mind: Mind) -> str:
    parcels, postage, label = numbers(slots, "parcels", "postage", "label")
    sheet = Sheet(mind)
    return sheet.answered(f"{money((postage + steps.as_euros(sheet, label)) * parcels)}")


def _draw_batch(rng: random.Random) -> Slots:
    return {
        "who": name(rng),
        "units": rng.choice(("700", "900", "1100", "1300", "1700")),
        "parts": rng.choice(("valves", "hinges", "bolts", "sensors")),
        "total": quantity(rng, 1500, 4000),
        "sold": quantity(rng, 250, 650),
    }


def _solve_batch(slots: Slots, mind: Mind) -> str:
    units, total, sold = numbers(slots, "units", "total", "sold")
    sheet = Sheet(mind)
    return sheet.answered(f"{money(steps.unit_cost(sheet, total, units) * sold)}")


def _draw_outing(rng: random.Random) -> Slots:
    return {"people": quantity(rng, 3, 12), "dinner": price(rng, 90, 600), "room": price(rng, 100, 900)}


def _solve_outing(slots: Slots, mind: Mind) -> str:
    people, dinner, room = numbers(slots, "people", "dinner", "room")
    sheet = Sheet(mind)
    sheet.step(f"dinner and room {plain(dinner)} + {plain(room)} = {plain(dinner + room)}")
    return sheet.answered(f"{money(steps.one_share(sheet, dinner + room, people))}")


def _draw_rises(rng: random.Random) -> Slots:
    thing = rng.choice(("licence", "lease", "subscription", "premium"))
    return {
        "thing": thing,
        "price": quantity(rng, 200, 4000),
        "first": quantity(rng, 4, 30),
        "second": quantity(rng, 4, 30),
    }


def _solve_rises(slots: Slots, mind: Mind) -> str:
    amount, first, second = numbers(slots, "price", "first", "second")
    sheet = Sheet(mind)
    return sheet.answered(f"{money(steps.risen_twice(sheet, amount, first, second))}")


def _draw_fence(rng: random.Random) -> Slots:
    gap = rng.randrange(2, 9)
    return {"length": str(gap * rng.randrange(6, 40)), "gap": str(gap), "price": price(rng, 4, 40)}


def _solve_fence(slots: Slots, mind: Mind) -> str:
    length, gap, each = numbers(slots, "length", "gap", "price")
    sheet = Sheet(mind)
    return sheet.answered(f"{money(steps.posts(sheet, length, gap) * each)}")


def _draw_till(rng: random.Random) -> Slots:
    return {
        "who": name(rng),
        "first": price(rng, 50, 400),
        "second": price(rng, 50, 400),
        "third": price(rng, 50, 400),
        "back": price(rng, 20, 120),
    }


def _solve_till(slots: Slots, mind: Mind) -> str:
    first, second, third, back = numbers(slots, "first", "second", "third", "back")
    sheet = Sheet(mind)
    sales = first + second + third
    sheet.step(f"sales {plain(first)} + {plain(second)} + {plain(third)} = {plain(sales)}")
    return sheet.answered(f"{money(steps.less_refund(sheet, sales, back))}")


def _draw_receipt(rng: random.Random) -> Slots:
    return {
        "thing": rng.choice(("taxi", "hotel", "printer", "course")),
        "gross": price(rng, 60, 2000),
        "tax": quantity(rng, 5, 25),
    }


def _solve_receipt(slots: Slots, mind: Mind) -> str:
    gross, tax = numbers(slots, "gross", "tax")
    sheet = Sheet(mind)
    return sheet.answered(f"{money(steps.net_of_tax(sheet, gross, tax))}")


SINGLE: Final = (
    Problem(
        Template(
            "invoice",
            "{who} orders {units} {goods} at {price} euros each. The supplier grants a discount of {discount} "
            "percent, and sales tax is {tax} percent. What is the final bill in euros?",
            _draw_invoice,
        ),
        (amounts.DISCOUNT_TAX,),
        _solve_invoice,
    ),
    Problem(
        Template(
            "rental",
            "{who} rents a {thing} from the {first} to the {last} of {month}, first and last day included, at {rate} "
            "euros a day. What does the rental cost in euros?",
            _draw_rental,
        ),
        (counts.INCLUSIVE_DAYS,),
        _solve_rental,
    ),
    Problem(
        Template(
            "shift",
            "{who} works shifts of {hours} hours {minutes} minutes. How many euros are earned in {shifts} such shifts "
            "at {wage} euros an hour?",
            _draw_shift,
        ),
        (counts.HOURS_MINUTES,),
        _solve_shift,
    ),
    Problem(
        Template(
            "shipping",
            "{who} sends {parcels} parcels. Postage is {postage} euros a parcel and each label costs {label} cents. "
            "What does the shipment cost in euros?",
            _draw_shipping,
        ),
        (amounts.CENTS_EUROS,),
        _solve_shipping,
    ),
    Problem(
        Template(
            "batch",
            "{who} bought a batch of {units} {parts} for {total} euros and passes {sold} of them on at cost. How many "
            "euros, to the cent, are charged?",
            _draw_batch,
        ),
        (amounts.ROUND_END,),
        _solve_batch,
    ),
    Problem(
        Template(
            "outing",
            "A team of {people} people shares a dinner of {dinner} euros and a room of {room} euros evenly. What does "
            "each person pay in euros?",
            _draw_outing,
        ),
        (counts.PER_PERSON,),
        _solve_outing,
    ),
    Problem(
        Template(
            "rises",
            "The yearly price of a {thing} is {price} euros. It rises by {first} percent and a year later by {second} "
            "percent. What is the price then, in euros?",
            _draw_rises,
        ),
        (amounts.STACKED,),
        _solve_rises,
    ),
    Problem(
        Template(
            "fence",
            "A straight fence of {length} metres has a post every {gap} metres, with posts at both ends. A post costs "
            "{price} euros. What do all the posts cost in euros?",
            _draw_fence,
        ),
        (counts.FENCE_POSTS,),
        _solve_fence,
    ),
    Problem(
        Template(
            "till",
            "{who} takes {first}, {second} and {third} euros at the till and pays a customer back {back} euros. What "
            "are the takings in euros?",
            _draw_till,
        ),
        (amounts.REFUND_SIGN,),
        _solve_till,
    ),
    Problem(
        Template(
            "receipt",
            "A {thing} receipt shows {gross} euros with {tax} percent tax included. What is the net amount in euros?",
            _draw_receipt,
        ),
        (amounts.REVERSE_TAX,),
        _solve_receipt,
    ),
)
