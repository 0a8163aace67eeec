"""What does the actor do next about a question on the books? It makes calls until it knows enough, then answers.

It keeps nothing between turns: what it did stands in the dialogue, and what it sums came back from the tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from tfgrpo.tasks.models.simulated.roles.success import Mind
from tfgrpo.tasks.models.simulated.worlds.ledger_data import Entry, entries_in, names_in, number_in
from tfgrpo.tasks.models.simulated.worlds.pitfalls.ledger import (
    BOOKING_RATE,
    CREDIT_SIGN,
    EVERY_ACCOUNT,
    FEE_ENTRY,
    VOID_ENTRIES,
)
from tfgrpo.tasks.models.simulated.worlds.puzzle import Dialogue, PlannedCall, Speech
from tfgrpo.tasks.models.simulated.worlds.word_problems.solution import Sheet, money, plain
from tfgrpo.tasks.models.simulated.worlds.word_problems.template import Slots


def _results(dialogue: Dialogue, tool: str) -> list[str]:
    return [call.result for call in dialogue.calls if call.tool == tool]


@dataclass(frozen=True, slots=True)
class LedgerQuestion:
    """One recognised question. What it needs follows from the slots of its text."""

    slots: Slots

    def attempt(self, mind: Mind, dialogue: Dialogue) -> Speech:
        """Make the next calls, or answer when everything is known."""
        if not self._tools() <= dialogue.tools:
            return Speech("SIMULATED: the tools that this question needs are not on offer.\nAnswer: 0")
        sheet = Sheet(mind, dialogue.steps)
        try:
            calls = self._next_calls(sheet, dialogue)
            if calls:
                return Speech(sheet.fresh(), calls)
            return Speech(sheet.answered(f"{money(self._answer(sheet, dialogue))}"))
        except ValueError:
            return Speech("SIMULATED: a tool gave no usable result.\nAnswer: 0")

    def _tools(self) -> set[str]:
        tools = {"exchange_rate"} if "currency" in self.slots else set()
        if "amount" not in self.slots:
            tools |= {"ledger_entries", "add"}
        return tools | ({"accounts_of"} if "customer" in self.slots else set())

    def _next_calls(self, sheet: Sheet, dialogue: Dialogue) -> tuple[PlannedCall, ...]:
        if not dialogue.calls:
            return self._opening(sheet)
        if "amount" in self.slots or _results(dialogue, "add"):
            return ()
        fetched = _results(dialogue, "ledger_entries")
        if not fetched:
            return self._accounts(sheet, names_in(_results(dialogue, "accounts_of")[-1]))
        return self._sum(sheet, [entry for result in fetched for entry in entries_in(result)])

    def _opening(self, sheet: Sheet) -> tuple[PlannedCall, ...]:
        calls: list[PlannedCall] = []
        if "customer" in self.slots:
            calls.append(PlannedCall("accounts_of", {"customer": self.slots["customer"]}))
            sheet.step("asked which accounts there are")
        if "account" in self.slots:
            calls.append(PlannedCall("ledger_entries", {"account": self.slots["account"]}))
            sheet.step("asked for the entries of the account")
        if "currency" in self.slots:
            currency = self.slots["currency"]
            day = self.slots["booked" if sheet.faces(BOOKING_RATE) else "today"]
            calls.append(PlannedCall("exchange_rate", {"currency": currency, "day": day}))
            sheet.step(f"{currency} on {day}")
        return tuple(calls)

    def _accounts(self, sheet: Sheet, accounts: Sequence[str]) -> tuple[PlannedCall, ...]:
        wanted = accounts if sheet.faces(EVERY_ACCOUNT) else accounts[:1]
        sheet.step(f"{len(wanted)} of {len(accounts)}")
        return tuple(PlannedCall("ledger_entries", {"account": account}) for account in wanted)

    def _sum(self, sheet: Sheet, entries: Sequence[Entry]) -> tuple[PlannedCall, ...]:
        if any(entry.void for entry in entries) and sheet.faces(VOID_ENTRIES):
            entries = [entry for entry in entries if not entry.void]
        if any(entry.kind == "fee" for entry in entries) and not sheet.faces(FEE_ENTRY):
            entries = [entry for entry in entries if entry.kind != "fee"]
        credit = 1
        if any(entry.kind == "credit note" for entry in entries) and sheet.faces(CREDIT_SIGN):
            credit = -1
        values = [entry.amount * (credit if entry.kind == "credit note" else 1) for entry in entries]
        sheet.step(f"summed {len(values)} entries")
        return (PlannedCall("add", {"values": [float(value) for value in values]}),)

    def _answer(self, sheet: Sheet, dialogue: Dialogue) -> Decimal:
        stated = self.slots.get("amount")
        amount = number_in(_results(dialogue, "add")[-1]) if stated is None else Decimal(stated)
        if "currency" not in self.slots:
            return amount
        rate = number_in(_results(dialogue, "exchange_rate")[-1])
        sheet.step(f"{plain(amount)} x {plain(rate)}")
        return amount * rate
