"""Each rule by which an answer is found and compared decides its example."""

import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.rewarders.scorer import GraderInput, parse_completion
from tfgrpo.rewarders.text import base, choices, formulas, lexer, moments, numbers, quantities, references, rules, words
from tfgrpo.rewarders.text.references import read_reference
from tfgrpo.rewarders.text.rules import AnswerRule as Rule
from tfgrpo.rewarders.text.rules import Surroundings
from tfgrpo.stores.errors import RewardError

OPTIONS = {"A": "Rome", "B": "Paris", "C": "Berlin"}
NUMBERS = {"A": "30", "B": "36 km", "C": "42"}


MODULES = (base, choices, formulas, lexer, moments, numbers, quantities, references, rules, words)


def tables() -> Iterator[tuple[str, str, Rule]]:
    """Yield the rules of each kind of reference by the name of their table."""
    for module in MODULES:
        for kind, cls in inspect.getmembers(module, inspect.isclass):
            for name, value in vars(cls).items() if cls.__module__ == module.__name__ else ():
                if isinstance(value, tuple) and value and isinstance(value[0], Rule):
                    yield from ((kind, name, rule) for rule in value)


RULES = [*tables()]
READ = {"spellings": lambda reference, output: reference.equals(output), "mentions": lambda *both: both[0].is_in(both[1])}


@pytest.mark.parametrize(("kind", "table", "rule"), RULES, ids=[f"{kind}: {rule.name}" for kind, _, rule in RULES])
def test_a_rule_decides_its_example(kind, table, rule, monkeypatch):
    decided = []
    decide = rules.first_of

    def watched(of, answer):
        for each in of:
            if each.holds(answer):
                decided.append(each)
                break
        return decide(of, answer)

    for module in (rules, *MODULES):
        monkeypatch.setattr(module, "first_of", watched, raising=False)
    for equal in (
        (None, lambda *_: True, lambda *_: False)
        if kind in ("FormulaReference", "ListReference", "NumberReference")
        else (None,)
    ):
        is_text = kind == "TextReference"
        read = partial(read_reference, decimal=".", tolerance=Fraction(0), options=OPTIONS, equal=equal)
        reference = words.TextReference(rule.reference) if is_text else read(rule.reference)
        assert kind in {each.__name__ for each in type(reference).__mro__}
        reference = replace(reference, prompt=rule.prompt) if rule.prompt else reference
        with suppress(RewardError):
            READ.get(table, lambda reference, output: reference.compare(output))(reference, rule.output)
    assert rule in decided


def test_every_kind_has_its_rules():
    kinds = {kind for kind, _, _ in RULES}
    assert kinds >= {"NumberReference", "ListReference", "JsonReference", "FormulaReference", "TextReference"}


SURROUNDINGS = [
    (name, table, rule)
    for module in MODULES
    for name, table in vars(module).items()
    if isinstance(table, Surroundings) and name in vars(module).get("__annotations__", {})
    for rule in table.rules
]


@pytest.mark.parametrize(("name", "table", "rule"), SURROUNDINGS, ids=[f"{each[0]}: {each[2].name}" for each in SURROUNDINGS])
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


@pytest.mark.parametrize("way", choices.ChoiceReference.ways, ids=[way.name for way in choices.ChoiceReference.ways])
def test_a_way_to_name_an_option_names_that_of_its_example(way):
    reference = choices.ChoiceReference("B", NUMBERS if re.search(r"\d", way.example) else OPTIONS)
    said, ways = choices._Letters(reference, way.example), choices.ChoiceReference.ways
    assert [bool(each.of(said)) for each in ways[: ways.index(way) + 1]] == [False] * ways.index(way) + [True]
    assert way.of(said) == {"B"}


PIECES = ["<think>", "</think>", "<THINK>", "<think >", "a", " ", "\n", "\u00a0", "\u2028", "\x1c", "\x85", "\u200b"]
texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def by_the_rule(text: str) -> tuple[str | None, str | None]:
    found = re.fullmatch(r"(?s)((?!<think>|</think>).)*?<think>(.*?)</think>(.*)", text.strip())
    if found is None:
        return None, None
    return found[2].strip() or None, found[3].strip() or None


@given(texts)
def test_the_first_open_and_the_first_close_tag_decide(text):
    assert parse_completion(text) == by_the_rule(text)


def test_the_input_of_a_grader_carries_the_completion_as_generated():
    item = GraderInput.of("s:1", {"k": 1}, " <think>r</think> 42 ", completion_tokens=9, completion_index=3)
    assert item == GraderInput("s:1", {"k": 1}, " <think>r</think> 42 ", "r", "42", 9, 3)
