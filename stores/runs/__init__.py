"""What a run writes: journal, manifest, metrics and summaries per epoch."""

__all__ = ["journal", "manifest", "metrics"]
