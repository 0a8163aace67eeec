"""Simulated model: small worlds served over the OpenAI chat protocol, to try everything without a key."""

from tfgrpo.tasks.models.simulated.app import simulated_app

__all__ = ["puzzle", "simulated_app"]
