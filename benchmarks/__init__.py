"""Measurements, never tests: each gives rows of medians, and says what bar the figures are to be held against."""
