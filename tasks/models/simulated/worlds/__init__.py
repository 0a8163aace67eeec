"""The tasks of the simulated model: items, right answers and typical mistakes."""

__all__ = ["answers", "ledger", "pitfalls", "powl", "puzzle", "worlds"]
