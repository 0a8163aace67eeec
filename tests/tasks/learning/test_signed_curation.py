"""Curation with accounts: what confirms, what contradicts, what is new, and what is not asked."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.agents.steps import NOON, ScriptedModel, group, record, runtime
from tests.tasks.learning.test_curate import TEXTS, groups, lesson, op, operations
from tfgrpo.stores.experiences.accounts import AccountEvent, accounts_of, append_events
from tfgrpo.tasks.learning.curate import curate_batch
from tfgrpo.tasks.learning.curation import CurationInput
from tfgrpo.tasks.shapes import LessonJudgement

CARRY, CONVERT = TEXTS[:2]


def event(name, group="old", kind="taught", **changes):
    fields = {
        "event_id": "", "experience_id": name, "kind": kind, "run_id": "before", "simulated": False, "night": 0,
        "epoch": 1, "batch": 0, "group_id": group, "created_at": NOON,
    }  # fmt: skip
    return AccountEvent(**{**fields, **changes}).named()


def unasked(*_):
    raise AssertionError("nothing is left to ask")


async def curate(script, tmp_path, batch_groups, library=(), events=(), before=None, **sections):
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    batch = CurationInput(
        epoch=1,
        batch=0,
        groups=tuple(batch_groups),
        library=tuple(library),
        answers={},
        rejected_before=before or {},
        accounts=accounts_of(library, events, 0),
        effects={"a": "+2.0 points (+0.5 … +3.5), 600 rollouts"},
        families={"q1": "shop"},
    )
    return await curate_batch(batch, runtime(model, tmp_path, **sections))


def said(result):
    return Counter((each.kind, each.experience_id, each.opposite) for each in result.events)


async def test_what_says_the_same_confirms_without_a_call_and_is_never_turned_down(tmp_path):
    result = await curate(unasked, tmp_path, groups(CARRY, CARRY), [lesson("a", CARRY)])
    assert said(result) == {("confirmed", "a", None): 2}
    assert {each.group_id for each in result.events} == {"g1", "g2"}
    assert [each.family for each in result.events] == ["shop", ""]
    assert (result.asked, result.records, result.rejected, result.memory) == (0, (), (), {})


async def test_the_same_words_the_other_way_round_contradict_without_a_call_and_become_a_lesson(tmp_path):
    result = await curate(unasked, tmp_path, groups(CARRY, CARRY), [lesson("a", CARRY, polarity="avoid")])
    [made] = result.records
    assert (made.operation, made.polarity, made.supersedes) == ("add", "do", ())
    assert said(result) == {("taught", made.experience_id, None): 2, ("contradicted", "a", made.experience_id): 2}


async def test_a_contradiction_confirms_the_known_opposite_and_a_confirmation_counts_against_it(tmp_path):
    library = [lesson("a", CARRY, polarity="avoid"), lesson("b", CONVERT)]
    known = [event("a"), event("b"), event("a", kind="contradicted", opposite="b")]
    result = await curate(unasked, tmp_path, groups(CARRY), library, known)
    assert said(result) == {("confirmed", "b", None): 1, ("contradicted", "a", "b"): 1}
    result = await curate(unasked, tmp_path, groups(CONVERT), library, known)
    assert said(result) == {("confirmed", "b", None): 1, ("contradicted", "a", "b"): 1}


async def test_a_contradiction_counts_even_if_its_own_lesson_is_not_taken_in(tmp_path):
    model = ScriptedModel(lambda *_: operations(op("add", sources=["P1"], text=CONVERT)))
    result = await curate(
        model, tmp_path, groups(CONVERT, CARRY), [lesson("a", CARRY, polarity="avoid")], tfgrpo={"edit_budget": 1}
    )
    assert sum(count for (kind, name, _), count in said(result).items() if (kind, name) == ("contradicted", "a")) == 1
    assert len(result.records) == 1


async def test_the_model_classes_what_the_words_do_not_tell(tmp_path):
    library = [lesson("a", CARRY), lesson("b", CONVERT)]
    answer = operations(
        op("confirm", targets=["L1"], sources=["P1"], polarity=""),
        op("contradict", targets=["L2"], sources=["P2"], polarity=""),
        op("useless", sources=["P3"], polarity=""),
    )
    model = ScriptedModel(lambda *_: answer)
    result = await curate(model, tmp_path, groups(*TEXTS[2:]), library, [event("a"), event("b")])
    texts = [each["text"] for each in model.asked("curate")[0]["proposals"]]
    effects = [each.get("effect") for each in model.asked("curate")[0]["library"]]
    assert effects == ["+2.0 points (+0.5 … +3.5), 600 rollouts", None], "of the lesson that was measured"
    [made] = result.records
    assert made.summary32 == texts[1]
    assert said(result) == {
        ("confirmed", "a", None): 1,
        ("taught", made.experience_id, None): 1,
        ("contradicted", "b", made.experience_id): 1,
    }
    assert dict(result.rejected) == {texts[2]: "useless"}
    assert result.memory == {texts[2]: 1}


async def test_the_model_sees_the_accounts_and_how_often_a_text_was_turned_down(tmp_path):
    model = ScriptedModel(lambda *_: operations())
    known = [event("a"), event("a", "h", "contradicted"), event("a", "i", family="shop")]
    await curate(model, tmp_path, groups(CONVERT), [lesson("a", CARRY)], known, {"Be careful.": 2})
    [asked] = model.asked("curate")
    assert asked["library"] == [
        {"id": "L1", "polarity": "do", "text": CARRY, "for": 2.0, "against": 1.0, "nights": 0}
        | {"families": ["shop"], "effect": "+2.0 points (+0.5 … +3.5), 600 rollouts"}
    ]
    assert asked["rejected_before"] == {"Be careful.": 2}


async def test_of_two_new_opposites_in_one_batch_both_are_known_and_each_knows_the_other(tmp_path):
    answer = operations(
        op("add", sources=["P1"], text=TEXTS[2]), op("contradict", targets=["P1"], sources=["P2"], polarity="")
    )
    result = await curate(lambda *_: answer, tmp_path, groups(TEXTS[2], TEXTS[3]))
    first, second = (made.experience_id for made in result.records)
    assert said(result) == {("taught", first, None): 1, ("taught", second, None): 1, ("contradicted", first, second): 1}
    accounts = accounts_of(result.records, result.events, 0)
    assert accounts[first].opposes(accounts[second])


async def test_a_reversal_with_less_support_is_a_contradiction_and_one_with_more_starts_a_new_account(tmp_path):
    answer = operations(op("modify", targets=["L1"], sources=["P1"], polarity="avoid", text=TEXTS[2]))
    strong = [event("a", f"g{number}") for number in range(9)]
    given = groups(TEXTS[2], polarity="avoid")
    result = await curate(lambda *_: answer, tmp_path / "1", given, [lesson("a", CARRY)], strong)
    [made] = result.records
    assert made.supersedes == ()
    assert ("contradicted", "a", made.experience_id) in said(result)
    result = await curate(lambda *_: answer, tmp_path / "2", given, [lesson("a", CARRY)], [])
    [made] = result.records
    assert made.supersedes == ("a",)
    assert said(result)["contradicted", "a", made.experience_id] == 1


@pytest.mark.parametrize(("against", "goes"), [(0, False), (1, True)])
async def test_a_lesson_that_more_groups_are_for_than_against_is_not_deleted(tmp_path, against, goes):
    answer = operations(op("delete", targets=["L1"]))
    known = [event("a"), *(event("a", f"h{number}", "contradicted") for number in range(against))]
    result = await curate(lambda *_: answer, tmp_path, groups(CONVERT), [lesson("a", CARRY)], known)
    assert [made.operation for made in result.records] == (["delete"] if goes else [])
    assert [each.kind for each in result.events] == (["retired"] if goes else [])


async def test_a_text_turned_down_three_times_is_not_asked_about_again_unless_several_groups_say_it(tmp_path):
    result = await curate(unasked, tmp_path, groups(CARRY), before={CARRY: 3})
    assert (dict(result.rejected), result.memory) == ({CARRY: "useless"}, {CARRY: 4})
    model = ScriptedModel(lambda *_: operations(op("add", sources=["P1"], text=CARRY)))
    result = await curate(model, tmp_path, groups(CARRY, CARRY), before={CARRY: 3})
    assert len(result.records) == 1
    assert result.memory == {}


async def test_what_is_refused_for_want_of_room_is_not_remembered(tmp_path):
    answer = operations(*(op("add", sources=[f"P{n}"], text=text) for n, text in enumerate(TEXTS[:3], start=1)))
    model = ScriptedModel(lambda *_: answer)
    result = await curate(model, tmp_path, groups(*TEXTS[:3]), tfgrpo={"edit_budget": 1})
    assert [reason for _, reason in result.rejected] == ["add: over the edit budget of 1"] * 2
    assert result.memory == {}


async def test_a_full_library_takes_new_lessons_in(tmp_path):
    library = [lesson(f"e{number}", f"Mind subject number {word}.") for number, word in enumerate("abcdefghijkl")]
    answer = operations(op("add", sources=["P1"], text=CARRY))
    result = await curate(lambda *_: answer, tmp_path, groups(CARRY), library, tfgrpo={"capacity_factor": 1.0})
    assert len(result.records) == 1


async def test_judgements_of_the_reflection_count_for_lessons_that_are_known(tmp_path):
    rollouts = (record(0, group="g1", name="q1"), record(1, group="g1", name="q1"))
    judged = tuple(LessonJudgement(name, verdict) for name, verdict in (("a", "misled"), ("gone", "helped")))
    result = await curate(unasked, tmp_path, [group(rollouts, (), judgements=judged)], [lesson("a", CARRY)])
    [only] = result.events
    assert (only.experience_id, only.kind, only.judgement, only.side) == ("a", "judged", "misled", -1)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (op("confirm", targets=["L9"], sources=["P1"]), "confirm: unknown L9"),
        (op("confirm", sources=["P1"]), "confirm: names no lesson"),
        (op("useless", sources=["P9"]), "useless: unknown P9"),
    ],
)
async def test_a_class_that_names_what_is_not_there_is_refused_with_its_reason(tmp_path, bad, reason):
    bad = {**bad, "text": "x"}
    result = await curate(lambda *_: operations(bad), tmp_path, groups(CARRY), [lesson("a", CONVERT)])
    assert dict(result.rejected)["x"] == reason
    assert result.events == ()


async def test_the_same_batch_makes_the_same_events_in_whatever_order_its_groups_come_back(tmp_path):
    answer = operations(op("add", sources=["P1"], text=TEXTS[2]))
    given = groups(CARRY, CONVERT, TEXTS[2], CARRY)
    library = [lesson("a", CARRY), lesson("b", CONVERT, polarity="avoid")]
    one = await curate(lambda *_: answer, tmp_path / "1", given, library)
    other = await curate(lambda *_: answer, tmp_path / "2", given[::-1], library)
    assert [each.event_id for each in one.events] == [each.event_id for each in other.events]
    assert len({each.event_id for each in one.events}) == len(one.events)


async def test_without_a_usable_answer_the_rule_adds_what_is_new_and_it_is_taught(tmp_path):
    result = await curate(lambda *_: "gibberish", tmp_path, groups(CARRY, CONVERT), [lesson("a", CONVERT)])
    assert result.lost == 1
    [made] = result.records
    assert said(result) == {("taught", made.experience_id, None): 1, ("confirmed", "a", None): 1}
    assert append_events(tmp_path / "accounts.jsonl", result.events) == 2
