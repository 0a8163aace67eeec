"""Best of K for one request: candidates with repairs, grades, and a choice, as one frozen value."""

from tasks.selection.choosing import choose
from tasks.selection.formats import AnswerFormat, JsonFormat, Pattern, PowlFormat, TextFormat, Unusable, Usable
from tasks.selection.hints import hint_of
from tasks.selection.round import select_best
from tasks.selection.shapes import (
    Candidate,
    Chosen,
    Cost,
    Flawed,
    Grade,
    LostCandidate,
    NotChosen,
    Selection,
    SelectionSpec,
    Sound,
    first_line,
)

__all__ = [
    "AnswerFormat",
    "Candidate",
    "Chosen",
    "Cost",
    "Flawed",
    "Grade",
    "JsonFormat",
    "LostCandidate",
    "NotChosen",
    "Pattern",
    "PowlFormat",
    "Selection",
    "SelectionSpec",
    "Sound",
    "TextFormat",
    "Unusable",
    "Usable",
    "choose",
    "first_line",
    "hint_of",
    "select_best",
]
