"""The ``ledger-tools`` world: questions about the books, answered with tool calls over two to four turns.

A question keeps no state between turns: the dialogue has the steps and what the tools returned.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from tfgrpo.tasks.models.simulated.worlds.puzzle import (
    Dialogue,
    Puzzle,
    PuzzleCall,
    PuzzleResult,
    Solution,
    Solver,
    Turn,
    to_cents,
)
from tfgrpo.tasks.tools import bookkeeping

_T = TypeVar("_T")
_JSON: Final = json.JSONDecoder()
_TOOLS: Final[Mapping[str, Callable[..., Any]]] = {
    tool.__name__: tool
    for tool in (bookkeeping.accounts_of, bookkeeping.ledger_entries, bookkeeping.exchange_rate, bookkeeping.add)
}
_NEEDED: Final[Mapping[str, set[str]]] = {
    "currency": {"exchange_rate"},
    "account": {"ledger_entries", "add"},
    "customer": {"accounts_of", "ledger_entries", "add"},
}
"""Tools that a question with this slot needs."""


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: str
    amount: Decimal
    status: str


# pydantic's ValidationError is a ValueError: so is every result that is not what the tool returns.
_NUMBER: Final = TypeAdapter(Decimal)
_ACCOUNTS: Final = TypeAdapter(Annotated[list[str], Field(min_length=1)])
_ENTRIES: Final[TypeAdapter[list[_Entry]]] = TypeAdapter(list[_Entry])


class LedgerQuestion(Puzzle):
    """A question; what it needs follows from the slots of its text."""

    world = "ledger-tools"

    def solved(self, solver: Solver) -> str:
        """Return the last text of an attempt with the real tools."""
        return play(self, solver)[-1].text

    def attempt(self, solver: Solver, dialogue: Dialogue) -> Turn:
        """Return the next calls, or the answer when everything is known."""
        if not set().union(*(_NEEDED.get(slot, ()) for slot in self.slots)) <= dialogue.tools:
            return Turn("SIMULATED: the tools that this question needs are not on offer.\nAnswer: 0")
        solution = Solution(self, solver, dialogue.steps)
        try:
            if calls := self._next_calls(solution, dialogue):
                return Turn(solution.new_steps, calls)
            return Turn(solution.answered(to_cents(self._answer(solution, dialogue))))
        except ValueError:
            return Turn("SIMULATED: a tool gave no usable result.\nAnswer: 0")

    def _next_calls(self, solution: Solution, dialogue: Dialogue) -> tuple[PuzzleCall, ...]:
        if not dialogue.results:
            return self._first_calls(solution)
        if "amount" in self.slots or dialogue.results_of("add"):
            return ()
        fetched = dialogue.results_of("ledger_entries")
        if not fetched:
            accounts = _read(_ACCOUNTS, dialogue.results_of("accounts_of")[-1])
            wanted = accounts if solution.avoids("every_account") else accounts[:1]
            solution.step(f"{len(wanted)} of {len(accounts)}")
            return tuple(PuzzleCall("ledger_entries", {"account": account}) for account in wanted)
        return _add(solution, [entry for result in fetched for entry in _read(_ENTRIES, result)])

    def _first_calls(self, solution: Solution) -> tuple[PuzzleCall, ...]:
        calls: list[PuzzleCall] = []
        if "customer" in self.slots:
            calls.append(PuzzleCall("accounts_of", {"customer": self.slots["customer"]}))
            solution.step("asked which accounts there are")
        if "account" in self.slots:
            calls.append(PuzzleCall("ledger_entries", {"account": self.slots["account"]}))
            solution.step("asked for the entries of the account")
        if "currency" in self.slots:
            currency = self.slots["currency"]
            day = self.slots["booked" if solution.avoids("booking_rate") else "today"]
            calls.append(PuzzleCall("exchange_rate", {"currency": currency, "day": day}))
            solution.step(f"{currency} on {day}")
        return tuple(calls)

    def _answer(self, solution: Solution, dialogue: Dialogue) -> Decimal:
        stated = self.slots.get("amount")
        amount = _read(_NUMBER, dialogue.results_of("add")[-1]) if stated is None else Decimal(stated)
        if "currency" not in self.slots:
            return amount
        rate = _read(_NUMBER, dialogue.results_of("exchange_rate")[-1])
        solution.step("{} x {}", amount, rate)
        return amount * rate


def _read(shape: TypeAdapter[_T], text: str) -> _T:
    """Return the result of a tool: JSON, or what frameworks make of a list: its items in turn, or Python's spelling."""
    try:
        return shape.validate_json(text)
    except ValidationError:
        return shape.validate_python(_spelt(text.strip()))


def _spelt(text: str) -> Any:
    items, rest = [], text
    with suppress(ValueError):
        while rest:
            item, end = _JSON.raw_decode(rest)
            items.append(item)
            rest = rest[end:].lstrip()
        return items
    with suppress(ValueError, SyntaxError):
        return ast.literal_eval(text)
    return text.splitlines() if "\n" in text else text


def _add(solution: Solution, entries: Sequence[_Entry]) -> tuple[PuzzleCall, ...]:
    if any(entry.status == "void" for entry in entries) and solution.avoids("void_entries"):
        entries = [entry for entry in entries if entry.status != "void"]
    if any(entry.kind == "fee" for entry in entries) and not solution.avoids("fee_entry"):
        entries = [entry for entry in entries if entry.kind != "fee"]
    credit = 1
    if any(entry.kind == "credit note" for entry in entries) and solution.avoids("credit_sign"):
        credit = -1
    values = [entry.amount * (credit if entry.kind == "credit note" else 1) for entry in entries]
    solution.step(f"summed {len(values)} entries")
    return (PuzzleCall("add", {"values": [float(value) for value in values]}),)


def play(question: LedgerQuestion, solver: Solver) -> list[Turn]:
    """Return the turns of an attempt with the real tools."""
    dialogue = Dialogue(tools=frozenset(_TOOLS))
    turns = [question.attempt(solver, dialogue)]
    while calls := turns[-1].calls:
        steps = (*dialogue.steps, *turns[-1].text.splitlines())
        dialogue = Dialogue(steps, (*dialogue.results, *map(run_call, calls)), dialogue.tools)
        turns.append(question.attempt(solver, dialogue))
    return turns


def run_call(call: PuzzleCall) -> PuzzleResult:
    """Call the real tool."""
    return PuzzleResult(call.tool, json.dumps(_TOOLS[call.tool](**call.arguments)))


PUZZLE = LedgerQuestion
