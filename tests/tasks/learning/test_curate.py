"""Curation before there were accounts: learning rules 1 to 3."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from tests.support.agents.curating import TEXTS, curate, groups, lesson, op, operations, reasons
from tests.support.agents.steps import ScriptedModel, group, pack, proposal, record, reply, runtime
from tfgrpo.pipelines.settings.learning import LearningSettings
from tfgrpo.prompt_packs.stamps import pack_stamp
from tfgrpo.stores.errors import BudgetRefused, ModelAuthRefused, ModelServerFault
from tfgrpo.stores.experiences.library import Library, fold
from tfgrpo.stores.experiences.record import Reward, signature_holds, support_of
from tfgrpo.stores.text import count_words
from tfgrpo.tasks.learning.curate import curate_batch
from tfgrpo.tasks.learning.curation import CurationInput, limits_for


async def test_an_added_lesson_becomes_a_stamped_record_with_its_evidence(tmp_path):
    result = await curate(lambda *_: operations(op("add", sources=["P1"], text=TEXTS[0])), tmp_path, groups(TEXTS[0]))
    [made] = result.records
    assert (made.operation, made.summary32, made.polarity) == ("add", TEXTS[0], "do")
    assert (made.run_id, made.task_id, made.domain, made.tags) == ("run", "t", "arithmetic", ("sums",))
    assert made.evidence == ("g1/0", "g1/1")
    assert made.reward == Reward(gt_score=1.0, relative_rank=1.0)
    assert signature_holds(made, pack_stamp(pack()))
    assert result.lost == 0


async def test_the_curator_sees_library_proposals_memory_and_limits(tmp_path):
    model = ScriptedModel(lambda *_: operations())
    await curate(model, tmp_path, groups(TEXTS[0], TEXTS[0]), [lesson("e1", TEXTS[1])], before=("bad idea",))
    assert model.asked("curate") == [
        {
            "library": [{"id": "L1", "polarity": "do", "text": TEXTS[1], "support": 1}],
            "proposals": [{"id": "P1", "polarity": "do", "text": TEXTS[0], "support": 2, "best_reward": 1.0}],
            "rejected_before": ["bad idea"],
            "capacity": 32,
            "edit_budget": 12,
            "max_words": 32,
        }
    ]
    assert model.requests[0][0].messages[0].content == "Curate. 32 12 32"


async def test_modify_merge_delete_and_keep_each_do_what_they_say(tmp_path):
    library = [lesson(f"e{number}", text, evidence=(f"o{number}/0",)) for number, text in enumerate(TEXTS)]
    answer = operations(
        op("keep", targets=["L5"]),
        op("modify", targets=["L1"], sources=["P1"], text="Carry tens first."),
        op("merge", targets=["L2", "L3"], text="Convert units, then write sums."),
        op("delete", targets=["L4"]),
    )
    result = await curate(lambda *_: answer, tmp_path, groups("Check carried digits."), library)
    by_operation = {made.operation: made for made in result.records}
    assert [made.operation for made in result.records] == ["delete", "merge", "modify"]
    assert by_operation["delete"].summary32 == ""
    assert by_operation["delete"].supersedes == ("e3",)
    assert by_operation["merge"].supersedes == ("e1", "e2")
    assert by_operation["merge"].evidence == ("o1/0", "o2/0")
    assert by_operation["modify"].evidence == ("g1/0", "g1/1", "o0/0")
    assert support_of(by_operation["modify"]) == 2


@pytest.mark.parametrize("delete", [{"op": "delete", "targets": ["L1"]}, op("delete", targets=["L1"], polarity="")])
async def test_a_deletion_without_text_is_a_deletion(tmp_path, delete):
    result = await curate(lambda *_: operations(delete), tmp_path, groups(TEXTS[0]), [lesson("e1", TEXTS[1])])
    assert [made.operation for made in result.records] == ["delete"]


BAD = [
    (op("add", sources=["P9"], text="x y"), "unknown P9"),
    (op("modify", targets=["L9"], text="x y"), "unknown L9"),
    (op("add", text="From nowhere."), "rests on no proposal"),
    (op("add", targets=["L1"], sources=["P1"], text="x y"), "takes no target, not 1"),
    (op("modify", targets=[], sources=["P1"], text="x y"), "takes exactly one target, not 0"),
    (op("merge", targets=["L1"], sources=["P1"], text="x y"), "takes at least two targets, not 1"),
    (op("merge", targets=["L1", "L1"], text="x y"), "names something twice"),
    (op("delete", targets=["L1", "L2"]), "takes exactly one target, not 2"),
    (op("add", sources=["P1"], text="  "), "no text"),
    (op("modify", targets=["L1"], sources=["P1"], text=TEXTS[1], polarity="avoid"), "changes the direction"),
    (op("add", sources=["P1"], text="Sums like this come to 42."), "gives away"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD, ids=[reason for _, reason in BAD])
async def test_one_bad_operation_is_rejected_with_its_reason_and_the_others_are_applied(tmp_path, bad, reason):
    library = [lesson("e1", TEXTS[1]), lesson("e2", TEXTS[2])]
    good = op("add", sources=["P2"], text=TEXTS[4])
    result = await curate(
        lambda *_: operations(bad, good), tmp_path, groups(TEXTS[3], TEXTS[4]), library, answers={"q1": "42"}
    )
    assert [made.summary32 for made in result.records] == [TEXTS[4]]
    assert any(reason in why for _, why in result.rejected)


async def test_no_accepted_answer_of_an_item_is_in_a_lesson(tmp_path):
    bad = op("add", sources=["P1"], text="Sums like this come to forty-two.")
    result = await curate(
        lambda *_: operations(bad),
        tmp_path,
        groups(TEXTS[3]),
        answers={"q1": "42"},
        alternatives={"q1": ("42.0", "forty-two")},
    )
    assert result.records == ()
    assert any("gives away" in why for _, why in result.rejected)


async def test_no_lesson_or_proposal_is_used_twice(tmp_path):
    answer = operations(
        op("modify", targets=["L1"], sources=["P1"], text="Carry tens, then add."),
        op("modify", targets=["L1"], text="Something else entirely."),
        op("add", sources=["P1"], text="Yet another thing."),
    )
    result = await curate(lambda *_: answer, tmp_path, groups(TEXTS[0]), [lesson("e1", TEXTS[1])])
    assert len(result.records) == 1
    assert sum("already used" in why for _, why in result.rejected) == 2


async def test_two_operations_that_say_the_same_are_one(tmp_path):
    answer = operations(op("add", sources=["P1"], text=TEXTS[0]), op("add", sources=["P2"], text=TEXTS[0].upper()))
    result = await curate(lambda *_: answer, tmp_path, groups(TEXTS[0], TEXTS[1]))
    assert len(result.records) == 1
    assert result.rejected == ()


async def test_the_same_words_are_never_both_do_and_avoid(tmp_path):
    answer = operations(
        op("add", sources=["P1"], text=TEXTS[0]), op("add", sources=["P2"], text=TEXTS[0], polarity="avoid")
    )
    result = await curate(lambda *_: answer, tmp_path, groups(TEXTS[0], TEXTS[1]))
    assert [made.polarity for made in result.records] == ["do"]
    assert any("contradicts another operation" in why for _, why in result.rejected)
    avoided = [lesson("e1", TEXTS[0], polarity="avoid")]
    again = await curate(lambda *_: answer, tmp_path, groups(TEXTS[0], TEXTS[1]), avoided, epoch=2)
    assert any("contradicts a lesson in the library" in why for _, why in again.rejected)


async def test_a_full_library_accepts_an_addition_only_after_a_removal(tmp_path):
    library = [lesson("e1", TEXTS[1])]
    add = op("add", sources=["P1"], text=TEXTS[0])
    full = await curate(
        lambda *_: operations(add), tmp_path, groups(TEXTS[0]), library, pack(1), tfgrpo={"capacity_factor": 1.0}
    )
    assert full.records == ()
    assert "the library is full (1)" in reasons(full)[TEXTS[0]]


async def test_operations_that_make_room_are_applied_first(tmp_path):
    answer = operations(op("add", sources=["P1"], text=TEXTS[0]), op("delete", targets=["L1"]))
    result = await curate(
        lambda *_: answer,
        tmp_path,
        groups(TEXTS[0]),
        [lesson("e1", TEXTS[1])],
        pack(1),
        tfgrpo={"capacity_factor": 1.0},
    )
    assert [made.operation for made in result.records] == ["delete", "add"]


async def test_the_edit_budget_caps_the_operations(tmp_path):
    answer = operations(*(op("add", sources=[f"P{n}"], text=text) for n, text in enumerate(TEXTS[:3], start=1)))
    result = await curate(lambda *_: answer, tmp_path, groups(*TEXTS[:3]), tfgrpo={"edit_budget": 2})
    assert len(result.records) == 2
    assert any("over the edit budget of 2" in why for _, why in result.rejected)


def test_the_edit_budget_shrinks_with_the_epochs_and_never_to_zero():
    settings = LearningSettings(epochs=5, edit_budget=12)
    assert [limits_for(settings, 8, epoch).edit_budget for epoch in (1, 2, 3, 4)] == [12, 9, 6, 3]
    assert limits_for(LearningSettings(epochs=2, edit_budget=1), 8, 1).edit_budget == 1
    assert limits_for(LearningSettings(capacity_factor=1.5), 5, 1).capacity == 8


async def test_one_group_cannot_fill_the_library(tmp_path):
    shared = tuple(proposal(text, group="g1") for text in TEXTS[:3])
    answer = operations(*(op("add", sources=[f"P{n}"], text=text) for n, text in enumerate(TEXTS[:3], start=1)))
    result = await curate(
        lambda *_: answer, tmp_path, [group((record(0, group="g1"),), shared)], tfgrpo={"lessons_per_group": 1}
    )
    assert len(result.records) == 1
    assert any("more than 1 lessons from one group" in why for _, why in result.rejected)


async def test_proposals_below_the_thresholds_are_never_put_to_the_curator(tmp_path):
    model = ScriptedModel(lambda *_: operations())
    result = await curate(model, tmp_path, groups(TEXTS[0], best_reward=0.0))
    assert model.requests == []
    assert "does not exceed" in reasons(result)[TEXTS[0]]


async def test_a_worthless_warning_cannot_become_advice(tmp_path):
    result = await curate(
        lambda *_: operations(op("add", sources=["P1"], text=TEXTS[0], polarity="do")),
        tmp_path,
        groups(TEXTS[0], best_reward=0.0, polarity="avoid"),
    )
    assert result.records == ()


@pytest.mark.parametrize("broken", ["null", "[]", '{"operations": {"op": "add"}}', '{"operations": null}', "gibberish"])
async def test_an_answer_that_stays_invalid_falls_back_to_the_best_supported_lessons(tmp_path, broken):
    model = ScriptedModel(lambda *_: broken)
    result = await curate(
        model, tmp_path, groups(TEXTS[0], TEXTS[1], TEXTS[1]), [lesson("e1", TEXTS[0])], tfgrpo={"max_repairs": 1}
    )
    assert result.lost
    assert len(model.requests) == 2
    assert result.spend.failure.error_type == "RepairExhausted"
    assert [made.summary32 for made in result.records] == [TEXTS[1]]
    assert TEXTS[0] not in reasons(result)


async def test_a_failed_call_falls_back_too_and_names_its_key(tmp_path):
    result = await curate(lambda *_: ModelServerFault("503"), tmp_path, groups(TEXTS[0]))
    assert result.lost
    assert len(result.records) == 1
    assert [broken.call_key for broken in result.spend.broken] == [result.spend.failure.call_key]


@pytest.mark.parametrize(
    ("error", "field"), [(BudgetRefused("cap"), "budget_refused"), (ModelAuthRefused("401"), "fatal")]
)
async def test_no_decision_is_made_when_the_run_stops(tmp_path, error, field):
    result = await curate(lambda *_: error, tmp_path, groups(TEXTS[0]), before=("bad idea",))
    assert getattr(result.spend, field)
    assert (result.records, result.lost, list(result.memory)) == ((), 0, ["bad idea"])


async def test_rejected_texts_are_remembered_up_to_a_limit(tmp_path):
    before = tuple(f"old {number}" for number in range(60))
    result = await curate(lambda *_: operations(), tmp_path, groups(TEXTS[0]), before=before)
    assert reasons(result) == {TEXTS[0]: "not taken up"}
    assert list(result.memory)[-1] == TEXTS[0]
    assert len(result.memory) == 50


async def test_a_long_lesson_is_shortened_once_and_then_rejected(tmp_path):
    long = "Always " + "check " * 40 + "it."

    def script(request, key):
        if key.role == "shorten":
            return {"text": "Check it all." if key.turn == 1 else long}
        return operations(op("add", sources=["P1"], text=long), op("add", sources=["P2"], text=f"{long} Twice."))

    result = await curate(script, tmp_path, groups(TEXTS[0], TEXTS[1]))
    assert [made.summary32 for made in result.records] == ["Check it all."]
    assert all(count_words(made.summary32) <= 32 for made in result.records)
    assert any("after shortening" in why for _, why in result.rejected)


async def test_the_result_does_not_depend_on_the_order_of_the_groups(tmp_path):
    made = list(groups(*TEXTS))
    answer = operations(*(op("add", sources=[f"P{n}"], text=f"Lesson number {n}.") for n in (1, 2, 3)))
    first = await curate(lambda *_: answer, tmp_path / "a", made)
    random.Random(3).shuffle(made)
    second = await curate(lambda *_: answer, tmp_path / "b", made)
    assert first.records == second.records
    assert first.rejected == second.rejected


@pytest.mark.parametrize("answer", ["42", "57"])
async def test_a_lesson_may_not_contain_the_answer_of_any_of_its_items(tmp_path, answer):
    text = f"Sums like this come to {answer}."
    result = await curate(
        lambda *_: operations(op("add", sources=["P1"], text=text)),
        tmp_path,
        groups(TEXTS[0], TEXTS[0]),
        answers={"q1": "42", "q2": "57"},
    )
    assert result.records == ()
    assert "gives away" in reasons(result)[text]


async def test_a_removed_lesson_does_not_block_a_new_one(tmp_path):
    answer = operations(op("delete", targets=["L1"]), op("add", sources=["P1"], text=TEXTS[0], polarity="avoid"))
    result = await curate(lambda *_: answer, tmp_path, groups(TEXTS[1]), [lesson("e1", TEXTS[0])])
    assert [(made.operation, made.polarity) for made in result.records] == [("delete", "do"), ("add", "avoid")]


async def test_curation_calls_have_a_limit_of_their_own_and_take_the_proposals_in_chunks(tmp_path):
    def script(request, key):
        asked = json.loads(request.messages[1].content)
        if key.turn == 0:
            return operations(op("add", sources=["P1"], text=TEXTS[0]))
        assert [each["text"] for each in asked["library"]] == [TEXTS[1], TEXTS[0]]
        assert asked["edit_budget"] == 11
        return operations(op("modify", targets=[asked["library"][1]["id"]], sources=["P3"], text=TEXTS[3]))

    model = ScriptedModel(script)
    result = await curate(
        model,
        tmp_path,
        groups(TEXTS[0], TEXTS[2], TEXTS[3]),
        [lesson("e1", TEXTS[1])],
        model={"learner_max_tokens": 200},
    )
    assert [request.max_tokens for request, _ in model.requests] == [200, 200]
    assert [[each["id"] for each in asked["proposals"]] for asked in model.asked("curate")] == [["P1", "P2"], ["P3"]]
    assert (result.asked, result.lost) == (2, 0)
    library = fold(Library((lesson("e1", TEXTS[1]),)), result.records)
    assert [entry.summary32 for entry in library.entries] == [TEXTS[1], TEXTS[3]]


async def test_a_cut_off_list_keeps_its_whole_operations(tmp_path):
    whole = json.dumps(operations(op("add", sources=["P1"], text=TEXTS[0]), op("add", sources=["P2"], text=TEXTS[2])))
    model = ScriptedModel(lambda *_: reply(whole[:-12], finish="length"))
    result = await curate(model, tmp_path, groups(TEXTS[0], TEXTS[2]))
    assert [made.summary32 for made in result.records] == [TEXTS[0]]
    assert len(model.requests) == 1
    assert result.spend.failure is None


@pytest.mark.parametrize("text", ['{"operations": [{"op": "ad', "{", '{"operations": [', '<think>{"operations": [{}'])
async def test_a_list_cut_off_in_its_first_operation_is_requested_again(tmp_path, text):
    model = ScriptedModel(lambda *_: reply(text, finish="length"))
    result = await curate(model, tmp_path, groups(TEXTS[0]), tfgrpo={"max_repairs": 1})
    assert len(model.requests) == 2
    assert result.spend.failure.error_type == "RepairExhausted"


async def test_a_run_of_the_first_learning_rules_keeps_their_decisions(tmp_path):
    """What its journal holds answers the same questions: one call of the actors' limit, with the old memory."""
    keep = operations(op("keep", targets=["L1"], sources=["P1"]))
    model = ScriptedModel(lambda *_: keep)
    made = runtime(model, tmp_path, model={"learner_max_tokens": 200})
    made = replace(made, context=replace(made.context, rules=1))
    batch = CurationInput(1, 0, groups(*TEXTS), (lesson("e1", TEXTS[0]),), {}, {TEXTS[1]: 1})
    result = await curate_batch(batch, made)
    assert len(model.requests) == 1
    assert list(result.memory)[:2] == [TEXTS[1], TEXTS[0]]


async def test_a_run_of_the_first_learning_rules_asks_again_for_a_cut_off_list(tmp_path):
    """It reverses a lesson freely too, and the new one inherits the evidence."""
    whole = json.dumps(operations(op("modify", targets=["L1"], sources=["P1"], text=TEXTS[2])))
    model = ScriptedModel(lambda *_: reply(whole) if model.requests[1:] else reply(whole[:-2], finish="length"))
    made = runtime(model, tmp_path)
    made = replace(made, context=replace(made.context, rules=1))
    old = lesson("e1", TEXTS[0], polarity="avoid", evidence=("old/0", "older/0"))
    result = await curate_batch(CurationInput(1, 0, groups(TEXTS[2]), (old,), {}), made)
    assert len(model.requests) == 2
    assert [made.evidence for made in result.records] == [("g1/0", "g1/1", "old/0", "older/0")]
