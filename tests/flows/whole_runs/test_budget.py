"""Do the caps hold, counted where the money goes? At 64 calls in flight, on the side of the server."""

import io
import json
import shlex
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from rich.console import Console as RichConsole

from tests.support.runs.chat_server import ChatServer
from tests.support.runs.running import LEARNING, RUN, SMALL, TASK, Server, lines, manifest, on_server, paths, run, store
from tfgrpo.flows.console.figures import money, plus_unknown, spending
from tfgrpo.flows.console.observer import Progress
from tfgrpo.pipelines.settings.tree import SimulatedSettings
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.files.lines import LineFile
from tfgrpo.stores.ledger import Totals

BUSY = {"tfgrpo__concurrency": 64, "sample_size": 20, "batch_size": 20, "epochs": 2}
"""Eighty attempts at once, of which 64 are let through."""
INPUT, OUTPUT = 2.0, 8.0
"""US dollars per million tokens."""
NOTHING_LEARNED = {"first_difference": "none", "cause": "none", "judgements": [], "lessons": [], "answers": []}
"""An answer to any question for lessons."""
PRICED = f"""
pipeline: priced
task_id: tfgrpo-learning
pack: arithmetic
tfgrpo: {{enabled: true}}
model:
  prices: {{simulated: {{input: {INPUT}, output: {OUTPUT}}}}}
  max_tokens: 200
rewarders: [{{name: gt, options: {{match: numeric}}}}]
stages: [{{name: learn}}, {{name: spec-guard}}]
"""


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    path = tmp_path_factory.mktemp("pipeline") / "priced.yaml"
    path.write_text(PRICED)
    return str(path)


@pytest.fixture(scope="module")
def uncapped(tmp_path_factory, pipeline):
    """A run without caps: its directory and what it took, by the server's count."""
    out = tmp_path_factory.mktemp("uncapped")
    with Server() as server:
        summary = run(out, run_id=RUN, pipeline=pipeline, **on_server(server, **BUSY))
    assert summary.exit_code == 0, summary.message
    assert store(out)
    return out, {"max_calls": len(server.bodies), "max_tokens": server.tokens, "max_usd": dollars(server)}


def dollars(server):
    return (server.prompt_tokens * INPUT + (server.tokens - server.prompt_tokens) * OUTPUT) / 1e6


@pytest.mark.parametrize("cap", ["max_calls", pytest.param("max_tokens", marks=pytest.mark.slow), "max_usd"])
def test_a_cap_is_never_exceeded_and_the_run_resumes_with_a_higher_one(tmp_path, pipeline, uncapped, cap):
    reference, needed = uncapped
    limit = needed[cap] * 0.6 if cap == "max_usd" else int(needed[cap] * 0.6)
    with Server(SimulatedSettings(latency_s=0.01)) as server:
        summary = run(tmp_path, run_id=RUN, pipeline=pipeline, **on_server(server, **BUSY), **{cap: limit})
        assert (summary.status, summary.exit_code) == ("stopped", 3), summary.message
        taken = {"max_calls": len(server.bodies), "max_tokens": server.tokens, "max_usd": dollars(server)}
        assert 0.3 * limit < taken[cap] <= limit
        assert cap in summary.message
        assert "\n" not in summary.message
        assert summary.message.endswith("under a higher cap it goes on")
        assert summary.details["resume with"] == f"--resume {RUN}"
        assert paths(tmp_path).report.exists()
        assert manifest(tmp_path)["status"] == "stopped"
        assert len(lines(paths(tmp_path).journal)) == len(server.bodies), "an answered call was not kept"

        still = run(tmp_path, resume=RUN)
        assert still.exit_code == 3, "the same cap holds for the whole run, not for each part of it"
        assert len(server.bodies) <= needed["max_calls"]
        assert {"max_calls": len(server.bodies), "max_tokens": server.tokens, "max_usd": dollars(server)}[cap] <= limit

        resumed = run(tmp_path, resume=RUN, **{cap: needed[cap] * 20})
        assert resumed.exit_code == 0, resumed.message
    assert max(server.asked().values()) == 1
    assert len(server.bodies) == needed["max_calls"]
    assert store(tmp_path) == store(reference)


@pytest.mark.parametrize("caps", [{"max_tokens": 30_000}, {"max_usd": 0.05, "max_calls": 40}])
def test_a_run_can_end_under_the_caps_that_its_page_proposes(tmp_path, pipeline, caps):
    with Server() as server:
        summary = run(tmp_path, run_id=RUN, pipeline=pipeline, **on_server(server, **LEARNING), **caps)
        assert summary.status == "stopped", summary.message
        words = shlex.split(summary.details["morning"]["next"])
        proposed = dict(word.split("=") for word in words if word.startswith("budget."))
        higher = {key.replace(".", "__"): float(value) if "usd" in key else int(value) for key, value in proposed.items()}
        assert run(tmp_path, resume=RUN, **higher).exit_code == 0


def test_an_account_without_credit_stops_the_run_and_it_resumes_with_credit(tmp_path, pipeline):
    credit = [25]

    def answer(number: int, body: dict[str, Any]) -> str | int:
        if number >= credit[0]:
            return 402
        return json.dumps(NOTHING_LEARNED) if "response_format" in body else "Answer: 7"

    with ChatServer(answer) as server:
        asked = {**LEARNING, "model": "simulated", "base_url": server.url, "simulated__world": "arithmetic", "allow_zero": True}
        summary = run(tmp_path, run_id=RUN, pipeline=pipeline, **asked)
        assert (summary.status, summary.exit_code) == ("stopped", 3), summary.message
        assert "the account at the endpoint has nothing left: 402 from http" in summary.message
        assert summary.details["resume with"] == f"--resume {RUN}"
        assert {row["outcome"]["name"] for row in lines(paths(tmp_path).rollouts)} <= {"scored"}, "no evidence is lost"
        answered = len(lines(paths(tmp_path).journal))
        credit[0] = 10**6
        sent = len(server.bodies)
        resumed = run(tmp_path, resume=RUN)
        assert resumed.exit_code == 0, resumed.message
        assert answered + len(server.bodies) - sent == len(lines(paths(tmp_path).journal)), "an answered call was repeated"


def test_two_nights_at_once_share_the_cap_of_their_task(tmp_path, pipeline, uncapped):
    _, needed = uncapped
    limit = needed["max_usd"] * 1.3
    with Server(SimulatedSettings(latency_s=0.01)) as server, ThreadPoolExecutor(2) as nights:
        # Of one number, so that each takes as much as the one without caps.
        asked = {"pipeline": pipeline, **on_server(server, **BUSY), "budget__task_max_usd": limit, "tfgrpo__night": 0}
        ends = list(nights.map(lambda name: run(tmp_path, run_id=name, **asked), ("one", "two")))
        assert 3 in {end.exit_code for end in ends}
        stopped = next(end for end in ends if end.exit_code == 3)
        assert "task_max_usd" in stopped.message
        assert dollars(server) <= limit
        spent, third = len(server.bodies), run(tmp_path, run_id="three", **asked)
        assert third.exit_code == 3 or dollars(server) <= limit
        resumed = run(tmp_path, resume=stopped.run_id, budget__task_max_usd=limit * 20)
        assert resumed.exit_code == 0, resumed.message
    assert len(server.bodies) >= spent


def test_spending_from_before_the_cap_of_a_task_counts(tmp_path, pipeline):
    with Server() as server:
        run(tmp_path, run_id="before", pipeline=pipeline, **on_server(server))
        spent, bodies = dollars(server), len(server.bodies)
        after = run(tmp_path, run_id="after", pipeline=pipeline, **on_server(server), budget__task_max_usd=spent)
        # As of an older copy of the file, or one that was cut.
        books = TaskPaths.of(tmp_path, TASK).ledger(simulated=False)
        LineFile(books).append([{"schema": 1, "totals": {}, "in_flight": {}}])
        assert run(tmp_path, run_id="again", pipeline=pipeline, **on_server(server), budget__task_max_usd=spent).exit_code == 3
    assert after.exit_code == 3
    assert "task_max_usd" in after.message
    assert any("budget.task_max_usd leaves 0 and the run is likely to need" in text for text in after.details["warnings"])
    (cost,) = [line["text"] for line in after.details["morning"]["lines"] if line["label"] == "cost"]
    assert cost.endswith("100 % of budget.task_max_usd")
    assert len(server.bodies) == bodies, "a call was sent although the task had nothing left"


ALONE, THROUGH_CHAT = "tests.support.agents.agents:answers_alone", "tests.support.agents.agents:asks_through_chat"
COUNTS = ("calls", "prompt_tokens", "completion_tokens", "cost_usd")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run of an agent that takes no ``chat``, the figures in its progress, and its summary."""
    out, console = tmp_path_factory.mktemp("alone"), RichConsole(file=io.StringIO(), width=200)
    asked = {**SMALL, "dry_run": True, "allow_zero": True}
    summary = run(out, run_id=RUN, actor__kind=ALONE, observer=Progress(console), **asked)
    return out, console.file.getvalue(), summary


def test_what_attempts_of_an_agent_that_takes_no_chat_used_is_unknown_in_every_file(alone):
    rows, out = lines(paths(alone[0]).rollouts), alone[0]
    assert {tuple(row[name] for name in COUNTS) for row in rows} == {(None, None, None, None)}
    assert {line["tool_cost_usd"] for line in lines(paths(out).metrics)} == {None}
    epochs = json.loads(paths(out).per_epoch.read_text())["epochs"]
    assert epochs["1"]["tool_cost_usd"]["sum"] is None
    assert {row["tool_cost_usd"] for row in manifest(out)["tfgrpo"]["epochs"]} == {None}


def test_sums_with_an_unknown_part_say_so_in_progress_summary_manifest_and_report(alone):
    out, progress, summary = alone
    rollouts = len(lines(paths(out).rollouts))
    assert "calls + unknown, $" in progress
    assert summary.details["ledger"]["unmeasured_attempts"] == rollouts
    assert f"+ unknown ({rollouts} attempts by an agent whose calls are not seen)" in summary.details["spent"]
    assert manifest(out)["ledger"]["spent"] == summary.details["spent"]  # what `tfgrpo runs` and Python show
    page = paths(out).report.read_text()
    assert "+ unknown" in page
    assert "unknown" in page.partition("<h2>One attempt</h2>")[2].partition("</table>")[0]


def test_an_agent_that_calls_only_through_chat_is_measured(tmp_path):
    summary = run(tmp_path, run_id=RUN, actor__kind=THROUGH_CHAT, dry_run=True, **SMALL)
    rows = lines(paths(tmp_path).rollouts)
    assert {row["calls"] for row in rows} == {1}
    assert all(row["prompt_tokens"] and row["completion_tokens"] and row["cost_usd"] for row in rows)
    assert summary.details["ledger"]["unmeasured_attempts"] == 0
    assert "unknown" not in summary.details["spent"]


@pytest.mark.parametrize(
    ("totals", "said"),
    [
        (Totals(calls=680, tokens=316_947, unknown_price_calls=680), "price unknown (316,947 tokens)"),
        (Totals(calls=681, tokens=316_947, unknown_price_calls=680), "price unknown (316,947 tokens)"),  # one failed
        (Totals(calls=3, at_risk_tokens=900, lost_calls=3, unknown_price_calls=3), "price unknown (no usage reported)"),
        (Totals(calls=3, tokens=9, nano_usd=500_000_000, unknown_price_calls=2), "$0.5000 + 2 calls of unknown price"),
    ],
)
def test_a_price_that_is_unknown_is_named_with_its_tokens_or_beside_what_is_known(totals, said):
    assert money(totals) == said


def test_what_no_figure_holds_is_named_beside_it():
    own = Totals(calls=31, nano_usd=1_000_000, unmeasured_attempts=2, at_risk_nano=2_000_000)
    assert plus_unknown("31 calls", own) == "31 calls + unknown"
    assert spending(own) == (
        "$0.0010 + unknown (2 attempts by an agent whose calls are not seen), and up to $0.0020 of unknown usage"
    )


def test_the_forecast_of_a_second_night_is_likely_what_the_first_one_took(tmp_path):
    first = run(tmp_path, run_id="one", dry_run=True, **SMALL)
    run(tmp_path, run_id="two", dry_run=True, **{**SMALL, "max_calls": 4})
    foreseen = [manifest(tmp_path, name)["forecast"]["calls"] for name in ("one", "two")]
    assert foreseen[1]["likely"] == pytest.approx(first.details["ledger"]["calls"], abs=1)
    assert foreseen[1]["low"] == foreseen[0]["low"]
