"""Random input against the readers of process models, for as long as one likes: ``make fuzz``."""
