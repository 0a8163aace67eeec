"""The Prefect server of a run: an ephemeral local one, or the one that the settings name."""

__all__ = ["local_server", "named_server", "prefect_home"]
