"""The morning page: at most ten lines that follow from the records, in every way a night can end."""

from __future__ import annotations

import json

import pytest

from tests.support.records.promotions import record_promotion
from tests.support.records.records import NOW, make_record
from tests.support.runs.pages import page, table
from tfgrpo.flows.report.morning import MOST_LINES, morning_page
from tfgrpo.flows.report.nights import nights_of, picture
from tfgrpo.rewarders.statistics.sequential import Capital
from tfgrpo.stores.experiences.library import Promotion, promotions
from tfgrpo.stores.experiences.tests import SealedTest, record_test
from tfgrpo.stores.files.layout import TaskPaths

ARMS = {"champion": {"estimate": 0.5}, "candidate": {"estimate": 0.6}}
SPENT = {"calls": 400, "tokens": 90_000, "nano_usd": 1_500_000_000}
LABELS = {row[0].strip("`") for row in table(page("docs/report.md"), "line")}


class Records:
    """Records of a task, written by hand."""

    def __init__(self, out):
        self.task = TaskPaths.of(out, "mine")
        self.place = f"--task-id mine --out {out}"

    def lessons(self, **texts):
        self.task.root.mkdir(parents=True, exist_ok=True)
        rows = (make_record(name, polarity="do", summary32=text).model_dump_json() for name, text in texts.items())
        self.task.experiences.write_text("".join(f"{row}\n" for row in rows))

    def decided(self, run_id, decision, *ids, **fields):
        figures = {"estimate": 0.1, "low": -0.05, "high": 0.25, "pairs": 50, "simulated": False, **fields}
        one = {"run_id": run_id, "decided_at": NOW, "decision": decision, "experience_ids": ids, "library_id": ""}
        record_promotion(self.task.promotions, Promotion(**one, **figures))

    def ended(self, run_id, status="finished", **fields):
        run = self.task.run(run_id)
        run.root.mkdir(parents=True)
        run.manifest.write_text(json.dumps({"schema_version": 1, "run_id": run_id, "status": status, **fields}))
        return run

    def night(self, run_id, decision, *ids, promotion=None, why="because", evidence=None, **fields):
        """A night that ended with a decision of the gate."""
        self.decided(run_id, decision, *ids, **(promotion or {}))
        gate = {"decision": decision, "explanation": why, "pairs": 50, "evidence": evidence, **ARMS}
        fields = {"gate": gate, "message": f"{decision}: {why}", "ledger": SPENT, **fields}
        return self.ended(run_id, **{"tfgrpo": {"library": ids}, **fields})

    def lines(self, run_id):
        """The page by label, and every page keeps its promises."""
        morning = morning_page(self.task, self.task.run(run_id))
        assert len(morning.lines) <= MOST_LINES
        assert {line.label for line in morning.lines} <= LABELS
        assert morning.as_json()["lines"] == [{"label": line.label, "text": line.text} for line in morning.lines]
        return {line.label: line.text for line in morning.lines}


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "out")


def test_a_promotion_says_what_came_and_went_and_that_it_is_better(records):
    records.lessons(a="Old.", b="Kept.", c="New.", d="Word " * 30)
    records.night("n1", "promote", "a", "b")
    gain = {"one_night": [12.0, 16.0], "five_nights": [5.0, 5.0]}
    records.night("n2", "promote", "b", "c", "d", why="evidence 30 of the 20 needed; +0.100", forecast={"gain": gain})
    lines = records.lines("n2")
    assert lines == {
        "night": "Promoted: the new library is better (night 2 of mine, run n2)",
        "changed": "3 lessons in force. 2 added: + “do: New.”; and 1 more. 1 removed: − “do: Old.”",
        "better": "yes: held-out reward 0.500 before, 0.600 after, over 50 items; evidence 30 of the 20 needed; +0.100",
        "since": "this night",
        "cost": "400 calls, 90,000 tokens, $1.5000",
        "look at": "nothing out of the ordinary",
        "report": str(records.task.run("n2").report),
        "next": f"tfgrpo experiences export {records.place}",
    }
    first = morning_page(records.task, records.task.run("n1"))
    assert (first.added, first.removed, first.in_force, first.since) == (("a", "b"), (), ("a", "b"), "n1")


def test_an_undecided_night_says_how_much_evidence_is_missing_and_what_would_decide(records):
    records.lessons(a="A.")
    gain = {"one_night": [12.0, 16.0], "five_nights": [5.0, 5.0]}
    evidence = {"value": 4.0, "needed": 20.0, "nights": 2}
    records.night(
        "n1",
        "undecided",
        "a",
        evidence=evidence,
        forecast={"gain": gain, "half_night": True},
        simulated=True,
        promotion={"simulated": True},
    )
    lines = records.lines("n1")
    assert lines["night"].endswith("(night 1 of mine, run n1, half of the items, SIMULATED model)")
    assert lines["changed"] == "nothing, 0 lessons in force. 1 under test: + “do: A.”"
    assert lines["better"].startswith("not known yet: held-out reward 0.500 before")
    power = "a night like this shows a gain of 12 to 16 points, five nights 5 (80 % power)"
    assert lines["missing"] == f"a factor of 5 in evidence, 3 more nights at the pace so far; {power}"
    assert lines["since"] == "no library was ever promoted: prompts carry no lessons"
    assert lines["next"] == f"tfgrpo history --all {records.place}"


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        (
            {"value": 0.5, "needed": 20.0, "nights": 2},
            "a factor of 40 in evidence, so far none speaks for the new library",
        ),
        (
            {"value": 25.0, "needed": 20.0, "nights": 2},
            "no evidence, of which there is enough: what the reasons name",
        ),
        (None, "an interval above zero: more held-out items, or more attempts of each (gate.group_size)"),
        (
            {"value": 0.008, "needed": 20.0, "nights": 2},
            "a factor of 2,500 in evidence, so far none speaks for the new library",
        ),
        ({"value": 4.0, "needed": 20.0, "nights": 2, "given_up": True}, "the next night begins with new evidence"),
    ],
)
def test_what_is_missing_is_said_whatever_the_evidence(records, evidence, said):
    records.night("n1", "undecided", evidence=evidence)
    assert records.lines("n1")["missing"] == said


GAIN = {"estimate": 0.2, "low": 0.1, "high": 0.3}
PROVEN = {"value": 900.0, "needed": 20.0, "nights": 3, "follows": True, "gain": GAIN}


@pytest.mark.parametrize(
    ("decision", "headline", "held"),
    [
        ("promote", "Promoted: the proven library is updated", "it held its own"),
        ("undecided", "Undecided: the evidence does not tell the libraries apart", "held back"),
        ("reject", "Rejected: the new library is not better", "no"),
    ],
)
def test_of_lessons_that_follow_on_a_proven_library_it_says_what_is_proven_and_what_is_not(
    records, decision, headline, held
):
    records.lessons(a="A.", b="B.")
    records.night("n1", "promote", "a")
    records.night("n2", decision, "a", "b", evidence=PROVEN)
    lines = records.lines("n2")
    assert lines["night"] == f"{headline} (night 2 of mine, run n2)"
    gain = "than no lessons: +0.200, interval +0.100 … +0.300, in the learning batches"
    assert lines["better"].startswith(f"{gain}; than before: {held}: held-out reward 0.500 before, 0.600 after")


def test_a_night_in_which_no_lesson_joins_or_leaves_says_what_those_in_force_gain(records):
    records.lessons(a="A.")
    records.night("n1", "promote", "a")
    gate = {"decision": "undecided", "explanation": "the same library", "champion": None, "evidence": PROVEN}
    records.night("n2", "undecided", "a", gate={**gate, "experience_ids": ["a"]})
    lines = records.lines("n2")
    assert lines["night"].startswith("Unchanged: no lesson joins or leaves")
    records.night("n3", "undecided", "a", gate={**gate, "experience_ids": ["a", "b"]})
    assert records.lines("n3")["night"].startswith("Undecided: nothing was compared"), "its sweep was lost"
    assert lines["better"].endswith("in the learning batches; than before: the same library")
    assert lines["look at"] == "nothing out of the ordinary"


def test_lessons_that_do_worse_than_none_deserve_a_look(records):
    records.lessons(a="A.")
    records.night("n1", "promote", "a")
    worse = {**PROVEN, "gain": {"estimate": -0.2, "low": -0.3, "high": -0.1}}
    records.night("n2", "undecided", "a", evidence=worse)
    look = records.lines("n2")["look at"]
    assert look == "lessons did worse than none in this night's learning batches: -0.200, interval -0.300 … -0.100"


def test_a_night_without_a_comparison_says_so_and_misses_nothing(records):
    gate = {"decision": "undecided", "explanation": "candidate and champion are the same library", "champion": None}
    records.night("n1", "undecided", gate=gate)
    lines = records.lines("n1")
    assert lines["night"] == "Undecided: nothing was compared (night 1 of mine, run n1)"
    assert lines["better"] == "not known yet: candidate and champion are the same library"
    assert "missing" not in lines


def test_a_rejected_night_names_what_was_turned_down_and_what_stays(records):
    records.lessons(a="A.", b="B.")
    records.night("n1", "promote", "a")
    records.night("n2", "reject", "a", "b", why="3 of 50 items went wrong", saturated=None)
    lines = records.lines("n2")
    assert lines["changed"] == "nothing, 1 lesson in force. 1 turned down: + “do: B.”"
    assert lines["better"] == "no: held-out reward 0.500 before, 0.600 after, over 50 items; 3 of 50 items went wrong"
    assert lines["since"] == f"the promotion of {NOW:%Y-%m-%d}, run n1; unchanged for 1 night"


def test_a_difference_that_no_reason_names_is_added(records):
    gate = {"decision": "reject", "explanation": "3 of 50 items went wrong", "pairs": 50, **ARMS}
    gate["difference"] = {"estimate": 0.1, "low": -0.05, "high": 0.25}
    records.night("n1", "reject", gate=gate)
    assert records.lines("n1")["better"].endswith("went wrong; difference +0.100, interval -0.050 … +0.250")


def test_a_saturated_library_is_told_with_what_a_pause_would_save(records):
    records.night("n1", "promote", "a")
    for number in (2, 3):
        records.night(f"n{number}", "undecided", "a")
    records.night(
        "n4", "undecided", "a", saturated={"nights": 3, "calls": 400, "explanation": "saturated: a pause saves 400"}
    )
    assert records.lines("n4")["since"] == f"the promotion of {NOW:%Y-%m-%d}, run n1; saturated: a pause saves 400"
    assert morning_page(records.task, records.task.run("n4")).nights_unchanged == 3
    assert records.lines("n3")["since"].endswith("unchanged for 2 nights")


def test_a_lesson_that_left_is_told_with_its_reason_and_not_again_as_a_warning(records):
    records.lessons(a="A.", b="B.")
    records.night("n1", "promote", "a", "b")
    records.decided("n2", "retire", "a", reasons={"b": "net support -1.20"}, pairs=0)
    records.night("n2", "undecided", "a", warnings=["lesson b left the champion: net support -1.20", "a price changed"])
    lines = records.lines("n2")
    assert lines["changed"] == "1 lesson in force. 1 removed: − “do: B.”, net support -1.20"
    assert lines["since"] == f"the promotion of {NOW:%Y-%m-%d}, run n1, 1 lesson retired since"
    assert lines["look at"] == "a price changed"


def test_what_people_put_into_force_is_named_as_what_it_is(records):
    records.decided("import-1", "promote", "a", pairs=0)
    records.night("n1", "undecided", "a")
    records.decided("rollback-1", "rollback", pairs=0)
    records.night("n2", "undecided", "a")
    assert records.lines("n1")["since"] == f"the import of {NOW:%Y-%m-%d}, run import-1; unchanged for 1 night"
    assert records.lines("n2")["since"] == f"the rollback of {NOW:%Y-%m-%d}, run rollback-1; unchanged for 1 night"


def test_a_run_that_stopped_at_its_cap_says_how_to_go_on_and_what_share_is_spent(records):
    caps = {"budget": {"max_calls": 500, "max_usd": 2.0, "max_tokens": None}}
    ledger = {**SPENT, "at_risk_tokens": 777, "at_risk_nano": 100_000_000}
    records.ended("n1", "stopped", message="the budget is spent: calls", settings=caps, ledger=ledger)
    lines = records.lines("n1")
    assert lines["night"] == "Stopped: the budget is spent: calls (mine, run n1)"
    assert lines["better"] == "not known: the held-out sweep did not end"
    money = "$1.5000, and up to $0.1000 of lost calls"
    shares = "80% of budget.max_calls, 80% of budget.max_usd"
    assert lines["cost"] == f"400 calls, 90,000 tokens and up to 777 of lost calls, {money}, {shares}"
    assert lines["next"] == f"tfgrpo run --resume n1 {records.place}"


def test_a_failed_run_and_one_that_was_killed_have_a_page_too(records):
    records.ended("n1", "failed", message="StoreError: the disk is full")
    records.task.run("n2").root.mkdir()
    records.task.run("n2").manifest.write_text('{"schema_version": 1}')
    assert records.lines("n1")["night"] == "Failed: StoreError: the disk is full (mine, run n1)"
    killed = records.lines("n2")
    assert killed["night"] == "Running: under way, or its process was killed (mine, run n2)"
    assert killed["cost"] == "unknown: the run has not closed its books"


def test_unknown_cost_is_no_zero(records):
    records.ended(
        "n1",
        ledger={"calls": 3, "tokens": 50, "unknown_price_calls": 3, "unmeasured_attempts": 2},
        settings={"budget": {"max_calls": 4}},
    )
    cost = records.lines("n1")["cost"]
    assert cost.startswith("3 calls + unknown, price unknown (50 tokens + unknown); set model.prices (2 attempts by an")
    assert cost.endswith("at least 75% of budget.max_calls")


def test_losses_are_one_line_and_warnings_that_do_not_fit_are_counted(records):
    epoch = {"phase": "train", "mean_reward": 0.5, "informative": 1, "lessons": 1, "learning_asked": 10}
    epochs = [
        {**epoch, "epoch": 1, "scored": 90, "lost": 10, "lost_mostly": "10 × timeout", "learning_lost": 1},
        {**epoch, "epoch": 2, "scored": 100, "lost": 0, "lost_mostly": "", "learning_lost": 0},
    ]
    said = "epoch 1: 10 of 100 rollouts brought no reward and count nowhere; most often 10 × timeout"
    warnings = [said, *(f"warning {number}" for number in range(5))]
    records.night("n1", "promote", "a", warnings=warnings, tfgrpo={"library": ["a"], "epochs": epochs})
    morning = morning_page(records.task, records.task.run("n1"))
    assert morning.look[:3] == (
        "10 of 200 rollouts lost (5.0%), most often 10 × timeout",
        "1 of 20 learning steps lost (5.0%)",
        "warning 0",
    )
    assert len(morning.look) == 7
    assert len(morning.lines) == MOST_LINES
    assert morning.lines[-3].text == "warning 0 (and 4 more in the report)"


def account(net, *opposites, harm=None):
    effect = {"estimate": -0.03, "low": -0.08, "high": 0.02, "rollouts": 60, "harm": harm}
    return {"for": 3.0, "against": 1.0, "net": net, "opposites": opposites, "effect": effect if harm else None}


def test_contradictions_that_are_not_settled_and_lessons_that_may_harm_are_looked_at(records):
    records.lessons(a="A.", b="B.", c="C.", d="D.")
    accounts = {
        "a": account(4.0, "b", harm=0.8),
        "b": account(1.5, "a"),
        "c": account(3.0, "d"),
        "d": account(-2.0, "c"),
    }
    records.night("n1", "promote", "a", "c", tfgrpo={"library": ["a", "c"], "accounts": accounts})
    morning = morning_page(records.task, records.task.run("n1"))
    assert morning.look == (
        "1 of 2 contradictions between known lessons not settled: “do: A.” (net 4.0, in force) against “do: B.” (net 1.5)",
        "1 lesson in force may do harm: “do: A.” -3.0 points (-8.0 … +2.0), 60 rollouts",
    )


def test_sealed_items_are_to_be_opened_once_for_what_is_in_force(records):
    records.night("n1", "promote", "a", dataset={"sealed": 40})
    lines = records.lines("n1")
    assert lines["look at"] == "the library in force was not tested on the 40 sealed items yet"
    assert lines["next"] == f"tfgrpo test {records.place}"
    fields = {"run_id": "t", "tested_at": NOW, "library_id": "", "model": "m", "simulated": False, "confidence": 0.95}
    figures = {"estimate": 0.1, "low": 0.0, "high": 0.2, "pairs": 40, "lost": 0, "group_size": 2, "seen": 0}
    record_test(records.task.tests, SealedTest(experience_ids=("a",), **fields, **figures))
    assert records.lines("n1")["next"] == f"tfgrpo experiences export {records.place}"


def test_later_nights_do_not_change_the_page_of_an_earlier_one(records):
    records.night("n1", "promote", "a")
    before = records.lines("n1")
    records.night("n2", "promote", "a", "b")
    assert records.lines("n1") == before


def test_a_replay_says_that_it_agrees_and_is_begun_anew_when_it_does_not(records):
    records.night("n1", "promote", "a")
    replay = Records(records.task.root.parent)
    replay.task = records.task.replay("n1-1")
    replay.night("n1", "promote", "a", message="the replay came to the same store, 1 records; promote: because")
    replay.ended("n2", "failed", message="the replay differs from its run")
    assert replay.lines("n1")["night"].startswith(
        "Promoted: the new library is better; the replay came to the same store, 1 records ("
    )
    assert replay.lines("n2")["next"] == f"tfgrpo run --replay n2 {records.place}"


def test_a_replay_shows_the_lessons_and_the_library_of_the_task_that_it_replays(records):
    records.lessons(a="Old.", b="New.")
    records.night("n1", "promote", "a")
    records.night("n2", "undecided", "a", "b")
    replay = Records(records.task.root.parent)
    replay.task = records.task.replay("n2-1")
    replay.night(
        "n2", "undecided", "a", "b", message="the replay came to the same store, 0 records; undecided: because"
    )
    said, then = replay.lines("n2"), records.lines("n2")
    assert said["night"].endswith("(night 2 of mine, run n2, replayed)")
    assert {name: said[name] for name in ("changed", "since", "next")} == {
        name: then[name] for name in ("changed", "since", "next")
    }
    assert "“do: New.”" in said["changed"]


@pytest.mark.parametrize(
    ("message", "budget", "option"),
    [
        ("the budget is spent: max_calls 200 is reached: …", {"max_calls": 200}, " --set budget.max_calls=400"),
        ("the budget is spent: task_max_usd 1.5 is …", {"task_max_usd": 1.5}, " --set budget.task_max_usd=3"),
        ("the budget is spent: max_usd 1.5 is …", {"max_usd": 1.5, "max_calls": None}, " --set budget.max_usd=3.0"),
        ("interrupted", {"max_calls": 200}, ""),
    ],
)
def test_what_to_type_after_a_cap_goes_on_under_a_higher_one(records, message, budget, option):
    records.ended("n1", "stopped", message=message, settings={"budget": budget})
    assert records.lines("n1")["next"] == f"tfgrpo run --resume n1 {records.place}{option}"


FORECAST = {
    "calls": {"low": 100, "high": 900, "likely": 300},
    "prompt_tokens": {"low": 1_000, "high": 50_000, "likely": 9_000},
    "completion_tokens": {"low": 1_000, "high": 30_000, "likely": 9_000},
    "usd": {"low": 0.1, "high": 7.251, "likely": 0.4},
}


@pytest.mark.parametrize(
    ("reached", "budget", "option"),
    [
        ("max_calls 200", {"max_calls": 200}, " --set budget.max_calls=903"),
        ("max_calls 2000", {"max_calls": 2000}, " --set budget.max_calls=4000"),
        ("max_tokens 700", {"max_tokens": 700}, " --set budget.max_tokens=80777"),
        ("max_usd 1.5", {"max_usd": 1.5}, " --set budget.max_usd=7.36"),
        ("task_max_usd 20", {"task_max_usd": 20.0}, " --set budget.task_max_usd=40"),
        ("task_max_usd 2", {"task_max_usd": 2.0}, " --set budget.task_max_usd=9.36"),
        (
            "max_calls 200",
            {"max_usd": 1.5, "max_tokens": 10**6, "max_calls": 200},
            " --set budget.max_usd=7.36 --set budget.max_calls=903",
        ),
    ],
)
def test_a_proposed_cap_is_at_least_what_the_run_may_need(records, reached, budget, option):
    ledger = {**SPENT, "lost_calls": 3, "at_risk_tokens": 777, "at_risk_nano": 100_000_000}
    message = f"the budget is spent: {reached} is reached: …"
    records.ended("n1", "stopped", message=message, settings={"budget": budget}, forecast=FORECAST, ledger=ledger)
    assert records.lines("n1")["next"] == f"tfgrpo run --resume n1 {records.place}{option}"


def test_every_line_of_the_page_on_reports_can_be_there_and_no_other(records):
    tfgrpo = {
        "library": [],
        "calibration": {
            "truth": None,
            "rewarders": {
                "judge": {
                    "attempts": 3,
                    "abstained": 3,
                    "agreement": None,
                    "swap_consistency": None,
                    "intransitive_share": None,
                    "vote_difference": None,
                }
            },
        },
    }
    records.night("n1", "undecided", tfgrpo=tfgrpo)
    lines = records.lines("n1")
    assert lines["judging"] == "judge: abstained on 3 of 3 attempts"
    fields = morning_page(records.task, records.task.run("n1")).as_json()
    assert [name for name in fields if f"`{name}`" not in page("docs/report.md")] == []
    assert set(lines) == LABELS


def test_nights_are_the_decisions_of_the_gate_with_what_was_measured_and_what_is_in_force(records):
    strong = Capital().after([1.0] * 6).logs
    records.decided("import-1", "promote", "a", pairs=0)
    records.night("n1", "undecided", "a", "b")
    records.decided("n2", "retire", pairs=0, reasons={"a": "harm"})
    records.night("n2", "promote", "b", "c", promotion={"capital": strong, "nights": 2}, evidence={"needed": 20.0})
    records.night("gone", "reject", "d", gate={"candidate": {"estimate": "damaged"}})
    nights = nights_of(records.task, list(promotions(records.task.promotions)))
    assert [(night.number, night.decision.run_id, night.lessons, night.held_out) for night in nights] == [
        (1, "n1", 1, "0.500 → 0.600"),
        (2, "n2", 2, "0.500 → 0.600"),
        (3, "gone", 2, ""),
    ]
    assert nights[0].evidence is None
    assert nights[1].evidence > 0.5


def test_the_picture_holds_every_interval_and_there_is_none_of_one_night(records):
    records.night("n1", "undecided", "a")
    decisions = list(promotions(records.task.promotions))
    assert picture(nights_of(records.task, decisions)) is None
    drawn = picture(nights_of(records.task, decisions * 70))
    assert (len(drawn["nights"]), drawn["earlier"], drawn["every"]) == (60, 10, 3)
    assert drawn["y"].low <= 0.45
    assert drawn["y"].high >= 0.75
    assert drawn["y"].quarters == pytest.approx([0.4, 0.5, 0.6, 0.7, 0.8])
    assert [drawn["bar"](share) for share in (1.0, -0.5, 9.0)] == [-30.0, 15.0, -36.0]


def test_the_picture_has_what_lessons_gain_over_none_also_of_nights_that_compared_nothing(records):
    records.night("n1", "promote", "a", evidence=PROVEN)
    gate = {"decision": "undecided", "explanation": "the same library", "champion": None, "evidence": PROVEN}
    records.night("n2", "undecided", "a", gate=gate)
    drawn = picture(nights_of(records.task, promotions(records.task.promotions)))
    assert [night.gain for night in drawn["nights"]] == [0.2, 0.2]


def test_a_bar_of_the_picture_ends_where_the_rewards_do(records):
    gate = {**ARMS, "decision": "undecided", "pairs": 50, "evidence": None, "score_range": [0, 1]}
    for name in ("n1", "n2"):
        records.night(name, "undecided", "a", promotion={"low": -0.2, "high": 0.9}, gate=gate)
    nights = nights_of(records.task, promotions(records.task.promotions))
    assert [night.interval for night in nights] == [(0.3, 1)] * 2
    assert picture(nights)["y"].high == 1
