"""What docs/process-models.md says of the shipped descriptions and of the simulated world is so."""

from __future__ import annotations

import re
import statistics

from tests.support.runs.pages import page, table
from tfgrpo.pipelines.datasets.datasets import load_dataset, shipped_dataset, shipped_held_out
from tfgrpo.rewarders.powl import Activity, footprint_similarity, parse_text
from tfgrpo.tasks.models.simulated.worlds.powl import MISTAKES

TEXT = page("docs/process-models.md")
NUMBERS = {"six": 6, "seven": 7, "fourteen": 14}


def test_each_mistake_of_the_table_is_made_as_it_says():
    rows = {name.strip("`"): saying for name, saying in table(TEXT, "pitfall | the mistake")}
    by_name = {mistake.name: mistake for mistake in MISTAKES}
    assert rows.keys() == by_name.keys()
    for name, saying in rows.items():
        shown = [
            Activity("a") if code == "a" else parse_text(code) for code in re.findall(r"`([A-Z]+\(.+?\)|a)`", saying)
        ]
        if shown:
            assert by_name[name].made_in(shown[0]) == shown[1]


def test_the_descriptions_are_as_many_as_it_says():
    sides = [load_dataset(shipped_dataset("powl")), load_dataset(shipped_held_out("powl"))]
    items, kinds, each, learned, held_out = re.search(
        r"are (\d+) descriptions .*?\bThere are (\w+) kinds of business with (\w+) each\. (\w+) are\s"
        r"learned on .*? on the other (\w+) ",
        TEXT,
        re.DOTALL,
    ).groups()
    assert int(items) == sum(map(len, sides)) == NUMBERS[kinds] * NUMBERS[each]
    assert NUMBERS[learned.lower()] * NUMBERS[each] == len(sides[0])
    assert NUMBERS[held_out] * NUMBERS[each] == len(sides[1])


def test_a_forgotten_bypass_costs_as_little_as_it_says():
    (mistake,) = (mistake for mistake in MISTAKES if mistake.name == "optional_step")
    models = [parse_text(item.answer) for item in load_dataset(shipped_dataset("powl"))]
    likeness = [
        footprint_similarity(mistake.made_in(model), model, mode="direct")
        for model in models
        if mistake.occasions(model)
    ]
    assert "some 0.85" in TEXT
    assert 0.8 < statistics.mean(likeness) < 0.9
