"""Each rule by which an answer is compared decides its example."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from fractions import Fraction

import pytest

from tfgrpo.rewarders.text import choices, lexer, moments, numbers, references, words
from tfgrpo.rewarders.text.references import read_reference
from tfgrpo.rewarders.text.rules import AnswerRule as Rule
from tfgrpo.rewarders.text.rules import Surroundings
from tfgrpo.stores.errors import RewardError

OPTIONS = {"A": "Rome", "B": "Paris", "C": "Berlin"}


def tables() -> Iterator[tuple[str, Rule]]:
    for module in (choices, moments, references, words):
        for kind, cls in inspect.getmembers(module, inspect.isclass):
            for value in vars(cls).values() if cls.__module__ == module.__name__ else ():
                if isinstance(value, tuple) and value and isinstance(value[0], Rule):
                    yield from ((kind, rule) for rule in value)


RULES = [*tables()]


@pytest.mark.parametrize(("kind", "rule"), RULES, ids=[f"{kind}: {rule.name}" for kind, rule in RULES])
def test_a_rule_decides_its_example(kind, rule):
    known = (None, lambda *_: True, lambda *_: False) if "Formula" in kind else (None,)
    decided = []
    for equal in known:
        reference = read_reference(rule.reference, ".", Fraction(0), OPTIONS, equal)
        assert type(reference).__name__ == kind
        try:
            compared = reference.compare(rule.output)
            decided.append(("right" if compared.right else "wrong" if compared.states else "none", compared.by))
        except RewardError as error:
            decided.append(("unclear", next((each.name for _, each in RULES if str(error).endswith(each.name)), "")))
    assert (rule.verdict, rule.name) in decided


def test_every_kind_has_its_rules():
    assert {kind for kind, _ in RULES} >= {"NumberReference", "ListReference", "JsonReference", "FormulaReference"}


SURROUNDINGS = [
    (name, table, rule)
    for module in (choices, lexer, moments, numbers, references, words)
    for name, table in vars(module).items()
    if isinstance(table, Surroundings) and (module is numbers or not hasattr(numbers, name))
    for rule in table.rules
]


@pytest.mark.parametrize(
    ("name", "table", "rule"), SURROUNDINGS, ids=[f"{each[0]}: {each[2].name}" for each in SURROUNDINGS]
)
def test_what_is_beside_a_place_is_known_by_its_rule(name, table, rule):
    before, place, behind = re.split("[«»]", rule.example)
    assert table.of(f"{before}{place}{behind}", len(before), len(before) + len(place)) == rule.name


@pytest.mark.parametrize("way", numbers.WAYS, ids=[way.name for way in numbers.WAYS])
def test_a_way_to_conclude_states_the_number_of_its_example(way):
    line = numbers._Values.of(numbers.plain_digits(way.example, "."))
    assert {token.value.value for token in way.of(line)} == {42}
    surer = numbers.WAYS[: numbers.WAYS.index(way)]
    assert all(len({token.value for token in each.of(line)}) != 1 for each in surer)
    assert numbers.answered_number(way.example).value == 42
