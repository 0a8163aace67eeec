"""Behavioural footprints of process models."""

__all__ = ["footprint", "relations"]
