"""The morning page: at most ten lines that follow from the records, in every way a night can end."""

import json

import pytest

from tests.support.records.line_files import seal
from tests.support.records.records import NOW, make_record
from tests.support.runs.pages import page, table
from tfgrpo.flows.report.night import MOST_LINES, Night, changes_of, picture
from tfgrpo.rewarders.statistics.credit import Effect
from tfgrpo.stores.experiences.decisions import Decision, SealedTest, read_decisions, record_decided, record_test
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.tasks.decision import explanation_of, gain_of

REWARDS = {"library": {"mean": 0.6, "low": 0.5, "high": 0.7}, "none": {"mean": 0.5, "low": 0.4, "high": 0.6}}
SPENT = {"calls": 400, "tokens": 90_000, "nano_usd": 1_500_000_000}
LABELS = {row[0].strip("`") for row in table(page("docs/report.md"), "line")}
HELPS, DOUBTFUL, HARMS = Effect(6.2, 1.7), Effect(2.1, 2.7), Effect(-1.0, 2.0)


def known(state="in force", mean=1.2, **fields):
    """What a manifest says of a lesson."""
    effect = {"mean": mean, "low": mean - 1.0, "high": mean + 1.0, "likely": 0.9, "attempts": 60}
    return {"state": state, "effect": effect, "kept_out": "", "tokens": 9, "opposites": [], **fields}


class Records:
    """Records of a task, written by hand."""

    def __init__(self, out):
        self.task = TaskPaths.of(out, "mine")
        self.place = f"--task-id mine --out {out}"

    def lessons(self, **texts):
        self.task.root.mkdir(parents=True, exist_ok=True)
        rows = (make_record(name, polarity="do", summary32=text).model_dump_json() for name, text in texts.items())
        self.task.experiences.write_text("".join(f"{row}\n" for row in rows))
        seal(self.task.experiences)

    def decided(self, run_id, decision, *ids, **fields):
        """Record a decision, after which these lessons are in force."""
        one = {"run_id": run_id, "decided_at": NOW, "decision": decision, "experience_ids": ids, "simulated": False}
        made = Decision(**{**one, "library_id": "-".join(ids), **fields})
        record_decided(self.task.promotions, lambda _: made)
        return made

    def ended(self, run_id, status="finished", **fields):
        run = self.task.run(run_id)
        run.root.mkdir(parents=True)
        run.manifest.write_text(json.dumps({"schema_version": 1, "run_id": run_id, "status": status, **fields}))
        return run

    def night(self, run_id, decision, *ids, total=HELPS, decided=None, rewards=REWARDS, message=None, **fields):
        """Record a night that ended with a decision."""
        figures = {"considered": ids, "total": total and gain_of(total), "held_out": gain_of(Effect(5.1, 2.0)), "pairs": 50}
        made = self.decided(run_id, decision, *ids, **{**figures, **(decided or {})})
        sentence = explanation_of(made.model_copy(update={"notes": ()}))
        block = {**made.model_dump(mode="json"), "sentence": sentence, "explanation": explanation_of(made)}
        block |= {"rewards": rewards, "swept": 50, "lost": {"library": [0, 250], "none": [0, 250]}}
        said = {"decision": block, "message": message or explanation_of(made), "ledger": SPENT}
        number = sum(one.ends_night for one in read_decisions(self.task.promotions))
        return self.ended(run_id, **{**said, "night": number, **fields})

    def lines(self, run_id):
        """Return the page by label; every page keeps its promises."""
        morning = Night.of(self.task, self.task.run(run_id))
        assert len(morning.lines) <= MOST_LINES
        assert {line.label for line in morning.lines} <= LABELS
        assert morning.as_json()["lines"] == [{"label": line.label, "text": line.text} for line in morning.lines]
        return {line.label: line.text for line in morning.lines}


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "out")


def test_a_night_says_what_is_in_force_how_sure_that_is_and_what_came_and_left(records):
    records.lessons(a="Old.", b="Kept.", c="New.", d="Word " * 30)
    records.night("n1", "in force", "a", "b")
    lessons = {"a": known("known", mean=-0.4), "c": known()}
    counts = {"confirmed": 12, "contradicted": 3, "new": 20, "useless": 5}
    records.night("n2", "in force", "b", "c", "d", tfgrpo={"lessons": lessons, "proposals": counts})
    assert records.lines("n2") == {
        "night": "In force: +6.2 points over no lessons (95 %: +2.9 … +9.5), 99.99 % likely to help; held-out tasks "
        "agree (+5.1) (night 2 of mine, run n2)",
        "changed": "3 lessons in force. 2 new: “do: New.”, +1.2 points (+0.2 … +2.2), 60 attempts; and 1 more. "
        "1 left: “do: Old.”, -0.4 points (-1.4 … +0.6), 60 attempts",
        "held out": "reward 0.600 with lessons, 0.500 without, over 50 items",
        "since": "this night",
        "cost": "400 calls, 90,000 tokens, $1.5000",
        "learned": "40 proposals: 12 confirmed and 3 contradicted a known lesson, 20 said something new, 5 useless",
        "look at": "nothing out of the ordinary",
        "report": str(records.task.run("n2").report),
        "next": f"tfgrpo experiences export {records.place}",
    }
    first = Night.of(records.task, records.task.run("n1"))
    assert (first.added, first.removed, first.in_force, first.since) == (("a", "b"), (), ("a", "b"), "n1")
    assert first.verdict == "in force"


def test_a_night_with_nothing_in_force_says_what_is_missing_and_what_is_on_trial(records):
    records.lessons(a="A.")
    tfgrpo = {"on_trial": ["a"], "lessons": {"a": known("on trial")}}
    forecast = {"gain": {"one_night": [12.0, None], "five_nights": [5.0, 8.0]}}
    simulated = {"simulated": True}
    tfgrpo["proposals"] = {"confirmed": 1, "contradicted": 0, "new": 2, "useless": 3, "refused": 4}
    nothing = {**simulated, "pairs": 0}
    records.night("n1", "not yet", total=DOUBTFUL, decided=nothing, tfgrpo=tfgrpo, forecast=forecast, **simulated)
    lines = records.lines("n1")
    assert lines["night"] == (
        "Not yet: +2.1 points so far, 78 % likely to help; over 95 % are needed (night 1 of mine, run n1, SIMULATED model)"
    )
    assert lines["changed"].startswith("nothing, 0 lessons in force. 1 on trial: “do: A.”, +1.2 points")
    wanted = "A gain of 5 to 8 points would be in force within five nights (80 % probability)"
    assert lines["since"] == f"nothing was in force yet: prompts carry no lessons. {wanted}"
    assert lines["held out"].endswith("without, over 50 items, which count for nothing")
    learned = "10 proposals: 1 confirmed and 0 contradicted a known lesson, 2 said something new, 3 useless, 4 refused"
    assert (lines["learned"], lines["next"]) == (learned, f"tfgrpo experiences review {records.place}")


def test_lessons_that_are_taken_back_are_named_and_a_later_night_says_since_when_there_are_none(records):
    records.lessons(a="A.")
    records.night("n1", "in force", "a")
    records.night("n2", "taken back", total=HARMS, tfgrpo={"lessons": {"a": known("known", mean=-0.9)}})
    lines = records.lines("n2")
    assert lines["night"].startswith("Taken back: -1.0 points over no lessons (95 %: -4.9 … +2.9), 31 % likely to help")
    assert lines["changed"].startswith("0 lessons in force. 1 left: “do: A.”, -0.9 points")
    records.night("n3", "not yet", total=None, rewards={"library": None, "none": None})
    lines = records.lines("n3")
    assert lines["night"].startswith("Not yet: no lesson is likely to help so far (night 3 of mine")
    assert lines["held out"] == "no item was compared"
    assert lines["since"] == f"the night of {NOW:%Y-%m-%d}, run n2"
    assert Night.of(records.task, records.task.run("n3")).since is None


@pytest.mark.parametrize(("items", "said"), [(80, True), (199, True), (200, False), (None, False)])
def test_of_few_items_the_page_says_that_it_is_about_them_and_what_would_prove_it_for_others(records, items, said):
    records.night("n1", "in force", "a", dataset={"learn": items} if items else {})
    assert ("`tfgrpo test` on a sealed share is the proof" in records.lines("n1")["held out"]) is said


def test_what_the_night_left_out_and_reflections_that_confirm_nothing_deserve_a_look(records):
    counts = {"confirmed": 1, "new": 8, "useless": 1}
    left_out = {"notes": ("rows of the sweep count for nothing",)}
    for run_id in ("n1", "n2"):
        records.night(run_id, "not yet", decided=left_out, tfgrpo={"proposals": counts})
    assert Night.of(records.task, records.task.run("n1")).look == left_out["notes"]  # nothing was known to confirm
    few, note = Night.of(records.task, records.task.run("n2")).look
    assert few.startswith("only 1 of 10 proposals confirmed a known lesson: reflections may see little in the attempts")
    assert note == "rows of the sweep count for nothing"
    for run_id, enough in (("n3", {**counts, "confirmed": 2, "new": 7}), ("n4", {**counts, "new": 7})):
        records.night(run_id, "not yet", tfgrpo={"proposals": enough})
        assert records.lines(run_id)["look at"] == "nothing out of the ordinary"


@pytest.mark.parametrize(("useless", "said"), [(8, True), (14, False)])
def test_more_than_a_third_of_the_proposals_refused_by_the_screening_deserve_a_look(records, useless, said):
    screened = {"an address": 1, "repeats words of its item": 5}
    records.night("n1", "not yet", tfgrpo={"proposals": {"new": 3, "useless": useless, "refused": 1}, "screened": screened})
    line = "6 of 12 proposed lessons were refused by the screening, mostly: repeats words of its item"
    assert Night.of(records.task, records.task.run("n1")).look == ((line,) if said else ())


def test_lessons_that_find_no_slot_deserve_a_look(records):
    lessons = {"a": known(), "b": known("on trial"), "c": known("known"), "d": known("known", opposites=["a"])}
    for slots, run_id in ((2, "n1"), (3, "n2")):
        records.night(run_id, "in force", "a", tfgrpo={"lessons": lessons}, pack={"slots": slots})
    full = "1 more lesson probably helpful, and without room: the pack has 2 slots, its experience_slots"
    assert Night.of(records.task, records.task.run("n1")).look == (full,)
    assert Night.of(records.task, records.task.run("n2")).look == ()


def test_what_people_put_into_force_is_named_as_what_it_is(records):
    records.decided("import-1", "import", "a")
    records.night("n1", "in force", "a")
    records.decided("rollback-3", "rollback", "b")
    records.night("n2", "in force", "b")
    records.decided("retire-5", "retire", "c", reasons={"b": "wrong"})
    records.night("n3", "in force", "c")
    for run_id, what in (("n1", "import"), ("n2", "rollback"), ("n3", "retire")):
        number = {"import": 1, "rollback": 3, "retire": 5}[what]
        said = f"a person's {what} on {NOW:%Y-%m-%d}, {what}-{number}; unchanged for 1 night"
        assert records.lines(run_id)["since"] == said


CAPS = {"budget": {"max_calls": 500, "max_usd": 2.0, "max_tokens": None, "task_max_usd": 1.5}}
UNMEASURED = {"calls": 3, "tokens": 50, "unknown_price_calls": 3, "unmeasured_attempts": 2}
UNENDED = {"held out": "unknown: the sweep did not end", "cost": "unknown: the run has not closed its books"}


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (
            {
                "status": "stopped",
                "message": "the budget is spent: calls",
                "settings": CAPS,
                "ledger": {**SPENT, "task_usd": 1.2, "at_risk_tokens": 777, "at_risk_nano": 100_000_000},
            },
            {
                "night": "Stopped: the budget is spent: calls (mine, run n1)",
                "held out": "unknown: the sweep did not end",
                "cost": "400 calls, 90,000 tokens and up to 777 of unknown usage, $1.5000, "
                "and up to $0.1000 of unknown usage, 80 % of budget.max_calls, 80 % of budget.max_usd, "
                "80 % of budget.task_max_usd",
                "next": "tfgrpo run --resume n1",
            },
        ),
        (
            {"message": "measured 3 lessons in 20 groups"},
            {"night": "Finished: measured 3 lessons in 20 groups (mine, run n1)", "held out": ""},
        ),
        (
            {"status": "failed", "message": "StoreError: the disk is full"},
            {"night": "Failed: StoreError: the disk is full (mine, run n1)", **UNENDED, "next": "tfgrpo run --resume n1"},
        ),
        ({"status": "running"}, {"night": "Running: under way, or its process was killed (mine, run n1)", **UNENDED}),
        (
            {"ledger": UNMEASURED, "settings": {"budget": {"max_calls": 4}}},
            {
                "cost": "3 calls + unknown, price unknown (50 tokens + unknown) (2 attempts by an agent whose calls are not "
                "seen); set model.prices, at least 75 % of budget.max_calls"
            },
        ),
    ],
)
def test_a_run_that_decided_nothing_has_a_page_and_what_is_unknown_is_no_zero(records, ended, expected):
    records.ended("n1", **ended)
    lines = records.lines("n1")
    lines["next"] = lines["next"].removesuffix(f" {records.place}")
    assert "look at" not in lines or ended.get("status") not in {"stopped", "failed"}
    assert {label: lines.get(label, "") for label in expected} == expected


def test_losses_are_one_line_and_warnings_that_do_not_fit_are_counted(records):
    epoch = {"phase": "train", "mean_reward": 0.5, "informative": 1, "lessons": 1, "learning_asked": 10}
    epochs = [
        {**epoch, "epoch": 1, "scored": 90, "lost": 10, "lost_mostly": "10 × timeout", "learning_lost": 1},
        {**epoch, "epoch": 2, "scored": 100, "lost": 0, "lost_mostly": "", "learning_lost": 0},
    ]
    said = "epoch 1: 10 of 100 rollouts brought no reward and count nowhere; most often 10 × timeout"
    warnings = [said, *(f"warning {number}" for number in range(5))]
    lost = {"rollouts": 10, "of": 200, "mostly": "10 × timeout"}
    records.night("n1", "in force", "a", warnings=warnings, tfgrpo={"epochs": epochs, "lost": lost})
    morning = Night.of(records.task, records.task.run("n1"))
    assert morning.look[:3] == (
        "10 of 200 rollouts lost (5.0 %), most often 10 × timeout",
        "1 of 20 learning steps lost (5.0 %)",
        "warning 0",
    )
    assert len(morning.look) == 7
    assert len(morning.lines) == MOST_LINES
    assert morning.lines[-3].text == "warning 0 (and 4 more in the report)"


def test_answered_calls_without_usage_are_named_beside_a_cap_that_they_reach_early(records):
    records.ended("n1", "stopped", message="max_tokens 9 is reached", ledger={**SPENT, "silent_calls": 3, "at_risk_tokens": 9})
    assert records.lines("n1")["look at"].startswith(
        "3 answered calls reported no usage: against the caps each counts as the most"
    )


def test_sealed_items_are_to_be_opened_once_for_what_is_in_force(records):
    records.night("n1", "in force", "a", dataset={"sealed": 40})
    lines = records.lines("n1")
    assert lines["look at"] == "the lessons in force were not tested on the 40 sealed items yet"
    assert lines["next"] == f"tfgrpo test {records.place}"
    fields = {"run_id": "t", "tested_at": NOW, "library_id": "", "model": "m", "simulated": False, "confidence": 0.95}
    figures = {"estimate": 0.1, "low": 0.0, "high": 0.2, "pairs": 40, "lost": 0, "group_size": 2, "seen": 0}
    record_test(records.task.tests, SealedTest(experience_ids=("a",), **fields, **figures))
    assert records.lines("n1")["next"] == f"tfgrpo experiences export {records.place}"


def test_a_replay_shows_the_library_of_its_task_says_that_it_agrees_and_is_begun_anew_when_it_does_not(records):
    records.lessons(a="Old.", b="New.")
    records.night("n1", "in force", "a")
    records.night("n2", "in force", "a", "b")
    replay = Records(records.task.root.parent)
    replay.task = records.task.replay("n2-1")
    then = records.lines("n2")
    decision = then["night"].partition(" (night")[0]
    replay.night(
        "n2", "in force", "a", "b", night=2, message=f"the replay came to the same store, 1 records; {decision}; a note"
    )
    replay.ended("n3", "failed", message="the replay differs from its run")
    now = replay.lines("n2")
    agrees = "the replay came to the same store, 1 records"
    assert now["night"] == f"{decision}; {agrees} (night 2 of mine, run n2, replayed)"
    assert [now[name] for name in ("changed", "since", "next")] == [then[name] for name in ("changed", "since", "next")]
    assert "“do: New.”" in now["changed"]
    assert replay.lines("n3")["next"] == f"tfgrpo run --replay n3 {records.place}"


FORECAST = {
    "calls": {"low": 100, "high": 900, "likely": 300},
    "prompt_tokens": {"low": 1_000, "high": 50_000, "likely": 9_000},
    "completion_tokens": {"low": 1_000, "high": 30_000, "likely": 9_000},
    "usd": {"low": 0.1, "high": 7.251, "likely": 0.4},
}


RISK = {**SPENT, "lost_calls": 3, "at_risk_tokens": 777, "at_risk_nano": 100_000_000}
PLANNED = {"forecast": FORECAST, "ledger": RISK}


@pytest.mark.parametrize(
    ("reached", "budget", "known", "option"),
    [
        ("max_calls 200", {"max_calls": 200}, {}, " --set budget.max_calls=400"),
        ("task_max_usd 1.5", {"task_max_usd": 1.5}, {}, " --set budget.task_max_usd=3.0"),
        ("max_usd 1.5", {"max_usd": 1.5, "max_calls": None}, {}, " --set budget.max_usd=3.0"),
        ("", {"max_calls": 200}, {}, ""),
        ("no credit", {"max_usd": 0.1}, PLANNED, ""),
        ("max_calls 200", {"max_calls": 200}, PLANNED, " --set budget.max_calls=600"),
        ("max_calls 2000", {"max_calls": 2000}, PLANNED, " --set budget.max_calls=4000"),
        ("max_tokens 700", {"max_tokens": 700}, PLANNED, " --set budget.max_tokens=36000"),
        ("max_usd 0.1", {"max_usd": 0.1}, PLANNED, " --set budget.max_usd=0.8"),
        ("task_max_usd 20", {"task_max_usd": 20.0}, PLANNED, " --set budget.task_max_usd=40.0"),
        (
            "max_calls 200",
            {"max_usd": 0.3, "max_tokens": 10**6, "max_calls": 200},
            PLANNED,
            " --set budget.max_usd=0.8 --set budget.max_calls=600",
        ),
    ],
)
def test_what_to_type_after_a_cap_raises_what_is_below_the_likely_to_twice_that(records, reached, budget, known, option):
    message = f"{reached} is reached: …" if reached else "interrupted"
    records.ended("n1", "stopped", message=message, settings={"budget": budget}, **known)
    assert records.lines("n1")["next"] == f"tfgrpo run --resume n1 {records.place}{option}"


def test_after_an_unknown_price_no_resumption_is_proposed_as_prices_stay(records):
    records.ended("n1", "stopped", message="no price for 'm': an unknown price cannot be capped; …")
    assert records.lines("n1")["next"] == f"tfgrpo report n1 {records.place}"


def test_every_line_of_the_page_on_reports_can_be_there_and_no_other(records):
    tfgrpo = {"proposals": {"confirmed": 1, "contradicted": 0, "new": 0, "useless": 0}}
    records.night("n1", "not yet", tfgrpo=tfgrpo)
    lines = records.lines("n1")
    fields = Night.of(records.task, records.task.run("n1")).as_json()
    assert [name for name in fields if f"`{name}`" not in page("docs/report.md")] == []
    assert set(lines) == LABELS


def drawn(records):
    return picture(changes_of(read_decisions(records.task.promotions)))


def test_the_picture_holds_every_interval_is_broken_where_a_night_has_no_gain_and_there_is_none_of_one_night(records):
    records.night("n1", "not yet", total=DOUBTFUL)
    assert drawn(records) is None
    records.night("n2", "not yet", total=None)
    assert drawn(records) is None
    records.night("n3", "not yet", total=HARMS)
    chart = drawn(records)
    assert [[place for place, _ in band] for band in chart["bands"]] == [[0.5], [2.5]]
    assert 0.0 in chart["y"].lines
    assert chart["y"].low <= gain_of(HARMS).low
    for number in range(70):
        records.night(f"m{number}", "in force", "a")
    chart = drawn(records)
    assert (len(chart["nights"]), chart["earlier"], chart["every"]) == (60, 13, 3)
    y = chart["y"]
    assert (y.low, y.lines[0], y.lines[-1], y.high) == (0.0, 0.0, 10.0, 10.0)
    assert y(0.0) > y(HELPS.mean) > y(10.0)
