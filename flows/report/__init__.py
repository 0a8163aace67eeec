"""The report of a run: one self-contained HTML page."""

__all__ = ["calibration", "files", "morning", "nights", "page"]
