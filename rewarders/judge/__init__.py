"""Language models as judges: scores, votes, pairs and their calibration."""

__all__ = ["calibrating", "calibration", "judge", "pairs", "seam", "votes"]
