"""Learn from groups: summarize, reflect, propose, curate, record."""

__all__ = ["ask", "credit", "curate", "reflect", "tally"]
