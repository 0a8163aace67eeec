"""What did the tools say? Reads tool results back into figures, and runs the tools when items are made.

A result that is not what the tool returns, such as the text of an error, raises ``ValueError``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from tfgrpo.tasks.models.simulated.worlds.puzzle import DoneCall, PlannedCall
from tfgrpo.tasks.tools import bookkeeping

_TOOLS: Final[Mapping[str, Callable[..., Any]]] = {
    tool.__name__: tool
    for tool in (bookkeeping.accounts_of, bookkeeping.ledger_entries, bookkeeping.exchange_rate, bookkeeping.add)
}


class Entry(NamedTuple):
    """One line of an account, as far as it matters for a sum."""

    kind: str
    amount: Decimal
    void: bool


def run(call: PlannedCall) -> DoneCall:
    """Make a call for real, as an actor with these tools would."""
    return DoneCall(call.tool, call.arguments, json.dumps(_TOOLS[call.tool](**call.arguments)))


def number_in(result: str) -> Decimal:
    """The number a tool returned."""
    try:
        value = Decimal(result.strip())
    except InvalidOperation as error:
        raise ValueError(result) from error
    if not value.is_finite():
        raise ValueError(result)
    return value


def names_in(result: str) -> list[str]:
    """The names a tool returned, at least one."""
    value = _parsed(result)
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise ValueError(result)
    return value


def entries_in(result: str) -> list[Entry]:
    """The ledger entries a tool returned."""
    value = _parsed(result)
    if not isinstance(value, list):
        raise ValueError(result)
    try:
        return [Entry(line["kind"], Decimal(str(line["amount"])), line["status"] == "void") for line in value]
    except (KeyError, TypeError, InvalidOperation) as error:
        raise ValueError(result) from error


def _parsed(result: str) -> object:
    try:
        value: object = json.loads(result)
    except ValueError as error:
        raise ValueError(result) from error
    return value
