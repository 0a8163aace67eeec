"""How do groups leave for a trainer, and lessons for another agent? One file per question, one reader for all targets.

Groups are read one group at a time, so that their number does not matter. Nothing here starts a run
or changes one.
"""

__all__ = ["choosing", "exporting", "importing", "lessons", "lessons_import", "lessons_reading", "run_reading"]
