"""What happens in which order: the learning and selection flows, and the command line."""

__all__ = ["api", "cli", "learning_flow", "selection", "selection_flow"]
