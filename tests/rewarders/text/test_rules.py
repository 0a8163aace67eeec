"""Each rule by which an answer is compared decides its example."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from fractions import Fraction

import pytest

from tfgrpo.rewarders.text import choices, moments, references, words
from tfgrpo.rewarders.text.references import read_reference
from tfgrpo.rewarders.text.rules import AnswerRule as Rule
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
