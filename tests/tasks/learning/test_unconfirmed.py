"""What attempts teach that all failed is known and counts nothing, until a group with different rewards says the same."""

from __future__ import annotations

import pytest

from tests.support.agents.steps import ScriptedModel, group, pack, proposal, record, runtime
from tfgrpo.pipelines.settings.learning import LearningSettings
from tfgrpo.prompt_packs.stamps import pack_stamp
from tfgrpo.stores.experiences.accounts import accounts_of, in_force
from tfgrpo.stores.experiences.record import signature_holds
from tfgrpo.tasks.learning.curate import curate_batch
from tfgrpo.tasks.learning.curation import CurationInput
from tfgrpo.tasks.learning.operations import optimize_experience
from tfgrpo.tasks.shapes import LessonJudgement

TEXT = "Carry the tens before adding hundreds."


def taught(name, *, failed, text=TEXT, judgements=(), **more):
    """Return a group that proposes a lesson, after attempts that all failed or not."""
    values = {"best_reward": 0.0, "best_rank": 0.5, "spread": 0.0, "unconfirmed": True} if failed else {}
    rollouts = (record(0, group=name), record(1, group=name))
    return group(rollouts, (proposal(text, group=name, **{**values, **more}),), judgements=judgements)


async def curate(tmp_path, *groups, library=(), script=None):
    def add(request, key):
        operation = {"op": "add", "targets": [], "from": ["P1"], "polarity": "do", "text": TEXT}
        return {"operations": [operation]}

    model = ScriptedModel(script or add)
    return model, await curate_batch(CurationInput(1, 0, groups, tuple(library), {}), runtime(model, tmp_path))


async def test_a_lesson_of_attempts_that_all_failed_is_known_and_counts_nothing(tmp_path):
    _, result = await curate(tmp_path, taught("g1", failed=True), taught("g2", failed=True))
    [made] = result.records
    assert [(event.kind, event.weight) for event in result.events] == [("taught", 0.0)] * 2
    account = accounts_of(result.records, result.events, night=0)[made.experience_id]
    assert (account.net, account.in_favour, account.living) == (0.0, 0.0, True)
    assert not accounts_of(result.records, result.events, night=20)[made.experience_id].living


async def test_groups_with_different_rewards_confirm_it(tmp_path):
    _, first = await curate(tmp_path, taught("g1", failed=True))
    mixed = [taught(name, failed=False) for name in ("g3", "g4")]
    model, second = await curate(tmp_path, *mixed, taught("g5", failed=True), library=first.records)
    assert model.requests == []
    weights = {event.group_id: (event.kind, event.weight) for event in second.events}
    assert weights == {"g3": ("confirmed", 1.0), "g4": ("confirmed", 1.0), "g5": ("confirmed", 0.0)}
    accounts = accounts_of(first.records, (*first.events, *second.events), night=0)
    assert in_force(first.records, accounts, 8) == first.records


async def test_what_mixed_and_failed_groups_say_alike_counts_as_often_as_mixed_ones_say_it(tmp_path):
    _, result = await curate(tmp_path, taught("g1", failed=True), taught("g2", failed=False))
    assert sorted((event.group_id, event.weight) for event in result.events) == [("g1", 0.0), ("g2", 1.0)]


@pytest.mark.parametrize("unconfirmed", [False, True])
def test_what_counts_nothing_needs_no_reward(unconfirmed):
    lesson = proposal("x", best_reward=0.0, best_rank=0.5, unconfirmed=unconfirmed)
    assert (optimize_experience(lesson, LearningSettings()) is None) is unconfirmed


async def test_the_cause_is_signed_into_the_record_and_shown_to_the_next_curation(tmp_path):
    _, first = await curate(tmp_path, taught("g1", failed=False, cause="The tens were dropped."))
    [made] = first.records
    assert (made.schema_version, made.cause) == (3, "The tens were dropped.")
    assert signature_holds(made, pack_stamp(pack()))
    assert not signature_holds(made.model_copy(update={"cause": None}), pack_stamp(pack()))
    other = taught("g2", failed=False, text="Write down intermediate sums.")
    model, _ = await curate(tmp_path, other, library=first.records, script=lambda *_: {"operations": []})
    assert model.asked("curate")[0]["library"][0]["cause"] == "The tens were dropped."


async def test_each_judgement_is_one_event_of_its_lesson_and_group(tmp_path):
    _, first = await curate(tmp_path, taught("g1", failed=False))
    [known] = first.records
    name = known.experience_id
    judged = (
        LessonJudgement(name, "helped", "Tens."),
        LessonJudgement(name, "misled", "Sums."),
        LessonJudgement("exp-unknown", "helped"),
    )
    rollouts = (record(0, group="g2"), record(1, group="g2"))
    _, result = await curate(tmp_path, group(rollouts, judgements=judged), library=first.records)
    assert [(each.experience_id, each.kind, each.judgement, each.group_id, each.why) for each in result.events] == [
        (name, "judged", "helped", "g2", "Tens."),
        (name, "judged", "misled", "g2", "Sums."),
    ]
