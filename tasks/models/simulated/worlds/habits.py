"""Which habits do attempts in the ``unlearnable`` world show? They look like causes, and change nothing.

Written as pitfalls so that the reflecting role is tempted exactly as it is elsewhere; see ``pitfall`` for the notation.
"""

from __future__ import annotations

from typing import Final

from tfgrpo.tasks.models.simulated.worlds.pitfalls.pitfall import Pitfall, avoid, do

HABITS: Final = (
    Pitfall(
        name="newest_first",
        about=("new|recent|latest|old|earliest",),
        right=("begin|start|read newest|recent|latest", "newest|recent|latest first"),
        wrong=("begin|start|read old|earliest", "oldest|earliest first"),
        shown_avoided=("began with the newest note", "read the newest note first"),
        shown_hit=("began with the oldest note", "read the oldest note first"),
        good_advice=(
            *do("Begin with the newest note and work backwards.", "Read the most recent note first."),
            *avoid("Starting with the oldest note."),
        ),
        bad_advice=do("Begin with the oldest note.", "Read the earliest note first."),
    ),
    Pitfall(
        name="label_parity",
        about=("label", "odd|even|digit|parity"),
        right=("look|check|use|go last|digit|parity", "digit|parity decide|hint"),
        wrong=("disregard label|digit|parity",),
        shown_avoided=("looked at the last digit of the label", "went by the parity of the label"),
        shown_hit=("paid no attention to the label", "passed over the label"),
        good_advice=(
            *do("Check the last digit of the label before deciding.", "Use the parity of the label as a hint."),
            *avoid("Disregarding the parity of the label."),
        ),
        bad_advice=do("Disregard the digits of the label.", "Disregard the label and its parity."),
    ),
    Pitfall(
        name="middle_choice",
        about=("middle|extreme|edge|outer",),
        right=("prefer|choose|take|favour middle", "middle choice|option|value safe"),
        wrong=("prefer|choos|take|favour extreme|edge|outer",),
        shown_avoided=("preferred the middle choice", "leaned to the middle choice"),
        shown_hit=("preferred an outer choice", "leaned to an outer choice"),
        good_advice=(
            *do("Prefer the middle choice when nothing else decides.", "Take the middle option of the three."),
            *avoid("Choosing an outer option without a reason."),
        ),
        bad_advice=do("Prefer an outer choice.", "Choose one of the extreme options."),
    ),
    Pitfall(
        name="second_look",
        about=("guess|impression|thought|hunch|mind",),
        right=("keep|trust|stay first|hunch", "first impression|guess|thought right|best"),
        wrong=("chang|revis|doubt first|guess|mind|hunch", "second thought"),
        shown_avoided=("kept the first impression", "trusted the first impression"),
        shown_hit=("had a second thought and changed the guess", "changed the guess on a second thought"),
        good_advice=(
            *do("Trust the first impression.", "Keep the first guess once it is made."),
            *avoid("Changing the guess on a second thought."),
        ),
        bad_advice=do("Change the first guess after a pause.", "Revise the first impression once."),
    ),
)
