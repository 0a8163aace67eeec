"""What is the ``arithmetic`` world? Word problems from business life, on which the right lessons help."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from tfgrpo.tasks.models.simulated.roles.lexicon import Lexicon
from tfgrpo.tasks.models.simulated.roles.success import Mind, ScriptedMind
from tfgrpo.tasks.models.simulated.worlds.answers import answer_of, every_mistake_shows
from tfgrpo.tasks.models.simulated.worlds.pitfalls.arithmetic import ARITHMETIC_PITFALLS
from tfgrpo.tasks.models.simulated.worlds.pitfalls.pitfall import Pitfall
from tfgrpo.tasks.models.simulated.worlds.puzzle import Dialogue, Draft, Speech
from tfgrpo.tasks.models.simulated.worlds.word_problems.double import DOUBLE
from tfgrpo.tasks.models.simulated.worlds.word_problems.problem import Problem
from tfgrpo.tasks.models.simulated.worlds.word_problems.single import SINGLE
from tfgrpo.tasks.models.simulated.worlds.word_problems.template import Slots, find

PROBLEMS: Final = SINGLE + DOUBLE
_BY_NAME: Final = {problem.template.name: problem for problem in PROBLEMS}


@dataclass(frozen=True, slots=True)
class WordProblem:
    """One recognised word problem."""

    problem: Problem
    slots: Slots

    def attempt(self, mind: Mind, dialogue: Dialogue) -> Speech:  # noqa: ARG002
        """The whole worked solution, in one turn."""
        return Speech(self.problem.solve(self.slots, mind))


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Word problems with one or two pitfalls each, told apart by their text and solved exactly."""

    name: str = "arithmetic"
    domain: str = "arithmetic"
    prefix: str = "ar"
    pitfalls: tuple[Pitfall, ...] = ARITHMETIC_PITFALLS
    lexicon: Lexicon = field(default_factory=lambda: Lexicon(ARITHMETIC_PITFALLS), compare=False)

    def recognise(self, text: str) -> WordProblem | None:
        """The word problem in a prompt."""
        found = find((problem.template for problem in PROBLEMS), text)
        return None if found is None else WordProblem(_BY_NAME[found[0].name], found[1])

    def draft(self, rng: random.Random) -> Draft | None:
        """A random problem in which every mistake shows in the answer."""
        problem = rng.choice(PROBLEMS)
        slots = problem.template.draw(rng)
        names = tuple(pitfall.name for pitfall in problem.pitfalls)

        def answer(hit: frozenset[str]) -> str:
            return answer_of(problem.solve(slots, ScriptedMind(hit)))

        if not every_mistake_shows(names, answer):
            return None
        return Draft(problem.template.name, problem.template.filled(slots), answer(frozenset()), names)
