"""What do lessons look like that help nobody? Texts that the reflecting role writes when it finds nothing better."""

from __future__ import annotations

from typing import Final

from tfgrpo.tasks.models.simulated.worlds.pitfalls.pitfall import Advice, avoid, do

USELESS: Final[tuple[Advice, ...]] = (
    *do(
        "Read the question slowly, and think before writing.",
        "Be careful and check the work twice.",
        "Lay the solution out neatly so that it is easy to follow.",
        "Use clear language and a friendly tone.",
        "Explain the approach in a few words at the beginning.",
        "Stay calm with long texts.",
    ),
    *avoid(
        "Hasty work under time pressure.",
        "Messy layout that hides the reasoning.",
    ),
)
RAMBLING: Final = (
    "It also seems worth saying that whoever works on tasks of this kind will, now and again, be well advised to stop "
    "for a moment, look back over everything that has been written so far, and only then go on with whatever comes "
    "next in the plan."
)
"""What now and then follows a lesson and makes it too long."""
