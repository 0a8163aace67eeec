"""The validated plan of a run: items, cohorts, rewarders and forecast."""

__all__ = ["curriculum", "judges", "plan", "references", "rewarders", "sampling", "spec_guard", "split"]
