"""Figures of the report's tables: what is unknown is not zero, and what got worse comes first."""

from __future__ import annotations

from tfgrpo.flows.report.files import Groups, RoleCost
from tfgrpo.flows.report.tables import arm_rows, cost_rows, flip_rows, number, seconds, tool_rows, whole


def test_costs_of_unknown_price_are_not_zero():
    known, unknown, silent = RoleCost(), RoleCost(), RoleCost()
    known.add({"kind": "reply", "payload": {"usage": [10, 5, 0, 0], "cost_usd": 0.25, "latency_s": 2.0}})
    known.add({"kind": "reply", "payload": {"usage": None, "cost_usd": None, "latency_s": 4.0}})
    unknown.add({"kind": "reply", "payload": {"usage": [1, 1, 0, 0], "cost_usd": None, "latency_s": 0.1}})
    silent.add({"kind": "failure", "payload": {}})
    rows = cost_rows({"mystery": unknown, "rollout": known, "reflect": silent})
    assert [row[0] for row in rows] == ["attempts", "reflection", "mystery"]
    assert rows[0][5:7] == ("$0.2500 + 1 unknown", "100 %")
    assert rows[1][1:3] == ("0", "1")
    assert rows[2][5] == "unknown"
    assert cost_rows({"rollout": silent})[0][6] == "–"


def test_tools_of_unknown_price_are_not_free():
    tool = {"tool": "ledger", "calls": 2, "errors": 1, "tokens": 3, "cost_usd": None, "latency_ms": 3000.0}
    assert tool_rows([tool])[0] == ("ledger", "2", "1", "3", "unknown", "1.5 s")
    assert tool_rows([{**tool, "calls": 0, "cost_usd": 0.0}])[0][4:] == ("$0.0000", "–")


def test_arms_nobody_knows_come_last():
    empty = {"groups": 0, "rollouts": 0, "outcomes": {}, "signals": {}, "reward_mean": {"mean": None}}
    empty["latency_ms"] = dict.fromkeys(("p50", "p90", "p99"))
    rows = arm_rows({"1": {"arms": {"new": empty, "candidate": empty, "champion": empty}}}, {})
    assert [row.what for row in rows] == ["sweep, before", "sweep, after", "new"]
    assert rows[0].reward == "–"


def test_items_that_got_worse_are_shown_before_those_that_got_better():
    arms = {f"up{at}": {"champion": 0.0, "candidate": 1.0} for at in range(30)}
    arms |= {"down": {"champion": 1.0, "candidate": 0.5}, "same": {"champion": 1.0, "candidate": 1.0}}
    rows = flip_rows(Groups(arms=arms))
    assert rows[0] == ("down", "1.000", "0.500")
    assert len(rows) == 12


def test_figures_are_written_for_people():
    assert (number(None), whole(None), seconds(None)) == ("–", "–", "–")
    assert (seconds(0.0123), seconds(2.0), whole(1234.4)) == ("12 ms", "2.0 s", "1,234")


def test_every_rollout_without_a_reward_is_lost_however_it_ended():
    nothing = {"mean": None, "p50": None, "p90": None, "p99": None}
    outcomes = {"scored": 5, "failed": 1, "refused": 1, "ungraded": 3}
    arm = {
        "groups": 5,
        "rollouts": 10,
        "outcomes": outcomes,
        "signals": {},
        "reward_mean": nothing,
        "latency_ms": nothing,
    }
    [row] = arm_rows({"1": {"arms": {"train": arm}}}, {})
    assert (row.scored, row.lost) == (5, 5)
