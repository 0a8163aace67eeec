"""The validated plan of a run: items, cohorts, rewarders and forecast; and the checks of its files at the end."""

__all__ = ["data", "forecast", "plan", "proposal", "rewarders", "spec_checks"]
