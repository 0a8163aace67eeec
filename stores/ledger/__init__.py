"""Calls, tokens and money: reserved before a call, settled after it."""

__all__ = ["ledger", "state"]
