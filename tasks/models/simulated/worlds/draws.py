"""Where do the names and figures of generated items come from? From the generator that is passed in."""

from __future__ import annotations

import random

_NAMES = (
    "Amara", "Bela", "Chidi", "Dana", "Emeka", "Farah", "Goran", "Hana", "Imre", "Jonas", "Keiko", "Lena", "Mateo",
    "Nadia", "Olga", "Pedro", "Quentin", "Rosa", "Samir", "Tove", "Umut", "Vera", "Wiktor", "Xenia", "Yara", "Zoltan",
)  # fmt: skip
_MONTHS = ("January", "March", "May", "July", "August", "October", "December")


def name(rng: random.Random) -> str:
    """A first name."""
    return rng.choice(_NAMES)


def month(rng: random.Random) -> str:
    """A month of 31 days."""
    return rng.choice(_MONTHS)


def quantity(rng: random.Random, low: int, high: int) -> str:
    """A whole number from ``low`` to ``high``."""
    return str(rng.randint(low, high))


def price(rng: random.Random, low: int, high: int) -> str:
    """An amount with two decimals; most prices end in a round number of cents."""
    return f"{rng.randrange(low, high)}.{rng.choice(('00', '20', '25', '40', '50', '60', '75', '80', '90', '95'))}"


def day_pair(rng: random.Random) -> tuple[str, str]:
    """First and last day of a period within one month."""
    first = rng.randrange(1, 20)
    return str(first), str(first + rng.randrange(2, 12))
