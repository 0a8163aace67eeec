"""The validated plan of a run: items, cohorts, rewarders and forecast."""

__all__ = ["data", "forecast", "plan", "proposal"]
