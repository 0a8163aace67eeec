"""What happens in which order: the learning and selection flows, and the command line."""

__all__ = ["cli", "learning_flow", "selection_flow"]
