"""Typical mistakes of the simulated actor."""

__all__ = ["amounts", "arithmetic", "counts", "ledger", "pitfall", "powl"]
