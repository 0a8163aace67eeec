"""The world ``benchmarks.ledger.world:WORLD``: questions about the books, answered with tool calls over two to four turns.

A question keeps no state between turns: the messages have the steps and what the tools returned.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from examples.agents import bookkeeping
from tfgrpo.tasks.models.simulated.protocol import ChatMessage
from tfgrpo.tasks.models.simulated.puzzle import Puzzle, Solution, Solver, Turn, World, to_cents

_T = TypeVar("_T")
_JSON: Final = json.JSONDecoder()
TOOLS: Final[Mapping[str, Callable[..., Any]]] = {
    tool.__name__: tool
    for tool in (bookkeeping.accounts_of, bookkeeping.ledger_entries, bookkeeping.exchange_rate, bookkeeping.add)
}
_NEEDED: Final[Mapping[str, set[str]]] = {
    "currency": {"exchange_rate"},
    "account": {"ledger_entries", "add"},
    "customer": {"accounts_of", "ledger_entries", "add"},
}
"""Tools that a question with this slot needs."""
_TIMED: Final = re.compile(r"\AWall time: .*\nOutput:\n")
"""What Codex puts before the result of a tool."""
_Results: TypeAlias = Mapping[str, list[str]]
"""What each tool returned, in order."""
_Calls: TypeAlias = list[tuple[str, Mapping[str, Any]]]


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

    def solved(self, solver: Solver) -> str:
        """Return the last text of an attempt with the real tools."""
        messages: list[ChatMessage] = []
        while (turn := self.turn(solver, messages, TOOLS)).calls:
            messages += played(turn, len(messages))
        return turn.text

    def turn(self, solver: Solver, later: Sequence[ChatMessage], offered: Collection[str]) -> Turn:
        """Return the next calls, or the answer when everything is known."""
        names = {own_name(tool): tool for tool in offered}
        if not set().union(*(_NEEDED.get(slot, ()) for slot in self.slots)) <= names.keys():
            return Turn("SIMULATED: the tools that this question needs are not on offer.\nAnswer: 0")
        lines = (line for each in later if each.role == "assistant" for line in each.text.splitlines())
        solution = Solution(self, solver)
        solution.steps += (line for line in lines if line.startswith("Step "))
        before = len(solution.steps)
        results = _results(later)
        try:
            if calls := self._next_calls(solution, results):
                return Turn("\n".join(solution.steps[before:]), tuple((names[tool], arguments) for tool, arguments in calls))
            return Turn(solution.answered(to_cents(self._answer(solution, results))))
        except ValueError:
            return Turn("SIMULATED: a tool gave no usable result.\nAnswer: 0")

    def _next_calls(self, solution: Solution, results: _Results) -> _Calls:
        if not results:
            return self._first_calls(solution)
        if "amount" in self.slots or "add" in results:
            return []
        if "ledger_entries" in results:
            return _add(solution, [entry for text in results["ledger_entries"] for entry in _read(_ENTRIES, text)])
        accounts = _read(_ACCOUNTS, results["accounts_of"][-1])
        wanted = accounts if solution.avoids("every_account") else accounts[:1]
        solution.step(f"{len(wanted)} of {len(accounts)}")
        return [("ledger_entries", {"account": account}) for account in wanted]

    def _first_calls(self, solution: Solution) -> _Calls:
        calls: _Calls = []
        if "customer" in self.slots:
            calls.append(("accounts_of", {"customer": self.slots["customer"]}))
            solution.step("asked which accounts there are")
        if "account" in self.slots:
            calls.append(("ledger_entries", {"account": self.slots["account"]}))
            solution.step("asked for the entries of the account")
        if "currency" in self.slots:
            currency = self.slots["currency"]
            day = self.slots["booked" if solution.avoids("booking_rate") else "today"]
            calls.append(("exchange_rate", {"currency": currency, "day": day}))
            solution.step(f"{currency} on {day}")
        return calls

    def _answer(self, solution: Solution, results: _Results) -> Decimal:
        stated = self.slots.get("amount")
        amount = _read(_NUMBER, results["add"][-1]) if stated is None else Decimal(stated)
        if "currency" not in self.slots:
            return amount
        rate = _read(_NUMBER, results["exchange_rate"][-1])
        solution.step("{} x {}", amount, rate)
        return amount * rate


def _results(later: Sequence[ChatMessage]) -> _Results:
    """Raise ``LookupError`` for a call without a result."""
    returned = {message.tool_call_id: message.text for message in later if message.role == "tool"}
    results: dict[str, list[str]] = {}
    for call in (call for message in later for call in message.tool_calls or ()):
        results.setdefault(own_name(call["function"]["name"]), []).append(_TIMED.sub("", returned[call["id"]]))
    return results


def own_name(tool: str) -> str:
    """Return the name of a tool at its MCP server: agents put that of the server in front, as in ``mcp__books__add``."""
    return tool.rpartition("__")[2]


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


def _add(solution: Solution, entries: Sequence[_Entry]) -> _Calls:
    if any(entry.status == "void" for entry in entries) and solution.avoids("void_entries"):
        entries = [entry for entry in entries if entry.status != "void"]
    if any(entry.kind == "fee" for entry in entries) and not solution.avoids("fee_entry"):
        entries = [entry for entry in entries if entry.kind != "fee"]
    credit = 1
    if any(entry.kind == "credit note" for entry in entries) and solution.avoids("credit_sign"):
        credit = -1
    values = [entry.amount * (credit if entry.kind == "credit note" else 1) for entry in entries]
    solution.step(f"summed {len(values)} entries")
    return [("add", {"values": [float(value) for value in values]})]


def played(turn: Turn, number: int) -> list[ChatMessage]:
    """Return the messages of a turn and of the real tools that it calls; ``number`` makes the ids of its calls."""
    made = [
        {"id": f"{number}-{index}", "function": {"name": tool, "arguments": json.dumps(arguments)}}
        for index, (tool, arguments) in enumerate(turn.calls)
    ]
    said = {"role": "assistant", "content": turn.text, "tool_calls": made}
    texts = (json.dumps(TOOLS[tool](**arguments)) for tool, arguments in turn.calls)
    results = [{"role": "tool", "tool_call_id": call["id"], "content": text} for call, text in zip(made, texts, strict=True)]
    return [ChatMessage.model_validate(each) for each in (said, *results)]


WORLD = World("ledger-tools", __file__, LedgerQuestion)
