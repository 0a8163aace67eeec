"""What is the ``powl`` world? Descriptions of business processes, on which lessons about structure help.

Its items are the shipped ones, written by hand; none are generated. The mistakes are the same in every kind of
business, so that what was learned in some of them helps in others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tfgrpo.pipelines.datasets.datasets import load_dataset, shipped_dataset, shipped_held_out
from tfgrpo.rewarders.powl import Model, parse_text, structural_key, to_text
from tfgrpo.rewarders.powl.scoring.answers import model_in
from tfgrpo.stores.errors import PowlError
from tfgrpo.tasks.models.simulated.roles.lexicon import Lexicon
from tfgrpo.tasks.models.simulated.roles.success import Mind
from tfgrpo.tasks.models.simulated.worlds.pitfalls.pitfall import Pitfall
from tfgrpo.tasks.models.simulated.worlds.pitfalls.powl import POWL_PITFALLS
from tfgrpo.tasks.models.simulated.worlds.powl_mistakes import mistakes_of
from tfgrpo.tasks.models.simulated.worlds.puzzle import Dialogue, Speech
from tfgrpo.tasks.models.simulated.worlds.word_problems.solution import Sheet

NAME = "powl"


@dataclass(frozen=True, slots=True)
class ProcessDescription:
    """One recognised description, with the model that follows from it."""

    model: Model

    def attempt(self, mind: Mind, dialogue: Dialogue) -> Speech:  # noqa: ARG002
        """What was made of each difficulty, and the model, in one turn."""
        sheet = Sheet(mind)
        model = self.model
        for mistake in mistakes_of(self.model):
            if not sheet.faces(mistake.pitfall):
                model = mistake.made_in(model)
            sheet.step(", ".join(mistake.occasions(self.model)))
        return Speech(sheet.answered(to_text(model)))

    def agrees(self, output: str) -> bool:
        """Whether an output holds the right model, however it is written."""
        try:
            return structural_key(model_in(output)) == structural_key(self.model)
        except PowlError:
            return False


def _shipped() -> dict[str, ProcessDescription]:
    paths = [shipped_dataset(NAME), shipped_held_out(NAME)]
    items = (item for path in paths if path is not None for item in load_dataset(path))
    return {item.prompt: ProcessDescription(parse_text(item.answer)) for item in items}


@dataclass(frozen=True, slots=True)
class Processes:
    """Descriptions with one to three occasions for a mistake each."""

    name: str = NAME
    pitfalls: tuple[Pitfall, ...] = POWL_PITFALLS
    lexicon: Lexicon = field(default_factory=lambda: Lexicon(POWL_PITFALLS), compare=False)
    descriptions: dict[str, ProcessDescription] = field(default_factory=_shipped, compare=False, repr=False)
    """By prompt."""

    def recognise(self, text: str) -> ProcessDescription | None:
        """The description in a prompt."""
        known = self.descriptions.get(text)
        if known is not None:
            return known
        return next((found for prompt, found in self.descriptions.items() if prompt in text), None)
