"""What the worlds of the simulated model share: their items, the words of advice, and worked solutions.

A world is a class of puzzles and a YAML file of its name. Phrases of a pitfall are written there as words in the order in
which they must occur, ``"tax after discount|rebate"``. A word matches everything that starts with it, ``|`` separates
alternatives, ``=per`` asks for exactly that word. Up to three other words may come between two of a phrase, but no negation
and no end of a sentence. A lesson counts for a pitfall when it mentions its subject and contains a phrase for the right way
or for the mistake. Each phrase votes; a negation shortly before it, or the polarity *avoid*, reverses its vote.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import cached_property, lru_cache
from statistics import fmean
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from tfgrpo.pipelines.settings.tree import ShippedWorld
from tfgrpo.prompt_packs import lessons_in
from tfgrpo.rewarders.importing import load_object
from tfgrpo.stores.errors import PipelineError
from tfgrpo.stores.experiences.store import Polarity
from tfgrpo.stores.packaged import packaged_yaml
from tfgrpo.tasks.models.simulated.protocol import ChatMessage

WORDS: dict[str, Any] = packaged_yaml(__file__, "words.yaml")


class Advice(NamedTuple):
    """One wording of a lesson."""

    polarity: Polarity
    text: str


def advice_of(texts: Mapping[Polarity, Sequence[str]]) -> tuple[Advice, ...]:
    """Return the wordings listed by polarity."""
    return tuple(Advice(polarity, text) for polarity, listed in texts.items() for text in listed)


class Pitfall(NamedTuple):
    """One typical mistake: its subject, phrases for the right way and for the mistake, and what a worked step shows."""

    name: str
    about: Sequence[str]
    right: Sequence[str]
    wrong: Sequence[str]
    shown_avoided: Sequence[str]
    shown_hit: Sequence[str]
    good_advice: Sequence[Advice]
    bad_advice: Sequence[Advice]
    working: str = ""
    """The working of that step, with ``{}`` for each number and the result."""


Stance: TypeAlias = Literal[-1, 1]
_SLOT = re.compile(r"\{(\w+)\}")
_NEGATION = r"(?:no|not|never|without|avoid\w*|insteadof|ratherthan)"
_TURNS = re.compile(rf"{_NEGATION}|forg[eo]t\w*|skip\w*|omit\w*|ignor\w*|neglect\w*|leaveout")
# How many words after a negation are negated.
_REACH = 4
_JOINED = [(re.compile(pattern), text) for pattern, text in WORDS["joined"].items()]


def _reversed(words: str, start: int, *, avoided: bool) -> bool:
    before = words[:start]
    clause = re.split("[/,]", before)[-1].split()
    turns = sum(1 for word in clause[-_REACH:] if _TURNS.fullmatch(word))
    # An avoid text that negates itself says what it means; and what follows its first sentence is said plainly.
    return (turns + (avoided and "/" not in before and not words.startswith(("not ", "never ", "avoid")))) % 2 == 1


def advice_in(system_text: str) -> tuple[Advice, ...]:
    """Return the lessons of the prompt's block, in order; text outside the block is not advice."""
    lines = (line.partition(": ") for line in lessons_in(system_text))
    return tuple(Advice("do" if word == "Do" else "avoid", text) for word, _, text in lines)


class Solver:
    """Decides how an attempt goes. This one makes exactly the named mistakes; items are generated and checked with it."""

    def __init__(self, hit: Iterable[str] = ()) -> None:
        self.hit = frozenset(hit)

    def avoids(self, pitfall: str) -> bool:
        """Whether this attempt avoids the pitfall of that name."""
        return pitfall not in self.hit

    def shown(self, pitfall: Pitfall, *, avoided: bool) -> str:
        """Return how a step reads that avoided the pitfall or hit it."""
        return (pitfall.shown_avoided if avoided else pitfall.shown_hit)[0]

    def lucky(self, share: float) -> bool:  # noqa: ARG002
        """True in this share of attempts, independent of the prompt."""
        return not self.hit


class Turn(NamedTuple):
    """One turn of the actor: text, and calls unless it is the last turn."""

    text: str
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()


@dataclass(frozen=True)
class Puzzle(ABC):
    """One item, recognised in the text of its prompt."""

    world: World
    kind: str
    slots: Mapping[str, str]

    @abstractmethod
    def solved(self, solver: Solver) -> str:
        """Return the last text of a whole attempt."""

    def turn(self, solver: Solver, later: Sequence[ChatMessage], offered: Collection[str]) -> Turn:  # noqa: ARG002
        """Return the next turn of an attempt. ``later``: what came after the item. ``offered``: names of the tools."""
        return Turn(self.solved(solver))

    def agrees(self, output: str) -> bool:
        """Whether an output states the right answer."""
        return answer_of(output) == answer_of(self.solved(Solver()))


class World:
    """A closed family of items with their pitfalls, as the YAML file of its name next to ``module``, a ``__file__``, has it."""

    def __init__(self, name: str, module: str, puzzle: type[Puzzle]) -> None:
        self.name, self.puzzle = name, puzzle
        self.data: Mapping[str, Any] = packaged_yaml(module, f"{name}.yaml")
        # By kind, the longest fixed piece of its text, a cheap first test, and its pattern: a word in every ``{slot}``.
        self._templates: dict[str, tuple[str, re.Pattern[str]]] = {}
        for kind, row in self.data["templates"].items():
            pieces = _SLOT.split(row["text"])
            regex = [re.escape(piece) if i % 2 == 0 else rf"(?P<{piece}>[\w.:-]*\w)" for i, piece in enumerate(pieces)]
            self._templates[kind] = max(pieces[::2], key=len), re.compile("".join(regex))
        self.pitfalls = {
            name: Pitfall(name, **{**row, **{key: advice_of(row[key]) for key in ("good_advice", "bad_advice")}})
            for name, row in self.data["pitfalls"].items()
        }
        self.advice = lru_cache(256)(self._advice)

    def recognise(self, text: str) -> Puzzle | None:
        """Return the item whose template the text contains, of several the first; None when there is none."""
        for kind, (piece, pattern) in self._templates.items():
            if piece in text and (match := pattern.search(text)) is not None:
                return self.puzzle(self, kind, match.groupdict())
        return None

    @cached_property
    def _lexicon(self) -> Mapping[str, tuple[list[re.Pattern[str]], list[tuple[re.Pattern[str], int]]]]:
        # By pitfall, the words that are its subject, and the phrases with their votes.
        gap = rf"(?: (?!{_NEGATION}\b)[\w,]+){{0,3}}? "

        def pattern(*phrase: str) -> re.Pattern[str]:
            words = []
            for alternatives in phrase:
                forms = (rf"{form[1:]}\b" if form.startswith("=") else rf"{form}\w*" for form in alternatives.split("|"))
                words.append(f"(?:{'|'.join(forms)})")
            return re.compile(rf"(?<!\S){gap.join(words)}(?!\S)")

        lexicon = {}
        for name, pitfall in self.pitfalls.items():
            votes = [(1, text) for text in pitfall.right] + [(-1, text) for text in pitfall.wrong]
            # Alternatives of a subject may have spaces; in a phrase these separate its words.
            subject = [pattern(each) for each in pitfall.about]
            lexicon[name] = subject, [(pattern(*text.split()), vote) for vote, text in votes]
        return lexicon

    def stances(self, polarity: Polarity, text: str) -> dict[str, Stance]:
        """Return, by pitfall, 1 when the text helps against it and -1 when it leads into it."""
        # Lower case with single spaces, "/" for the end of a sentence or clause, and negations as one word.
        words = text.lower().replace("\u2019", "'")
        for joined, replacement in _JOINED:
            words = joined.sub(replacement, words)
        words = " ".join(words.split()).strip("/ ")
        stances: dict[str, Stance] = {}
        for name, (about, votes) in self._lexicon.items():
            if all(pattern.search(words) for pattern in about):
                starts = ((vote, match.start()) for pattern, vote in votes for match in pattern.finditer(words))
                total = sum(-vote if _reversed(words, at, avoided=polarity == "avoid") else vote for vote, at in starts)
                if total:
                    stances[name] = 1 if total > 0 else -1
        return stances

    def _advice(self, system_text: str) -> Mapping[str, float]:
        # By pitfall, the mean stance of the lessons in a system prompt, from -1 to 1.
        votes: dict[str, list[int]] = {}
        for name, stance in (each for lesson in advice_in(system_text) for each in self.stances(*lesson).items()):
            votes.setdefault(name, []).append(stance)
        return {name: fmean(stances) for name, stances in votes.items()}


def open_world(name: str) -> World:
    """Return a world by the name that the settings have for it. Raise ``PipelineError`` where there is none."""
    world = load_object(f"{__package__}.worlds:{name.upper()}" if name in get_args(ShippedWorld) else name, "--world")
    if not isinstance(world, World):
        raise PipelineError.one("--world", f"{name!r}, a {type(world).__name__}", "a World")
    return world


class Solution:
    """Numbered steps of a worked solution. A pitfall that was met shows in the next step."""

    def __init__(self, puzzle: Puzzle, solver: Solver) -> None:
        self.pitfalls, self.slots, self._solver = puzzle.world.pitfalls, puzzle.slots, solver
        self.steps, self._shown = list[str](), list[str]()

    def avoids(self, name: str) -> bool:
        """Whether the attempt avoids the pitfall."""
        avoided = self._solver.avoids(name)
        self._shown.append(self._solver.shown(self.pitfalls[name], avoided=avoided))
        return avoided

    def step(self, working: str, *numbers: Decimal) -> None:
        """Write one step, with the pitfalls met since the last one. ``numbers`` take the places of ``{}``."""
        shown = "; ".join(self._shown)
        self._shown.clear()
        if numbers:  # with at most six decimals, without exponent and trailing zeros
            digits = [f"{each.quantize(Decimal('0.000001'), rounding=ROUND_HALF_UP):f}" for each in numbers]
            working = working.format(*(each.rstrip("0").rstrip(".") for each in digits))
        self.steps.append(f"Step {len(self.steps) + 1}: {shown + ': ' if shown else ''}{working}")

    def answered(self, answer: object) -> str:
        """Return all steps and the answer."""
        return "\n".join([*self.steps, f"Answer: {answer}"])


def to_cents(value: Decimal) -> Decimal:
    """Round to cents, halves away from zero."""
    return value.quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)


def answer_of(text: str) -> str:
    """Return what a worked solution states after its last ``Answer:``."""
    return text.rsplit("Answer:", 1)[-1].strip()
