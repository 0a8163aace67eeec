"""Advantages of the rollouts of a group, for one group and for batches."""

__all__ = ["group"]
