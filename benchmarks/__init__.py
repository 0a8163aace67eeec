"""Measurements, never tests: each prints a table of medians, and says against what the figures are to be held."""
