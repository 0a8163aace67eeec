"""A world of the simulated model whose questions about the books of a company are answered with tools."""
