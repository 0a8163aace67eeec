"""Learn from groups: summarize, reflect, propose, curate, record."""

__all__ = ["ask", "credit", "curate", "curriculum_stage", "reflect", "similarity", "summarize"]
