"""Language models as judges: scores, votes, pairs and their calibration."""

__all__ = ["calibration", "judge", "model", "options", "pairs", "voting"]
