"""The simulated model as an HTTP service of the OpenAI chat protocol, with faults on request."""

__all__ = ["app", "instance", "options", "protocol", "server"]
