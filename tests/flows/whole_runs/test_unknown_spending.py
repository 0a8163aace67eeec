"""What an agent spends by itself is unknown wherever it is written, and a sum with an unknown part says so."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console as RichConsole

from tests.support.runs import running as kit
from tfgrpo.flows.console.figures import money, plus_unknown, spending
from tfgrpo.flows.console.progress import Progress
from tfgrpo.stores.ledger import Totals

ALONE, THROUGH_CHAT = "tests.support.agents.agents:answers_alone", "tests.support.agents.agents:asks_through_chat"
COUNTS = ("calls", "prompt_tokens", "completion_tokens", "cost_usd")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run of an agent that takes no ``chat``, the figures in its progress, and its summary."""
    out, console = tmp_path_factory.mktemp("alone"), RichConsole(file=io.StringIO(), width=200)
    summary = kit.run(
        out, run_id=kit.RUN, actor__kind=ALONE, observer=Progress(console), dry_run=True, allow_zero=True, **kit.SMALL
    )
    return out, console.file.getvalue(), summary


def test_attempts_of_an_agent_that_takes_no_chat_have_unknown_counts(alone):
    rows = kit.lines(kit.paths(alone[0]).rollouts)
    assert rows
    assert {tuple(row[name] for name in COUNTS) for row in rows} == {(None, None, None, None)}


def test_the_tool_costs_of_such_attempts_are_unknown_in_the_metrics(alone):
    out, _, _ = alone
    assert {line["tool_cost_usd"] for line in kit.lines(kit.paths(out).metrics)} == {None}
    epochs = json.loads(kit.paths(out).per_epoch.read_text())["epochs"]
    assert epochs["1"]["tool_cost_usd"]["sum"] is None
    assert {row["tool_cost_usd"] for row in kit.manifest(out)["tfgrpo"]["epochs"]} == {None}


def test_sums_with_an_unknown_part_say_so_in_progress_summary_manifest_and_report(alone):
    out, progress, summary = alone
    rollouts = len(kit.lines(kit.paths(out).rollouts))
    assert "calls + unknown, $" in progress
    assert summary.details["ledger"]["unmeasured_attempts"] == rollouts
    assert f"+ unknown ({rollouts} attempts by an agent whose calls are not seen)" in summary.details["spent"]
    assert kit.manifest(out)["ledger"]["spent"] == summary.details["spent"]  # what `tfgrpo runs` and Python show
    page = kit.paths(out).report.read_text()
    assert "+ unknown" in page
    one_attempt = page.partition("<h2>One attempt</h2>")[2].partition("</table>")[0]
    assert "unknown" in one_attempt


def test_an_agent_that_calls_only_through_chat_is_measured(tmp_path):
    summary = kit.run(tmp_path, run_id=kit.RUN, actor__kind=THROUGH_CHAT, dry_run=True, **kit.SMALL)
    rows = kit.lines(kit.paths(tmp_path).rollouts)
    assert {row["calls"] for row in rows} == {1}
    assert all(row["prompt_tokens"] and row["completion_tokens"] and row["cost_usd"] for row in rows)
    assert summary.details["ledger"]["unmeasured_attempts"] == 0
    assert "unknown" not in summary.details["spent"]


def test_a_price_that_is_unknown_is_named_with_its_tokens():
    unpriced = Totals(calls=680, tokens=316_947, unknown_price_calls=680)
    assert money(unpriced) == "price unknown (316,947 tokens)"
    failed_once = Totals(calls=681, tokens=316_947, unknown_price_calls=680)
    assert money(failed_once) == money(unpriced)
    silent = Totals(calls=3, at_risk_tokens=900, lost_calls=3, unknown_price_calls=3)
    assert money(silent) == "price unknown (no usage reported)"


def test_known_and_unknown_money_are_separate():
    mixed = Totals(calls=3, tokens=9, nano_usd=500_000_000, unknown_price_calls=2)
    assert money(mixed) == "$0.5000 + 2 calls of unknown price"
    own = Totals(calls=31, nano_usd=1_000_000, unmeasured_attempts=2, at_risk_nano=2_000_000)
    assert plus_unknown("31 calls", own) == "31 calls + unknown"
    assert spending(own) == (
        "$0.0010 + unknown (2 attempts by an agent whose calls are not seen), and up to $0.0020 of unanswered calls"
    )


def test_the_forecast_of_a_second_night_is_likely_what_the_first_one_took(tmp_path):
    first = kit.run(tmp_path, run_id="one", dry_run=True, **kit.SMALL)
    kit.run(tmp_path, run_id="two", dry_run=True, **kit.SMALL)
    foreseen = [kit.manifest(tmp_path, name)["forecast"]["calls"] for name in ("one", "two")]
    assert foreseen[1]["likely"] == pytest.approx(first.details["ledger"]["calls"], abs=1)
    assert foreseen[1]["low"] == foreseen[0]["low"]
