"""A world of the simulated model whose descriptions of business processes are turned into process models."""
