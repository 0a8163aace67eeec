"""Export groups to trainers and lessons to other agents, and import both; no run is started or changed."""

__all__ = ["choosing", "exporting", "lessons", "run_reading"]
