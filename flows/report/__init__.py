"""The report of a run: one self-contained HTML page."""

__all__ = ["attempts", "calibration", "night", "page"]
