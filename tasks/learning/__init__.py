"""Learn from groups: summarize, reflect, propose, curate, record."""

__all__ = ["ask", "curate", "curriculum_stage", "reflect", "summarize"]
