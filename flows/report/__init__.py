"""The report of a run: one self-contained HTML page."""

__all__ = ["calibration", "morning", "nights", "page"]
