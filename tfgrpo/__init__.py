"""Learn lessons for an LLM agent without changing weights, and prove on held-out items that they help."""
