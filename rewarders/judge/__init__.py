"""Language models as judges: scores, votes, pairs and their calibration."""

__all__ = ["calibration", "judge", "model", "pairs", "voting"]
