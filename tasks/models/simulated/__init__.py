"""Simulated model: small worlds served over the OpenAI chat protocol, to try everything without a key."""

from tfgrpo.tasks.models.simulated.app import simulated_app
from tfgrpo.tasks.models.simulated.engine import SimulatedOptions

__all__ = ["SimulatedOptions", "simulated_app", "worlds"]
