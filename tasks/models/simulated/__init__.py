"""The simulated model: small worlds served over the OpenAI chat protocol, so that all can be tried without a key."""

from tasks.models.simulated.app import simulated_app
from tasks.models.simulated.options import SimulatedOptions
from tasks.models.simulated.server import run_server, running_server, serve
from tasks.models.simulated.worlds import SHIPPED, data_file, generate_items

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
