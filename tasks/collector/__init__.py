"""Collect groups of rollouts for training, with any policy and reward model."""
