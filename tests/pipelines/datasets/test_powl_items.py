"""The descriptions of processes: what their references promise, and that held-out kinds are never learned on."""

from __future__ import annotations

from collections import Counter

from benchmarks.powl.world import ITEMS as FILES
from tfgrpo.pipelines.datasets.datasets import load_dataset
from tfgrpo.rewarders.powl import labels_of, parse_json, parse_text, to_json, to_text, validate

LEARN, HELD_OUT = map(load_dataset, FILES)
ITEMS = LEARN + HELD_OUT
LABELS_LINE = "\n\nActivity labels: "


def kinds(items):
    return Counter(item.metadata["kind"] for item in items)


def test_kinds_that_are_measured_on_are_never_learned_on():
    assert not kinds(LEARN).keys() & kinds(HELD_OUT).keys()
    assert min(len(kinds(LEARN)), len(kinds(HELD_OUT))) >= 5


def test_every_reference_is_a_valid_model_that_reads_back():
    for item in ITEMS:
        model = parse_text(item.answer)
        named = item.prompt.split(LABELS_LINE)[1].split(", ")
        checked = validate(model, allowed_labels=named)
        assert checked.findings == ()
        assert parse_text(to_text(model)) == parse_json(to_json(model)) == model
        assert to_text(model) == item.answer
        assert sorted(labels_of(model)) == named == sorted(named) == item.metadata["labels"]


def test_there_are_enough_of_enough_kinds_of_business():
    assert len(ITEMS) >= 60
    assert len(kinds(ITEMS)) >= 10
    assert min(kinds(ITEMS).values()) >= 6
    assert len({item.id for item in ITEMS}) == len({item.prompt for item in ITEMS}) == len(ITEMS)
