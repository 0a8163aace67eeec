"""OpenTelemetry: spans and metrics of a run and their export."""

__all__ = ["setup"]
