"""One decision a night: what the rows speak against is taken back, and a person's word stands above it."""

from dataclasses import replace

import pytest

from tests.support.records.tasks import Task
from tests.support.runs.running import SHORT, TASK, At, lines, manifest, paths, request, run
from tfgrpo.flows.run.lessons import conditions_of
from tfgrpo.flows.run.prepare import prepare
from tfgrpo.stores.experiences.credit import CreditFile, Row, read_credit
from tfgrpo.stores.experiences.decisions import OVERTAKEN, Alarm, read_decisions
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.tasks.decision import ALARM, BROKE, ENTER, OVERRULED, explanation_of, sentence_of
from tfgrpo.tasks.models.simulated.puzzle import open_world
from tfgrpo.tasks.rollout import ADDRESSES, QUOTES_PROMPT, Canaries

NIGHT = {"dataset": SHORT, "sample_size": 8, "batch_size": 4, "epochs": 2}
LONGER = {**NIGHT, "epochs": 3}
QUIET = {**NIGHT, "tfgrpo__min_spread": 2.0}
"""A night that learns nothing."""


def decisions(out):
    return list(read_decisions(TaskPaths.of(out, TASK).promotions))


def speak_against(out, *, lessons=(), times=90, **changes):
    """Append rows in which every known lesson, or these ones, did much worse than none, or those that were swept, together."""
    task, known = TaskPaths.of(out, TASK), manifest(out, "small")["tfgrpo"]["lessons"]
    swept = next(row for row in read_credit(task.credit) if isinstance(row, Row) and row.source == "sweep")
    rewards = {"rewards_one": (0.0,) * 4, "rewards_other": (0.5,) * 4}
    sides = [swept.one] if changes.get("source") == "sweep" else [(name,) for name in lessons or known]
    rows = [replace(swept, run_id="by-hand", source="learning", one=one, **rewards) for one in sides for _ in range(times)]
    CreditFile(task.credit).append(
        replace(row, **{"line_id": f"{changes.get('run_id', 'by-hand')}/{number}", **changes})
        for number, row in enumerate(rows)
    )


@pytest.mark.parametrize(
    ("verdict", "changes"),
    [
        ("taken back", [{}]),
        ("taken back", [{"source": "sweep"}]),
        ("in force", [{"conditions": "those of another model"}, {"simulated": False, "run_id": "real"}]),
    ],
)
def test_a_library_is_taken_back_the_night_that_rows_of_its_own_model_and_rewarders_speak_against_it(own_run, verdict, changes):
    for each in changes:
        speak_against(own_run.out, **each)
    summary = run(own_run.out, run_id="n2", **QUIET)
    *_, last = decisions(own_run.out)
    assert (last.decision, last.run_id) == (verdict, "n2")
    assert manifest(own_run.out, "n2")["in_force"]["experience_ids"] == list(decisions(own_run.out)[0].experience_ids)
    if verdict == "taken back":
        assert summary.message.startswith("Taken back: ")
        assert last.experience_ids == ()
    if changes == [{}]:
        assert run(own_run.out, run_id="n3", **NIGHT).details["decision"]["decision"] != "taken back"
        assert manifest(own_run.out, "n3")["in_force"]["experience_ids"] == []


def test_a_gain_that_is_gone_overnight_is_taken_back_whatever_the_nights_before_promise(own_run):
    speak_against(own_run.out, source="sweep", times=2000, rewards_one=(0.8,) * 4)
    speak_against(own_run.out, source="sweep", times=900, rewards_one=(0.49,) * 4, run_id="tonight", night=1)
    run(own_run.out, run_id="n2", **QUIET)
    *_, last = decisions(own_run.out)
    assert (last.decision, last.experience_ids, last.notes) == ("taken back", (), (BROKE,))
    assert (last.total.likely > ENTER, abs(last.held_out.mean) < 1.5) == (True, True)


def test_a_lesson_that_the_sweep_did_not_carry_does_not_come_into_force_by_the_rows_of_the_sweep(own_run):
    *_, doubtful = decisions(own_run.out)[0].considered
    speak_against(own_run.out, lessons=[doubtful], times=6, rewards_other=(0.45,) * 4)
    asked = {"sample_size": 8, "batch_size": 4, "tfgrpo__min_spread": 2.0}
    assert run(own_run.out, run_id="n2", **asked).exit_code == 0
    carried = next(row.one for row in read_credit(TaskPaths.of(own_run.out, TASK).credit) if "n2/sweep" in row.line_id)
    assert doubtful not in carried
    assert manifest(own_run.out, "n2")["tfgrpo"]["lessons"][doubtful]["effect"]["mean"] > 0.0
    assert {*decisions(own_run.out)[-1].considered} == {*carried}


def test_a_lesson_that_was_retired_is_in_no_prompt_of_the_next_night_and_not_put_into_force(own_run, capsys):
    name = own_run.summary.details["decision"]["experience_ids"][0]
    Task(own_run.out, TASK, capsys).tell("experiences", "retire", name, "--why", "no use")
    assert run(own_run.out, run_id="n2", **NIGHT).exit_code == 0
    *_, last = decisions(own_run.out)
    assert last.decision == "in force"
    assert not {name} & {*last.experience_ids, *last.considered}
    assert not [row for row in lines(paths(own_run.out, "n2").prompts) if name in row["experience_ids"]]
    assert manifest(own_run.out, "n2")["tfgrpo"]["lessons"][name]["state"] == "kept out"


@pytest.mark.parametrize(("in_force", "verdict"), [(True, "in force"), (False, "not yet")])
def test_what_a_person_puts_into_force_stays_until_the_evidence_speaks_against_it(tmp_path, capsys, in_force, verdict):
    task = Task(tmp_path, TASK, capsys)
    advice = open_world("arithmetic").pitfalls["reverse_tax"].good_advice[0]
    task.learn((advice.polarity, advice.text), in_force=in_force)
    for name in ("n1", "n2"):  # and for longer than a night
        summary = run(tmp_path, run_id=name, sample_size=4, batch_size=4, tfgrpo__min_spread=2.0)
        assert summary.details["decision"]["decision"] == verdict
    assert decisions(tmp_path)[-1].total.likely < ENTER


@pytest.mark.parametrize("who", ["a person", "another run"])
def test_what_is_put_into_force_while_a_run_is_under_way_stays_and_the_run_repeats_it(own_run, capsys, who):
    def overtake(end):
        if end.phase == "eval":
            return
        if who == "a person":
            Task(own_run.out, TASK, capsys).tell("experiences", "rollback", "none")
        else:
            assert run(own_run.out, run_id="other", **LONGER, seed=7, tfgrpo__night=1).exit_code == 0

    summary = run(own_run.out, run_id="n2", observer=At("epoch_ended", overtake), **NIGHT)
    *_, before, last = decisions(own_run.out)
    assert before.experience_ids != decisions(own_run.out)[0].experience_ids, "nothing was overtaken"
    assert (last.run_id, last.notes[-1]) == ("n2", OVERTAKEN)
    assert (last.experience_ids, last.library_id) == (before.experience_ids, before.library_id)
    assert last.decision == ("not yet" if who == "a person" else "in force")
    assert OVERTAKEN in summary.message
    assert "points" not in summary.message, "figures of what was considered would be taken for those of what is in force"
    before = decisions(own_run.out)
    again = run(own_run.out, replay="n2")
    assert again.exit_code == 0, again.message
    assert run(own_run.out, resume="n2").exit_code == 0
    assert decisions(own_run.out) == before


def test_a_run_that_a_cap_stops_decides_nothing_and_its_rows_count_in_the_next_night(tmp_path):
    asked, path = {"sample_size": 12, "batch_size": 6}, TaskPaths.of(tmp_path, TASK).credit
    assert run(tmp_path, run_id="stopped", max_calls=112, **asked).status == "stopped"
    assert (decisions(tmp_path), manifest(tmp_path, "stopped")["decision"]) == ([], None)
    found = {row.line_id.partition("/")[2] for row in read_credit(path) if isinstance(row, Row)}
    assert found == {row["group_id"] for row in lines(paths(tmp_path, "stopped").groups)}
    assert run(tmp_path, run_id="next", **asked).exit_code == 0
    first, *_ = lines(paths(tmp_path, "next").groups)
    assert [half["arm"] for half in first["halves"]] == ["one", "other"], "lessons are on trial from the beginning"
    rows = [row for row in read_credit(path) if isinstance(row, Row) and (row.one or row.other)]
    assert {row.run_id for row in rows} == {"stopped", "next"}
    assert decisions(tmp_path)[0].attempts == sum(len(row.rewards_one) + len(row.rewards_other) for row in rows)


def test_rows_hold_for_one_model_actor_and_pack_and_for_their_rewarders(tmp_path):
    def conditions(**asked):
        return conditions_of(prepare(request(tmp_path, **asked), {}, preflight=False).plan)

    real = {"model": "m", "base_url": "http://127.0.0.1:9/v1", "world": "arithmetic"}
    judged = {**real, "rewarders": '[{"name": "judge"}]'}
    others = [
        {"rewarders": '[{"name": "exact"}]'},
        real,
        {**real, "model": "n"},
        judged,
        {**judged, "model__judge__name": "n"},
        {"pack": "general"},
        {"actor": "tests.support.agents.agents:drafts_and_corrects"},
    ]
    assert len({conditions(**each) for each in ({}, *others)}) == 1 + len(others)
    assert conditions(seed=7, group_size=6) == conditions()


def test_what_replies_do_beyond_chance_keeps_out_the_lessons_that_are_new(own_run, monkeypatch):
    before = [*decisions(own_run.out)[-1].experience_ids]
    monkeypatch.setattr(Canaries, "alarms", lambda _: (Alarm(sign=QUOTES_PROMPT, items=(9, 9, 0, 9)),))
    summary = run(own_run.out, run_id="n2", **NIGHT)
    *_, last = decisions(own_run.out)
    fresh = [name for name in last.considered if name not in before]
    assert [*last.experience_ids] == ([name for name in last.considered if name in before] if fresh else [])
    assert [*last.alarms[0].suspects] == (fresh or before)
    assert f": {', '.join(fresh or before)}" in explanation_of(last)
    assert "9 of 9 items" in summary.message
    if not last.experience_ids:
        assert sentence_of(last).endswith(f"likely to help; {ALARM}"), "not for what held-out tasks say"


def test_a_person_who_approves_a_suspect_lets_in_what_replies_do_and_nothing_else(tmp_path, monkeypatch, capsys):
    def alarmed(*counts):
        told = tuple(Alarm(sign=sign, items=(count, 9, 0, 9)) for sign, count in counts)
        monkeypatch.setattr(Canaries, "alarms", lambda _: told)

    def night(run_id):
        run(tmp_path, run_id=run_id, **{**NIGHT, "sample_size": 16})
        return decisions(tmp_path)[-1]

    quotes = "replies to {} of 9 items quote the instructions with lessons, to 0 of 9 without"
    alarmed((QUOTES_PROMPT, 9))
    first = night("n1")
    assert (first.decision, first.experience_ids) == ("not yet", ())
    task = Task(tmp_path, TASK, capsys)
    task.tell("experiences", "approve", first.considered[0], "--why", "it prints its block for the log")
    assert f"overrules: {ALARM}: {quotes.format(9)}" in decisions(tmp_path)[-1].why
    assert task.ask("experiences", "approve", first.considered[0], "--why", "again") == {"change": None}
    alarmed((QUOTES_PROMPT, 8))
    second = night("n2")
    assert second.decision == "in force"
    assert explanation_of(second).endswith(f"; {OVERRULED}: {quotes.format(8)}")
    alarmed((QUOTES_PROMPT, 8), (ADDRESSES, 9))
    third = night("n3")
    assert f"; {ALARM}: replies to 9 of 9 items name an address" in explanation_of(third)
    task.tell("experiences", "retire", first.considered[0], "--why", "after all not")
    alarmed((QUOTES_PROMPT, 9))
    assert OVERRULED not in explanation_of(night("n4"))
