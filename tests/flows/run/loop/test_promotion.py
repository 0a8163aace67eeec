"""Evidence is taken before it is learned from, adds up over nights, and decides once a night, resumed and replayed alike."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tests.support.agents.steps import group, record
from tests.support.records.promotions import record_promotion
from tests.support.records.records import NOW
from tests.support.runs.running import RUN, TASK, lines, manifest, one_group_teaches, paths, run
from tfgrpo.flows.run.loop.promotion import _promotion, carried_evidence, promote
from tfgrpo.pipelines.settings.learning import GateSettings
from tfgrpo.pipelines.settings.tree import RewarderSettings
from tfgrpo.rewarders.statistics.sequential import Capital
from tfgrpo.stores.experiences.library import Library, promotions, uncompared
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.outcomes import Failed, Scored
from tfgrpo.stores.runs.manifest import ManifestFile
from tfgrpo.tasks.evaluation import LearningEvidence, PairedEvidence
from tfgrpo.tasks.gate import Carried, decide_gate
from tfgrpo.tasks.shapes import HalfResult

NIGHT = {"sample_size": 8, "batch_size": 4}
WORLD = {**NIGHT, "world": "unlearnable", "gate__max_regressions": 1.0}


def split(item, before, after, epoch=1):
    """A split group with these rewards; None is a lost rollout."""
    rewards = [(reward, arm) for arm, some in (("champion", before), ("candidate", after)) for reward in some]
    outcomes = [(Failed("E", "r") if reward is None else Scored(reward, ()), arm) for reward, arm in rewards]
    rollouts = tuple(
        record(number, name=item, arm=arm, epoch=epoch, outcome=outcome)
        for number, (outcome, arm) in enumerate(outcomes)
    )
    halves = tuple(HalfResult(arm, "mixed", None, None) for arm in ("champion", "candidate"))
    return group(rollouts, arm="train", halves=halves)


def test_an_item_counts_once_a_night_and_never_after_something_was_learned_from_it():
    evidence = LearningEvidence()
    evidence.add([group((record(0, name="a"),))], "x")  # not split: the libraries were equal
    evidence.add([split("a", (0.0,), (1.0,)), split("b", (0.0, 1.0), (1.0, 1.0)), split("b", (0.0,), (1.0,))], "x")
    evidence.add([split("b", (1.0,), (0.0,), epoch=2), split("c", (1.0,), (0.5,), epoch=2)], "x")
    found = evidence.against("x")
    assert {pair.item_id: pair.difference for pair in found.pairs} == {"b": 0.5, "c": -0.5}
    assert LearningEvidence().against("x").identical


def test_what_was_measured_against_a_champion_that_lost_a_lesson_since_does_not_count():
    evidence = LearningEvidence()
    evidence.add([split("a", (0.0,), (1.0,))], "all")
    evidence.add([split("a", (0.0,), (1.0,)), split("b", (0.0,), (0.5,))], "rest")
    assert [pair.item_id for pair in evidence.against("rest").pairs] == ["b"]
    assert evidence.against("none").identical


def test_lost_attempts_of_the_halves_are_counted_by_arm():
    evidence = LearningEvidence()
    evidence.add([split("a", (0.0, None), (1.0, 1.0)), split("b", (1.0, 1.0), (None, None))], "x")
    found = evidence.against("x")
    assert (found.champion_attempts.lost, found.champion_attempts.made) == (1, 4)
    assert (found.candidate_attempts.lost, found.lost) == (2, ("b",))


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """Two undecided nights of a task in which nothing can be learned."""
    out = tmp_path_factory.mktemp("nights")
    with pytest.MonkeyPatch.context() as patched:
        one_group_teaches(patched)
        for name in ("first", "second"):
            assert run(out, run_id=name, **WORLD).exit_code == 0
        yield out


def test_groups_are_split_once_the_candidate_differs_and_all_of_it_is_on_record(nights):
    written = lines(paths(nights, "second").groups)
    (learned, swept) = (
        [row for row in written if row["phase"] == "train"],
        [row for row in written if row["phase"] == "eval"],
    )
    assert all("halves" in row for row in learned), "the second night begins with lessons of the first"
    assert not any("halves" in row for row in swept)
    assert {row["arm"] for row in learned} == {"train"}
    rollouts = [row for row in lines(paths(nights, "second").rollouts) if row["phase"] == "train"]
    assert {row["arm"] for row in rollouts} == {"baseline", "candidate"}
    epochs = json.loads(paths(nights, "second").per_epoch.read_text())["epochs"]
    assert sorted(epochs["1"]["arms"]) == ["baseline", "candidate"]
    assert [epoch["group_size"] for epoch in manifest(nights, "second")["tfgrpo"]["epochs"]] == [4, 4, 2]
    assert all(stage.get("ok", True) for stage in manifest(nights, "second")["stages"])


def test_an_undecided_night_carries_its_evidence_on_to_the_next(nights):
    first, second = [one for one in promotions(TaskPaths.of(nights, TASK).promotions) if one.decision == "undecided"]
    assert (first.nights, second.nights) == (1, 2)
    began = manifest(nights, "second")["began_with"]
    assert (tuple(began["capital"]), began["nights"]) == (first.capital, 1)
    assert manifest(nights, "first")["began_with"]["capital"] == list(Capital().logs)
    evidence = manifest(nights, "second")["gate"]["evidence"]
    assert evidence["nights"] == 2
    assert evidence["learned_items"] > 0
    assert "of the 20 needed, over 2 nights" in manifest(nights, "second")["gate"]["explanation"]
    assert ">evidence<" in paths(nights, "second").report.read_text()


@pytest.mark.untraced
def test_a_night_that_has_ended_is_replayed_and_resumed_from_the_evidence_it_began_with(nights):
    before = [one.model_dump() for one in promotions(TaskPaths.of(nights, TASK).promotions)]
    for name in ("first", "second"):
        again = run(nights, replay=name)
        assert again.exit_code == 0, again.message
        assert run(nights, resume=name).exit_code == 0
    assert [one.model_dump() for one in promotions(TaskPaths.of(nights, TASK).promotions)] == before


def test_evidence_starts_anew_when_patience_is_over_and_with_another_model(nights, tmp_path):
    given_up = run(nights, run_id="third", gate__patience_nights=3, **WORLD)
    assert "given up after 3 nights" in given_up.message
    assert given_up.details["gate"]["evidence"]["given_up"] is True
    *_, last = promotions(TaskPaths.of(nights, TASK).promotions)
    assert last.nights == 0
    run(nights, run_id="fourth", **WORLD)
    began = manifest(nights, "fourth")["began_with"]
    assert (tuple(began["capital"]), began["nights"]) == (Capital(last.capital).anew().logs, 0)
    path = paths(nights, "fourth").manifest
    path.write_text(path.read_text().replace('"model": "simulated"', '"model": "another"'))
    run(nights, run_id="fifth", **WORLD)
    began = manifest(nights, "fifth")["began_with"]
    assert began["capital"] == list(Capital().logs)
    assert began["lost"] == "the evidence of 1 night, up to fourth, starts anew: this night has another model"
    paths(nights, "fifth").manifest.write_text("{")
    closed = run(nights, run_id="sixth", **WORLD)
    assert manifest(nights, "sixth")["began_with"]["nights"] == 0
    (warning,) = (each for each in closed.details["warnings"] if "starts anew" in each)
    assert "the evidence of 1 night, up to fifth, starts anew: whose it is cannot be read" in warning


CAPITAL = Capital().after((1.0, 0.5), bound=1.0)
DECIDED = {"promote": {"capital": CAPITAL.logs, "nights": 3}, "undecided": {"capital": CAPITAL.logs, "nights": 3}}


NIGHT_BEFORE = {
    "learning_rules": 6,
    "model": "m",
    "pack": {"stamp": "s"},
    "settings": {"rewarders": [{"name": "gt", "weight": 1.0, "options": {}}], "tfgrpo": {"seed": 0, "night": 0}},
    "cohorts": {"1": {"items": ["a", "b"]}, "3": {"items": ["c"]}},
}


def tonight(task, model="m", stamp="s", rewarder="gt", items="abcd", night=1, seed=0):
    """The plan of the next night."""
    own = SimpleNamespace(
        rewarders=(RewarderSettings(name=rewarder),),
        tfgrpo=SimpleNamespace(seed=seed, night=night),
        gate=GateSettings(),
    )
    learn, held_out = ([SimpleNamespace(id=name) for name in some] for some in (items[:2], items[2:]))
    return SimpleNamespace(
        paths=task,
        simulated=True,
        models=SimpleNamespace(name=model),
        pack=SimpleNamespace(manifest=SimpleNamespace(stamp=stamp)),
        settings=own,
        data=SimpleNamespace(split=SimpleNamespace(learn=learn, held_out=held_out)),
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"items": "abxyz"}, ""),
        ({"night": 0, "seed": 1}, ""),
        ({"model": "n"}, "another model"),
        ({"stamp": "t"}, "another version of the pack"),
        ({"rewarder": "llm_judge"}, "other rewarders"),
        ({"items": "axyz", "model": "n"}, "another model and other items"),
        ({"night": 0}, "the items and seeds of a night before"),
    ],
)
def test_evidence_of_other_conditions_or_of_the_same_draws_is_not_carried_on(tmp_path, changes, says):
    task = TaskPaths(tmp_path)
    line = uncompared(Library(()), "undecided", run_id="r0", decided_at=NOW, simulated=True, **DECIDED["undecided"])
    record_promotion(task.promotions, line)
    ManifestFile(task.run("r0").manifest).update(**NIGHT_BEFORE)
    carried, warning = carried_evidence(tonight(task, **changes))
    assert carried == (Carried() if says else Carried(CAPITAL, 3))
    assert warning == (says and f"the evidence of 3 nights, up to r0, starts anew: this night has {says}")


@pytest.mark.parametrize("ids", [(), ("exp-1",)])
def test_a_proof_ends_with_the_last_lesson_that_it_was_of(tmp_path, ids):
    task = TaskPaths(tmp_path)
    line = uncompared(Library(()), "promote", run_id="r0", decided_at=NOW, simulated=True, **DECIDED["promote"])
    record_promotion(task.promotions, line.model_copy(update={"experience_ids": ids}))
    ManifestFile(task.run("r0").manifest).update(**NIGHT_BEFORE)
    assert carried_evidence(tonight(task)) == (Carried(CAPITAL, 3) if ids else Carried(), "")


@pytest.mark.parametrize(
    ("follows", "left", "nights"),
    [(True, {}, 3), (True, {"exp-1": "harm"}, 3), (False, {"exp-1": "harm"}, 0), (False, {}, 3)],
)
def test_a_night_in_which_the_last_lesson_left_proves_anew(monkeypatch, follows, left, nights):
    seen = []

    def decided(*_, carried, **__):
        seen.append(carried)
        return SimpleNamespace()

    monkeypatch.setattr("tfgrpo.flows.run.loop.promotion.decide_gate", decided)
    monkeypatch.setattr("tfgrpo.flows.run.loop.promotion._recorded", lambda _, decision: decision)
    session = SimpleNamespace(
        plan=SimpleNamespace(score_range=(0.0, 1.0)),
        carried=Carried(CAPITAL, 3),
        learning=SimpleNamespace(left=left),
        follows=follows,
        settings=SimpleNamespace(gate=GateSettings()),
        books=SimpleNamespace(),
        observer=SimpleNamespace(gate_decided=lambda _: None),
    )
    promote(session, PairedEvidence((), (), identical=True), PairedEvidence((), (), identical=True))
    assert [each.nights for each in seen] == [nights]


def test_what_a_rejection_left_is_carried_over_a_night_that_compared_nothing(tmp_path):
    """Else a new stream would begin at 1 after every rejection, and a month with many would promote more often."""
    task, left = TaskPaths(tmp_path), Capital().after([-1.0] * 9).anew()
    idle = decide_gate(PairedEvidence((), (), identical=True), GateSettings(), carried=Carried(left))
    session = SimpleNamespace(
        plan=SimpleNamespace(simulated=True),
        run_id="idle",
        clock=lambda: NOW,
        successor=Library(()),
        store=SimpleNamespace(find=lambda _: [], verify_stamp=lambda _: True, owns=lambda _: True),
    )
    record_promotion(task.promotions, _promotion(session, idle, overtaken=False))
    ManifestFile(task.run("idle").manifest).update(**NIGHT_BEFORE)
    carried, warning = carried_evidence(tonight(task))
    assert (carried.capital.log_value, carried.nights, warning) == (pytest.approx(left.log_value), 0, "")
    assert left.log_value < -2.0


@pytest.mark.parametrize(
    ("decisions", "carries", "says"),
    [
        (["undecided"], True, ""),
        (["retire", "undecided"], True, ""),  # in the run itself, before its decision
        (["undecided", "retire"], False, "a lesson was taken out of the library in force since"),
        (["promote"], True, ""),
        (["retire", "promote"], True, ""),
        (["promote", "retire"], False, "a lesson was taken out of the library in force since"),
        (["undecided", "rollback"], False, ""),
        ([], False, ""),
    ],
)
def test_evidence_is_carried_on_until_a_person_changes_the_library(tmp_path, decisions, carries, says):
    task = TaskPaths(tmp_path)
    for number, decision in enumerate(decisions):
        fields = DECIDED.get(decision, {})
        line = uncompared(Library(()), decision, run_id=f"r{number}", decided_at=NOW, simulated=True, **fields)
        record_promotion(task.promotions, line.model_copy(update={"experience_ids": ("exp-1",)}))
        ManifestFile(task.run(f"r{number}").manifest).update(**NIGHT_BEFORE)
    plan = tonight(task)
    carried, warning = carried_evidence(plan)
    assert carried == (Carried(CAPITAL, 3) if carries else Carried())
    assert says in warning
    assert bool(says) is bool(warning)
    if carries:
        ManifestFile(task.run(f"r{len(decisions) - 1}").manifest).update(settings={})
        assert "not of the expected shape: KeyError: 'tfgrpo'" in carried_evidence(plan)[1]
        task.run(f"r{len(decisions) - 1}").manifest.unlink()
        assert "the manifest of that run is gone" in carried_evidence(plan)[1]


def test_a_run_of_the_rules_before_is_neither_split_nor_weighed_and_is_replayed_with_one_group_size(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("tfgrpo.flows.run.open.LEARNING_RULES", 3)
    assert run(tmp_path, run_id=RUN, group_size=3, gate__group_size=3, **NIGHT).exit_code == 0
    path = paths(tmp_path).manifest
    older = json.loads(path.read_text())
    assert older["gate"]["evidence"] is None
    del older["settings"]["gate"]["group_size"], older["settings"]["gate"]["patience_nights"]
    path.write_text(json.dumps(older))
    again = run(tmp_path, replay=RUN)
    assert again.exit_code == 0, again.message
    assert not any("halves" in row for row in lines(paths(tmp_path).groups))
    assert {row["arm"] for row in lines(paths(tmp_path).rollouts) if row["phase"] == "train"} == {"train"}
    (decided,) = promotions(TaskPaths.of(tmp_path, TASK).promotions)
    assert (decided.capital, decided.nights) == (None, None)
