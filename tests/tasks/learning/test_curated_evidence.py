"""What a curated lesson rests on: its identity, support, polarity, reward and tool use. Learning rules 1 to 3."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.agents.curating import TEXTS, curate, groups, lesson, op, operations, reasons
from tests.support.agents.steps import ScriptedModel, group, proposal, record, runtime
from tfgrpo.prompt_packs.stamps import pack_stamp
from tfgrpo.stores.experiences.record import Reward, ToolStat, support_of
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.tasks.learning.curate import curate_batch
from tfgrpo.tasks.learning.curation import CurationInput
from tfgrpo.tasks.shapes import ToolMetricEvent


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


@pytest.mark.parametrize(("fresh", "kept"), [(0.75, 0.75), (0.25, 0.5)])
async def test_a_rewritten_lesson_has_the_best_reward_of_its_sources(tmp_path, fresh, kept):
    answer = operations(op("modify", targets=["L1"], sources=["P1"], text="Carry tens first."))
    library = [lesson("e1", TEXTS[0], reward=Reward(gt_score=0.5, relative_rank=1.0))]
    result = await curate(lambda *_: answer, tmp_path, groups(TEXTS[1], best_reward=fresh), library)
    [made] = result.records
    assert made.reward.gt_score == kept


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
