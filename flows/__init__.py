"""What happens in which order, and the command line. Prefect is imported by ``flows.learning_flow`` only when it is needed."""

from __future__ import annotations

__all__: list[str] = []
