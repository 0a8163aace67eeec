"""Resources that the steps of one process share, and the event loop on which they run."""

__all__ = ["host", "runtime"]
