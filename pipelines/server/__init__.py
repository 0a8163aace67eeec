"""The data server: samples of a staged data mix over HTTP, and rewards for completions of them."""

__all__ = ["app", "listening", "service"]
