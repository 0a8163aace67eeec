"""The simulated model: small worlds served over the OpenAI chat protocol, so that all can be tried without a key."""

from tfgrpo.tasks.models.simulated.service.app import simulated_app
from tfgrpo.tasks.models.simulated.service.options import SimulatedOptions
from tfgrpo.tasks.models.simulated.service.server import run_server, running_server, serve
from tfgrpo.tasks.models.simulated.worlds.worlds import SHIPPED, data_file, generate_items

__all__ = [
    "SHIPPED",
    "SimulatedOptions",
    "data_file",
    "generate_items",
    "run_server",
    "running_server",
    "serve",
    "simulated_app",
]
