"""Rewarders made of weighted parts and gates."""

__all__ = ["composite", "options"]
