"""The replies of the simulated model, one module for each role."""

__all__ = ["actor", "lexicon", "roles", "success"]
