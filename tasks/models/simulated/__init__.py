"""Simulated model: small worlds served over the OpenAI chat protocol, to try everything without a key."""

from tfgrpo.tasks.models.simulated.app import simulated_app
from tfgrpo.tasks.models.simulated.engine import SimulatedOptions
from tfgrpo.tasks.models.simulated.worlds import SHIPPED, WorldName, data_file, generate_items

__all__ = [
    "SHIPPED",
    "SimulatedOptions",
    "WorldName",
    "data_file",
    "generate_items",
    "server",
    "simulated_app",
]
