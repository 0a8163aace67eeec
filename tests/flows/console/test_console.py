"""Results on stdout, the rest for people on stderr; no model steers a terminal, and no figure is made up."""

import io
import json
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console as RichConsole

from tfgrpo.flows.console.console import Console, PeopleConsole, visible
from tfgrpo.flows.console.figures import decimal, dollars, percent, seconds, spending, tokens, whole
from tfgrpo.flows.report.night import round_scale
from tfgrpo.flows.report.page import RoleCost
from tfgrpo.stores.errors import Problem, SettingsError
from tfgrpo.stores.ledger import Totals


def voices(*, terminal=False, as_json=False, width=80):
    out, err = io.StringIO(), io.StringIO()
    consoles = [
        RichConsole(file=file, force_terminal=terminal, width=width, highlight=False, soft_wrap=True, no_color=True)
        for file in (out, err)
    ]
    return Console(as_json=as_json, stdout=consoles[0], stderr=consoles[1]), out, err


def test_text_cannot_steer_the_terminal():
    console, out, err = voices()
    console.say("\x1b[31mred\x1b[0m [bold]not markup[/bold] \u202e\x9b1m\x07")
    console.text("\x1b]0;title\x07")
    for said in (out.getvalue(), err.getvalue()):
        assert not set("\x1b\x07\x9b\u202e") & set(said)
    assert "[bold]not markup[/bold]" in err.getvalue()
    assert visible("tab\tand\nline stay") == "tab\tand\nline stay"


@pytest.mark.parametrize(
    "spent", [Totals(nano_usd=12_345_600_000, at_risk_nano=282_700_000), Totals(tokens=589_530_000, unknown_price_calls=9)]
)
def test_what_runs_cost_leaves_the_columns_of_their_table_aligned(spent):
    console, out, _ = voices()
    console.table(("spent", "result"), [(spending(spent), "in force"), ("$0.0013", "not yet")])
    at = {line.index(word) for line, word in zip(out.getvalue().splitlines(), ("result", "in", "not"), strict=True)}
    assert len(at) == 1


@pytest.mark.parametrize("terminal", [False, True])
def test_only_the_first_rows_of_a_long_table_are_kept_in_memory(terminal, monkeypatch):
    monkeypatch.setattr("tfgrpo.flows.console.console._MAX_ROWS", 3)
    console, out, _ = voices(terminal=terminal)
    written = []

    def rows():
        for number in range(9):
            written.append(out.getvalue().count("row "))
            yield (f"row {number}", "x")

    console.table(("name", "value"), rows())
    assert written == [0, 0, 0, 3, 4, 5, 6, 7, 8]
    assert out.getvalue().splitlines() == ["name   value", *(f"row {number}  x" for number in range(9))]


def test_a_table_on_a_terminal_fits_it():
    console, out, _ = voices(terminal=True)
    console.table(("key", "value"), [("a", "word " * 60)])
    assert max(map(len, re.sub("\x1b.*?m", "", out.getvalue()).splitlines())) <= 80


def test_a_table_too_narrow_for_its_ids_is_a_line_per_row_with_the_ids_whole():
    name = "20261123T162238-2f1e"
    for people, width, drawn in ((False, 40, True), (False, 30, False), (True, 40, True), (True, 10, False)):
        console, out, err = voices(terminal=True, width=width)
        console.table(("run", "result"), [(name, "undecided: word")], people=people)
        text = (err if people else out).getvalue()
        assert name in text
        assert "…" not in text
        assert ("─" in text) is drawn


def test_a_drawn_table_cuts_no_word_and_is_no_wider_than_its_terminal():
    row = ("2026-10-29 22:36", "in force, proven (SIMULATED)", "+0.3 (-1.8 … +2.5)", "exp-dc97dd213d7c", "a reason " * 9)
    drawn = 0
    for width in range(40, 140):
        console, out, _ = voices(terminal=True, width=width)
        console.table(("date (UTC)", "decision", "gain (95 %)", "run", "besides"), [row])
        assert set(out.getvalue().split()) >= {word for cell in row for word in cell.split()}, width
        if "─" in out.getvalue():
            drawn += 1
            assert max(map(len, re.sub("\x1b.*?m", "", out.getvalue()).splitlines())) <= width
    assert drawn > 50


def test_ids_are_whole_in_a_drawn_table_whose_other_cells_are_long():
    console, out, _ = voices(terminal=True, width=80)
    console.table(("id", "effect", "lesson"), [("exp-dc97dd213d7cbce12345678", "of an effect " * 5, "a lesson " * 20)])
    assert "exp-dc97dd213d7cbce12345678" in out.getvalue()
    assert "─" in out.getvalue()
    assert "…" not in out.getvalue()


def test_long_lines_wrap_between_words_on_a_terminal_and_paths_stay_whole():
    console, _, err = voices(terminal=True, width=20)
    console.say("some words that go on and on")
    console.say("/a/path/that/is/longer/than/the/terminal/is/wide", wrap=False)
    lines = [line.rstrip() for line in err.getvalue().splitlines()]
    assert lines[0] == "some words that go"
    assert lines[-1] == "/a/path/that/is/longer/than/the/terminal/is/wide"


def test_problems_go_to_people_and_to_programs():
    console, out, err = voices(as_json=True)
    console.problems(SettingsError([Problem("--a", "1", "2"), Problem("--b", "x", "y")]))
    assert len(err.getvalue().splitlines()) == 3
    assert json.loads(out.getvalue())["problems"][1] == {"source": "--b", "given": "x", "accepted": "y"}


def test_json_is_one_ascii_line_without_nan():
    console, out, _ = voices(as_json=True)
    console.result({"text": "\u2028 ü \ud800"})
    assert out.getvalue().isascii()
    assert out.getvalue().count("\n") == 1
    with pytest.raises(ValueError, match="JSON"):
        console.result({"nan": float("nan")})


@pytest.mark.parametrize("opened", [os.openpty, os.pipe])
def test_a_reader_that_goes_away_is_left_without_an_error(opened):
    reading, writing = opened()
    with os.fdopen(writing, "w") as file:
        console = PeopleConsole(file=file)
        os.close(reading)
        console.print("one line")
        console.print("another")
        assert console.quiet


values = st.lists(st.floats(-60, 60), min_size=2, max_size=60)


def test_costs_of_unknown_price_are_not_zero():
    known, unknown, silent = RoleCost(), RoleCost(), RoleCost()
    known.add({"kind": "reply", "payload": {"usage": [10, 5, 0, 0], "cost_usd": 0.25, "latency_s": 2.0}})
    known.add({"kind": "reply", "payload": {"usage": None, "cost_usd": None, "latency_s": 4.0}})
    unknown.add({"kind": "reply", "payload": {"usage": [1, 1, 0, 0], "cost_usd": None, "latency_s": 0.1}})
    silent.add({"kind": "failure", "payload": {}})
    costs = [each.usd.summary() for each in (known, unknown, silent)]
    assert [dollars(cost["sum"], cost["unknown"]) for cost in costs] == ["$0.2500 + 1 unknown", "unknown", "–"]
    assert tokens(known.prompt, known.without_usage) == "10 + unknown"
    assert (silent.calls, silent.failures) == (0, 1)


def test_figures_are_written_for_people():
    assert (decimal(None), whole(None), seconds(None), percent(None)) == ("–", "–", "–", "–")
    assert (seconds(0.0123), seconds(2.0), whole(1234.4)) == ("12 ms", "2.0 s", "1,234")
    assert (percent(0.25), percent(0.25, 1200), tokens(0, 0)) == ("25 %", "25 % of 1,200", "–")


@given(values)
def test_the_grid_of_a_scale_is_round_and_holds_every_value_and_zero(numbers):
    low, high = min(0.0, *numbers), max(1.0, *numbers)
    scale = round_scale(low, high)
    assert scale.low <= low + 1e-9
    assert scale.high >= high - 1e-9
    assert 2 <= len(scale.lines) <= 9
    assert min(map(abs, scale.lines)) < 1e-9
    places = [scale(number) for number in sorted(numbers)]
    assert all(scale.end <= place <= scale.start for place in places)
    assert places == sorted(places, reverse=True)
