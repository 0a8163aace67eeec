"""Learn from groups: summarize, reflect, propose, curate, record."""

__all__ = ["ask", "curate", "curation", "curriculum_stage", "reflect", "similarity", "summarize"]
