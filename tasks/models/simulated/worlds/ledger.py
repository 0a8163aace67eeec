"""What is the ``ledger-tools`` world? Questions about the books that need tool calls, over two to four turns."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from tfgrpo.tasks.models.simulated.roles.lexicon import Lexicon
from tfgrpo.tasks.models.simulated.roles.success import Mind, ScriptedMind
from tfgrpo.tasks.models.simulated.worlds.answers import answer_of, apart, every_mistake_shows
from tfgrpo.tasks.models.simulated.worlds.draws import price
from tfgrpo.tasks.models.simulated.worlds.ledger_data import run
from tfgrpo.tasks.models.simulated.worlds.ledger_question import LedgerQuestion
from tfgrpo.tasks.models.simulated.worlds.pitfalls.ledger import LEDGER_PITFALLS
from tfgrpo.tasks.models.simulated.worlds.pitfalls.pitfall import Pitfall
from tfgrpo.tasks.models.simulated.worlds.puzzle import Dialogue, Draft, Puzzle
from tfgrpo.tasks.models.simulated.worlds.word_problems.template import Slots, Template, find

_MOST_PITFALLS = 2
_TOOLS: Final = frozenset({"accounts_of", "ledger_entries", "exchange_rate", "add"})
_WEIGHTS: Final = (1, 3, 3, 9)
"""How often each template is drawn; many draws of the later ones hold no pitfall, or too many."""
_CURRENCIES = ("USD", "GBP", "CHF", "SEK", "PLN")
_CUSTOMERS = (
    "Nordwind",
    "Aldana",
    "Kestrel",
    "Brightwater",
    "Ostrava",
    "Lindqvist",
    "Tamarind",
    "Falkenried",
    "Juniper",
)


def _day(rng: random.Random, year: int) -> str:
    return f"{year}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"


def _draw_foreign(rng: random.Random) -> Slots:
    return {"currency": rng.choice(_CURRENCIES), "booked": _day(rng, 2024), "today": _day(rng, 2025)}


def _draw_convert(rng: random.Random) -> Slots:
    return {"amount": price(rng, 200, 9000), **_draw_foreign(rng)}


def _draw_balance(rng: random.Random) -> Slots:
    letters = "".join(rng.choices("ABCDEFGHKLMNPRSTUVWXYZ", k=2))
    return {"account": f"{letters}-{rng.randrange(1000, 10000)}-{rng.randrange(1, 4)}"}


def _draw_customer(rng: random.Random) -> Slots:
    return {"customer": f"{rng.choice(_CUSTOMERS)}-{rng.randrange(10, 100)}"}


def _draw_abroad(rng: random.Random) -> Slots:
    return {**_draw_customer(rng), **_draw_foreign(rng)}


TEMPLATES: Final = (
    Template(
        "convert",
        "An invoice of {amount} {currency} was booked on {booked}; today is {today}. What is it worth in euros at the "
        "house rate?",
        _draw_convert,
    ),
    Template("balance", "What is the balance of account {account} in euros, as the books have it?", _draw_balance),
    Template("customer", "How many euros does customer {customer} owe in all, as the books have it?", _draw_customer),
    Template(
        "abroad",
        "Customer {customer} is billed in {currency}. Everything was booked on {booked}; today is {today}. How many "
        "euros does the customer owe in all?",
        _draw_abroad,
    ),
)


def play(question: Puzzle, mind: Mind) -> tuple[str, int]:
    """Attempt an item with the real tools: the final text, and the turns it took."""
    dialogue = Dialogue(tools=_TOOLS)
    turn = 1
    while (speech := question.attempt(mind, dialogue)).calls:
        turn += 1
        steps = (*dialogue.steps, *speech.text.splitlines())
        dialogue = Dialogue(steps, (*dialogue.calls, *(run(call) for call in speech.calls)), _TOOLS)
    return speech.text, turn


@dataclass(frozen=True, slots=True)
class LedgerTools:
    """Questions with one or two ways to misread the books."""

    name: str = "ledger-tools"
    domain: str = "bookkeeping"
    prefix: str = "lt"
    pitfalls: tuple[Pitfall, ...] = LEDGER_PITFALLS
    lexicon: Lexicon = field(default_factory=lambda: Lexicon(LEDGER_PITFALLS), compare=False)

    def recognise(self, text: str) -> LedgerQuestion | None:
        """The question in a prompt."""
        found = find(TEMPLATES, text)
        return None if found is None else LedgerQuestion(found[1])

    def draft(self, rng: random.Random) -> Draft | None:
        """A random question; its pitfalls are those that change the answer."""
        template = rng.choices(TEMPLATES, _WEIGHTS)[0]
        slots = template.draw(rng)

        def answer(hit: frozenset[str]) -> str:
            return answer_of(play(LedgerQuestion(slots), ScriptedMind(hit))[0])

        right = answer(frozenset())
        names = tuple(pitfall.name for pitfall in LEDGER_PITFALLS if apart(right, answer(frozenset({pitfall.name}))))
        if not 1 <= len(names) <= _MOST_PITFALLS or not every_mistake_shows(names, answer):
            return None
        return Draft(template.name, template.filled(slots), right, names)
