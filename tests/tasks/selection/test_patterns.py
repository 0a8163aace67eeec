"""What selections showed of structures is kept, fades and counts for its own field; stages go by rewards."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.runs.selections import past
from tfgrpo.stores.experiences.store import PackStamp
from tfgrpo.stores.files.lines import LineFile
from tfgrpo.tasks.selection.history import (
    BEHAVIOUR,
    VALIDITY,
    MemoryScope,
    Observation,
    PatternMemory,
    decide_stage,
    pattern_stats,
    rank_patterns,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PACK = PackStamp("powl", "ab" * 32, "2026-01-01T12:00:00Z")
SCOPE = MemoryScope("claims", "powl_footprint", simulated=False, pack=PACK)
ROOT = Path(__file__).parents[3]


def memory(tmp_path, scope=SCOPE):
    return PatternMemory(tmp_path / "patterns.jsonl", scope, clock=lambda: NOON)


def seen(structure, reward, text=None):
    return Observation(structure, text or f"SEQUENCE({structure})", reward)


def by_structure(remembered):
    return {pattern.structure: pattern for pattern in remembered.patterns}


# Statistics.


def test_every_observation_counts_and_has_half_its_weight_after_a_half_life():
    observed = [(1, seen("a", 1.0)), (51, seen("a", 0.0)), (51, seen("a", 0.2))]
    assert pattern_stats(observed[:1], 51).weight == pytest.approx(0.5)
    both = pattern_stats(observed[:2], 51)
    assert both.weighted / both.weight == pytest.approx(1 / 3)
    assert (both.count, both.mean) == (2, 0.5)
    more = pattern_stats(observed, 51)
    assert (more.count, more.mean) == (3, pytest.approx(0.4))


def test_a_reward_is_finite():
    for reward in (math.nan, math.inf):
        with pytest.raises(ValueError, match="finite"):
            seen("a", reward)


# The file.


@pytest.mark.parametrize("other", [
    {"domain": "loans"}, {"measure": "judge"}, {"simulated": True}, {"pack": replace(PACK, pack_id="general")},
    {"pack": replace(PACK, stamp="cd" * 32)},  # a new version of the pack
])  # fmt: skip
def test_memories_are_separate_by_domain_measure_model_and_version_of_the_pack(tmp_path, other):
    other = replace(SCOPE, **other)
    memory(tmp_path).observe([seen("a", 0.9)], "s1")
    assert memory(tmp_path, other).read().patterns == ()
    memory(tmp_path, other).observe([seen("b", 0.5)], "s2")
    assert list(by_structure(memory(tmp_path).read())) == ["a"]
    assert memory(tmp_path).read().round == 1


@pytest.mark.parametrize("damage", ["edited", "no object", "not signed"])
def test_a_changed_line_does_not_count(tmp_path, damage):
    memory(tmp_path).observe([seen("a", 0.2)], "s1")
    path = tmp_path / "patterns.jsonl"
    line = path.read_text(encoding="utf-8")
    path.write_text({"edited": line.replace("0.2", "0.9"), "no object": "7\n", "not signed": ""}[damage], encoding="utf-8")
    if damage == "not signed":
        row = json.loads(line)
        LineFile(path).append([{name: row[name] for name in row if name not in {"stamp_signature", "sum"}}])
    assert memory(tmp_path).read().patterns == ()
    memory(tmp_path).observe([seen("b", 0.5)], "s2")
    assert list(by_structure(memory(tmp_path).read())) == ["b"]


def past_round(reward, answered, valid):
    return past("s", reward=reward, answered=answered, valid=valid)


def good(count, reward=0.9):
    return [past_round(reward, 4, 4)] * count


def stage(history, *, reference=True, **more):
    return decide_stage(history, reference=reference, **more).stage


@pytest.mark.parametrize(("history", "wanted"), [
    (good(0), VALIDITY), (good(9), VALIDITY), (good(10, 0.8), VALIDITY), ([*good(10, 0.1), *good(10)], VALIDITY),
    ([*good(9), past_round(0.5, 4, 4), *good(9)], VALIDITY), ([*good(9), past_round(None, 0, 0), *good(1)], VALIDITY),
    ([*good(1, 0.1), *good(20, 0.95)], BEHAVIOUR), ([past_round(0.9, 20, 19)] * 10, VALIDITY),
    ([past_round(0.9, 100, 96)] * 10, BEHAVIOUR), ([*good(10), *good(40, 0.75)], BEHAVIOUR),
    ([*good(10), *good(9, 0.0)], BEHAVIOUR), ([*good(10), *[past_round(None, 0, 0)] * 20], BEHAVIOUR),
])  # fmt: skip
def test_the_stage_follows_from_the_history(history, wanted):
    assert stage(history) == wanted


def test_without_a_task_or_asked_for_behaviour_is_at_once_rewarded_and_validity_stays():
    assert stage(None) == stage([], choice=BEHAVIOUR) == BEHAVIOUR
    assert stage(None, reference=False) == stage([], choice=BEHAVIOUR, reference=False) == VALIDITY
    assert stage(good(50), choice=VALIDITY) == VALIDITY


HIGH = "10 rounds in a row were above 0.8, with 100% usable answers"


@pytest.mark.parametrize(("history", "reference", "wanted", "why"), [
    (good(10), True, BEHAVIOUR, HIGH), (good(10), False, VALIDITY, f"there is no reference, although {HIGH}"),
    ([*good(10), *good(10, 0.65)], True, VALIDITY, "the mean reward of the last 10 rounds fell to 0.65"),
    ([*good(10), *[past_round(0.9, 4, 3)] * 10], True, VALIDITY,
     "the share of usable answers of the last 10 rounds fell to 75%"),
])  # fmt: skip
def test_a_stage_is_left_after_high_rounds_or_a_fall_and_behaviour_is_never_rewarded_without_a_reference(
    history, reference, wanted, why
):
    decision = decide_stage(history, reference=reference)
    assert (decision.stage, decision.why) == (wanted, why)
    assert stage(history, reference=False, choice=BEHAVIOUR) == VALIDITY


def test_structures_are_split_at_the_mean_and_one_lucky_draw_does_not_lead():
    steady = pattern_stats([(number, seen("steady", 0.95)) for number in range(1, 9)], 8)
    others = (pattern_stats([(at, seen(name, reward))], 8) for name, reward, at in (("lucky", 1.0, 3), ("bad", 0.1, 8)))
    ranked = rank_patterns([steady, *others])
    names = [[each.structure for each in order] for order in (ranked.good, ranked.bad, ranked.tried)]
    assert names == [["steady", "lucky"], ["bad"], ["steady", "bad", "lucky"]]


WRITES = """if True:
    import sys
    from pathlib import Path
    from tfgrpo.stores.experiences.store import PackStamp
    from tfgrpo.tasks.selection.history import MemoryScope, Observation, PatternMemory
    pack = PackStamp("powl", "ab" * 32, "2026-01-01T12:00:00Z")
    scope = MemoryScope("claims", "powl_footprint", simulated=False, pack=pack)
    for number in range(8):
        found = [Observation(name, f"SEQUENCE({name})", 0.5) for name in ("a", sys.argv[2])]
        PatternMemory(Path(sys.argv[1]), scope).observe(found, f"{sys.argv[2]}{number}")
"""


def test_processes_lose_no_observations_of_each_other(tmp_path):
    command = [sys.executable, "-c", WRITES, str(tmp_path / "patterns.jsonl")]
    writers = [subprocess.Popen([*command, name], cwd=ROOT) for name in "xy"]
    assert [writer.wait() for writer in writers] == [0, 0]
    read = memory(tmp_path).read()
    assert (read.round, {name: each.count for name, each in by_structure(read).items()}) == (16, {"a": 16, "x": 8, "y": 8})
