"""Curation before there were accounts: learning rules 1 to 3."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from tests.support.agents.steps import NOON, ScriptedModel, group, pack, proposal, record, reply, runtime
from tfgrpo.pipelines.settings.learning import LearningSettings
from tfgrpo.prompt_packs.stamps import pack_stamp
from tfgrpo.stores.errors import BudgetRefused, ModelAuthRefused, ModelServerFault
from tfgrpo.stores.experiences.library import Library, fold
from tfgrpo.stores.experiences.record import ExperienceRecord, Reward, ToolStat, signature_holds, support_of
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.text import count_words
from tfgrpo.tasks.learning.curate import curate_batch
from tfgrpo.tasks.learning.curation import CurationInput, limits_for
from tfgrpo.tasks.shapes import ToolMetricEvent

TEXTS = [
    "Carry the tens before adding hundreds.",
    "Convert every unit first.",
    "Write intermediate sums down.",
    "Never guess a missing figure.",
    "Read the question twice.",
]


def lesson(name, text, *, polarity="do", evidence=("old/0", "old/1"), **more):
    values = {
        "experience_id": name,
        "run_id": "run",
        "task_id": "t",
        "domain": "arithmetic",
        "pack_id": "arithmetic",
        "epoch": 1,
        "batch": 0,
        "group_id": "old",
        "operation": "add",
        "summary32": text,
        "polarity": polarity,
        "reward": Reward(gt_score=0.5, relative_rank=1.0),
        "evidence": evidence,
        "stamp_signature": "",
        "created_at": NOON,
    }
    return ExperienceRecord(**{**values, **more})


def groups(*texts, **more):
    """One group per text, each proposing it."""
    made = []
    for number, text in enumerate(texts, start=1):
        name = f"g{number}"
        rollouts = (record(0, group=name, name=f"q{number}"), record(1, group=name, name=f"q{number}"))
        made.append(group(rollouts, (proposal(text, group=name, name=f"q{number}", **more),)))
    return tuple(made)


def op(name, *, targets=(), sources=(), text="", polarity="do"):
    return {"op": name, "targets": list(targets), "from": list(sources), "polarity": polarity, "text": text}


def operations(*given):
    return {"operations": list(given)}


async def curate(script, tmp_path, batch_groups, library=(), loaded=None, before=(), answers=None, epoch=1, **sections):
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    made = runtime(model, tmp_path, loaded=loaded, **sections)
    made = replace(made, context=replace(made.context, rules=3))
    batch = CurationInput(
        epoch=epoch,
        batch=0,
        groups=tuple(batch_groups),
        library=tuple(library),
        answers=answers or {},
        rejected_before=dict.fromkeys(before, 1),
    )
    return await curate_batch(batch, made)


def reasons(result):
    return dict(result.rejected)


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


async def test_identity_is_content_and_origin(tmp_path):
    async def identity(text, batch_groups, name):
        answer = operations(op("add", sources=["P1"], text=text))
        result = await curate(lambda *_: answer, tmp_path / name, batch_groups)
        return result.records[0].experience_id

    same = [await identity(TEXTS[0], groups(TEXTS[0]), name) for name in ("a", "b")]
    other_text = await identity(TEXTS[1], groups(TEXTS[0]), "c")
    other_origin = await identity(TEXTS[0], groups(TEXTS[0], TEXTS[0]), "d")
    assert same[0] == same[1]
    assert len({same[0], other_text, other_origin}) == 3


async def test_two_runs_that_delete_one_lesson_store_two_records(tmp_path):
    old = lesson("exp-old", TEXTS[0])
    made = runtime(ScriptedModel(lambda *_: operations(op("delete", targets=["L1"]))), tmp_path)
    made = replace(made, context=replace(made.context, rules=3))
    batch = CurationInput(1, 0, groups(TEXTS[1]), (old,), {})
    nights = [replace(made, context=replace(made.context, run_id=name)) for name in ("night-1", "night-2")]
    (first,), (second,) = [(await curate_batch(batch, night)).records for night in nights]
    assert (first.operation, first.evidence, second.evidence) == ("delete", old.evidence, old.evidence)
    store = ExperienceStore(tmp_path / "store", approved={made.pack.manifest.id: pack_stamp(made.pack)})
    assert [store.record_batch([entry], tmp_path / "m") for entry in (first, second)] == [1, 1]


async def test_tool_use_of_the_evidence_is_summed_and_not_counted_twice(tmp_path):
    events = (
        ToolMetricEvent(1, "g1", "add", 2, 0.5, 10.0, ok=True),
        ToolMetricEvent(1, "g1", "add", 3, 0.25, 5.0, ok=True),
    )
    rollouts = (record(0, group="g1", tools=events), record(1, group="g1"))
    stat = ToolStat(tool="add", tokens=1, latency_ms=1.0, cost_usd=0.25)
    library = [lesson(f"e{n}", text, tool_stats=(stat,)) for n, text in enumerate(TEXTS[1:3])]
    answer = operations(op("merge", targets=["L1", "L2"], sources=["P1"], text="Convert units and write sums."))
    result = await curate(lambda *_: answer, tmp_path, [group(rollouts, (proposal(TEXTS[0], group="g1"),))], library)
    assert result.records[0].tool_stats == (ToolStat(tool="add", tokens=6, latency_ms=16.0, cost_usd=1.0),)


async def test_only_the_best_supported_proposals_are_put_to_the_curator(tmp_path):
    model = ScriptedModel(lambda *_: operations())
    result = await curate(model, tmp_path, groups(*(f"Lesson about subject{number}." for number in range(90))))
    assert [len(asked["proposals"]) for asked in model.asked("curate")] == [80]
    assert sum("best supported" in why for _, why in result.rejected) == 10


async def test_a_missing_polarity_is_that_of_the_source_or_the_target(tmp_path):
    answer = operations(
        op("add", sources=["P1"], text="Something new here.", polarity=""),
        op("modify", targets=["L1"], text="Units come first.", polarity=""),
    )
    library = [lesson("e1", TEXTS[1], polarity="avoid")]
    result = await curate(lambda *_: answer, tmp_path, groups(TEXTS[0]), library)
    assert {made.summary32: made.polarity for made in result.records} == {
        "Something new here.": "do",
        "Units come first.": "avoid",
    }


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


@pytest.mark.parametrize(("fresh", "kept"), [(0.75, 0.75), (0.25, 0.5)])
async def test_a_rewritten_lesson_has_the_best_reward_of_its_sources(tmp_path, fresh, kept):
    answer = operations(op("modify", targets=["L1"], sources=["P1"], text="Carry tens first."))
    library = [lesson("e1", TEXTS[0], reward=Reward(gt_score=0.5, relative_rank=1.0))]
    result = await curate(lambda *_: answer, tmp_path, groups(TEXTS[1], best_reward=fresh), library)
    [made] = result.records
    assert made.reward.gt_score == kept


async def test_a_removed_lesson_does_not_block_a_new_one(tmp_path):
    answer = operations(op("delete", targets=["L1"]), op("add", sources=["P1"], text=TEXTS[0], polarity="avoid"))
    result = await curate(lambda *_: answer, tmp_path, groups(TEXTS[1]), [lesson("e1", TEXTS[0])])
    assert [(made.operation, made.polarity) for made in result.records] == [("delete", "do"), ("add", "avoid")]


CONFIRMING = {
    "keep": [op("keep", targets=["L1"], sources=["P1"])],
    "a duplicate of a lesson": [op("add", sources=["P1"], text=TEXTS[1].upper())],
    "a lesson reworded to itself": [op("modify", targets=["L1"], sources=["P1"], text=TEXTS[1])],
    "nothing, and it says the same": [],
}


@pytest.mark.parametrize("answer", CONFIRMING.values(), ids=CONFIRMING)
@pytest.mark.parametrize("wording", [TEXTS[1], "Turn all lengths into metres."])
async def test_a_proposal_that_confirms_a_lesson_is_neither_rejected_nor_remembered(tmp_path, answer, wording):
    if not answer and wording != TEXTS[1]:
        return  # neither words nor the model say that it confirms anything
    result = await curate(
        lambda *_: operations(*answer),
        tmp_path,
        groups(wording),
        [lesson("e1", TEXTS[1])],
        before=(TEXTS[1], "bad idea"),
    )
    assert result.rejected == ()
    assert list(result.memory) == ["bad idea"]


async def test_keeping_an_unknown_lesson_confirms_no_proposal(tmp_path):
    answer = operations(op("keep", targets=["L9"], sources=["P1"]), op("keep", sources=["P1"]))
    result = await curate(lambda *_: answer, tmp_path, groups(TEXTS[0]), [lesson("e1", TEXTS[1])])
    assert reasons(result) == {TEXTS[0]: "not taken up"}


async def test_the_opposite_of_a_lesson_is_rejected_and_remembered(tmp_path):
    result = await curate(
        lambda *_: operations(), tmp_path, groups(TEXTS[1], polarity="avoid"), [lesson("e1", TEXTS[1], polarity="do")]
    )
    assert reasons(result) == {TEXTS[1]: "not taken up"}
    assert list(result.memory) == [TEXTS[1]]


@pytest.mark.parametrize(("support", "changed"), [(1, False), (2, False), (3, True)])
async def test_a_reversal_needs_more_support_than_its_target_and_inherits_no_evidence(tmp_path, support, changed):
    target = lesson(
        "e1", TEXTS[1], evidence=("o1/0", "o2/0", "o2/1"), tool_stats=(ToolStat(tool="t", tokens=1, latency_ms=1.0),)
    )
    answer = operations(op("modify", targets=["L1"], sources=["P1"], text="Converting every unit.", polarity="avoid"))
    result = await curate(lambda *_: answer, tmp_path, groups(*[TEXTS[0]] * support, polarity="avoid"), [target])
    if not changed:
        assert result.records == ()
        assert f"on a support of {support}, and that lesson has 2" in reasons(result)["Converting every unit."]
        return
    [made] = result.records
    assert (made.polarity, made.supersedes, support_of(made)) == ("avoid", ("e1",), 3)
    assert not any(name.startswith("o") for name in made.evidence)
    assert made.tool_stats == ()


async def test_a_reversal_rests_on_no_proposal_of_the_old_polarity(tmp_path):
    target = lesson("e1", TEXTS[1], evidence=("o1/0",))
    against, both = groups(*[TEXTS[0]] * 2, polarity="avoid"), groups(*[TEXTS[0]] * 2, *[TEXTS[2]] * 3)
    answer = operations(op("modify", targets=["L1"], sources=["P1", "P2"], text="Converting units.", polarity="avoid"))
    [made] = (await curate(lambda *_: answer, tmp_path, [*against, *both[2:]], [target])).records
    assert (made.polarity, support_of(made)) == ("avoid", 2)


async def test_a_merge_reverses_no_better_supported_lesson(tmp_path):
    library = [lesson("e1", TEXTS[1], evidence=("o1/0", "o2/0")), lesson("e2", TEXTS[2], polarity="avoid")]
    answer = operations(op("merge", targets=["L1", "L2"], sources=["P1"], text="Converting units.", polarity="avoid"))
    result = await curate(lambda *_: answer, tmp_path, groups(TEXTS[0], polarity="avoid"), library)
    assert result.records == ()
    assert "changes the direction" in reasons(result)["Converting units."]


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
