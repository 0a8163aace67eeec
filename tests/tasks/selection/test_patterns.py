"""What selections showed of structures is kept, fades and counts for its own field; stages go by rewards."""

import json
import math
import statistics
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs.selections import past
from tests.support.vectors import VECTORS
from tfgrpo.stores.experiences.store import PackStamp
from tfgrpo.stores.files.lines import LineFile
from tfgrpo.stores.numeric import two_decimals
from tfgrpo.tasks.selection.history import (
    BEHAVIOUR,
    MAX_TEXT_CHARS,
    VALIDITY,
    MemoryScope,
    Observation,
    PatternMemory,
    Remembered,
    decide_stage,
    rank_patterns,
    record_round,
    recorded_rounds,
    with_observation,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PACK = PackStamp("powl", "ab" * 32, "2026-01-01T12:00:00Z")
SCOPE = MemoryScope("claims", "powl_footprint", simulated=False, pack=PACK)
ROOT = Path(__file__).parents[3]
CASES = [json.loads(line) for line in (VECTORS / "pattern_memory.jsonl").read_text(encoding="utf-8").splitlines()]


def memory(tmp_path, scope=SCOPE):
    return PatternMemory(tmp_path / "patterns.jsonl", scope, clock=lambda: NOON)


def seen(structure, reward, label=None, text=None):
    return Observation(structure, label or structure.upper(), text or f"SEQUENCE({structure})", reward)


def by_structure(remembered):
    return {pattern.structure: pattern for pattern in remembered.patterns}


# Statistics.


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30))
def test_every_observation_counts(rewards):
    pattern = None
    for place, reward in enumerate(rewards, 1):
        pattern = with_observation(pattern, seen("a", reward), place)
    assert pattern is not None
    assert pattern.count == len(rewards)
    assert pattern.mean == pytest.approx(statistics.fmean(rewards), abs=1e-9)


def test_an_observation_has_half_its_weight_after_a_half_life():
    old = with_observation(None, seen("a", 1.0), 1)
    assert old.faded(51).weight == pytest.approx(0.5)
    both = with_observation(old, seen("a", 0.0), 51)
    assert both.weighted / both.weight == pytest.approx(1 / 3)
    assert both.mean == 0.5


def test_a_reward_is_finite():
    for reward in (math.nan, math.inf):
        with pytest.raises(ValueError, match="finite"):
            seen("a", reward)


def test_structures_are_split_at_the_mean_and_one_lucky_draw_does_not_lead():
    patterns = [with_observation(None, seen("lucky", 1.0), 3)]
    steady = None
    for number in range(1, 9):
        steady = with_observation(steady, seen("steady", 0.95), number)
    patterns += [steady, with_observation(None, seen("bad", 0.1), 8)]
    ranked = rank_patterns(patterns, 8)
    assert [each.structure for each in ranked.good] == ["steady", "lucky"]
    assert [each.structure for each in ranked.bad] == ["bad"]
    assert [each.structure for each in ranked.tried] == ["steady", "bad", "lucky"]


# The file.


def test_rounds_round_trip(tmp_path):
    memory(tmp_path / "none").observe([], "s1")
    assert memory(tmp_path / "none").read() == Remembered()
    assert list(tmp_path.iterdir()) == []
    memory(tmp_path).observe([seen("a", 0.9), seen("b", 0.2)], "s1")
    memory(tmp_path).observe([seen("a", 0.1)], "s2")
    read = memory(tmp_path).read()
    assert read.round == 2
    assert [(each.structure, each.count, each.mean) for each in read.patterns] == [("a", 2, 0.5), ("b", 1, 0.2)]
    assert (tmp_path / "patterns.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "other",
    [
        replace(SCOPE, domain="loans"),
        replace(SCOPE, measure="judge"),
        replace(SCOPE, simulated=True),
        replace(SCOPE, pack=PackStamp("general", "cd" * 32, "2026-01-01T12:00:00Z")),
    ],
)
def test_memories_are_separate_by_domain_measure_model_and_pack(tmp_path, other):
    memory(tmp_path).observe([seen("a", 0.9)], "s1")
    assert memory(tmp_path, other).read().patterns == ()
    memory(tmp_path, other).observe([seen("b", 0.5)], "s2")
    assert list(by_structure(memory(tmp_path).read())) == ["a"]
    assert memory(tmp_path).read().round == 1


def test_a_new_version_of_the_pack_retires_what_was_seen_under_the_old_one(tmp_path):
    memory(tmp_path).observe([seen("a", 0.9)], "s1")
    edited = replace(SCOPE, pack=replace(PACK, stamp="cd" * 32))
    assert memory(tmp_path, edited).read().patterns == ()


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


def test_the_least_and_longest_ago_seen_are_dropped_first(tmp_path, monkeypatch):
    monkeypatch.setattr("tfgrpo.tasks.selection.history.MAX_PATTERNS", 2)
    kept = memory(tmp_path)
    kept.observe([seen("a", 0.9), seen("a", 0.9)], "s1")
    kept.observe([seen("b", 0.9)], "s2")
    kept.observe([seen("c", 0.9)], "s3")
    assert list(by_structure(kept.read())) == ["a", "c"]


def test_an_over_long_structure_is_not_remembered(tmp_path):
    memory(tmp_path).observe([seen("a", 0.9, text="x" * (MAX_TEXT_CHARS + 1)), seen("b", 0.1)], "s1")
    assert list(by_structure(memory(tmp_path).read())) == ["b"]


WRITES = """if True:
    import sys
    from pathlib import Path
    from tfgrpo.stores.experiences.store import PackStamp
    from tfgrpo.tasks.selection.history import MemoryScope, Observation, PatternMemory
    pack = PackStamp("powl", "ab" * 32, "2026-01-01T12:00:00Z")
    scope = MemoryScope("claims", "powl_footprint", simulated=False, pack=pack)
    for number in range(20):
        found = [Observation(name, name.upper(), f"SEQUENCE({name})", 0.5) for name in ("a", sys.argv[2])]
        PatternMemory(Path(sys.argv[1]), scope).observe(found, f"{sys.argv[2]}{number}")
"""


def test_processes_lose_no_observations_of_each_other(tmp_path):
    command = [sys.executable, "-c", WRITES, str(tmp_path / "patterns.jsonl")]
    writers = [subprocess.Popen([*command, name], cwd=ROOT) for name in "xy"]
    assert [writer.wait() for writer in writers] == [0, 0]
    read = memory(tmp_path).read()
    assert (read.round, {name: each.count for name, each in by_structure(read).items()}) == (40, {"a": 40, "x": 20, "y": 20})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_keys_of_labels_are_those_of_earlier_systems(case):
    from tfgrpo.rewarders.powl import label_fingerprint, parse_json  # noqa: PLC0415 - a higher floor, for the keys alone

    labels = set()
    for candidates, after in zip(case["rounds"], case["after_each_round"], strict=True):
        good = [each for each in candidates if float(each["reward"]) >= 0.5]
        labels |= {label_fingerprint(parse_json(each["model_json"])) for each in good}
        assert labels == {each["fingerprint"] for each in after["patterns"]}


@pytest.mark.parametrize(
    ("value", "shown"), [(0.575, "0.58"), (0.125, "0.13"), (1.0, "1.00"), (math.inf, "Infinity"), (0.994999, "0.99")]
)
def test_halves_are_rounded_up_as_the_digits_say(value, shown):
    assert two_decimals(value) == shown


def past_round(reward, answered, valid):
    return past("s", reward=reward, answered=answered, valid=valid)


def good(count, reward=0.9):
    return [past_round(reward, 4, 4)] * count


def stage(history, *, reference=True, **more):
    return decide_stage(history, reference=reference, **more).stage


@pytest.mark.parametrize(
    ("history", "wanted"),
    [
        (good(0), VALIDITY),
        (good(9), VALIDITY),
        ([*good(9), past_round(0.5, 4, 4), *good(9)], VALIDITY),
        ([*good(9), past_round(None, 0, 0), *good(1)], VALIDITY),
        (good(10, 0.8), VALIDITY),
        ([*good(10, 0.1), *good(10)], VALIDITY),
        ([*good(1, 0.1), *good(20, 0.95)], BEHAVIOUR),
        ([past_round(0.9, 20, 19)] * 10, VALIDITY),
        ([past_round(0.9, 100, 96)] * 10, BEHAVIOUR),
        ([*good(10), *good(40, 0.75)], BEHAVIOUR),
        ([*good(10), *good(9, 0.0)], BEHAVIOUR),
        ([*good(10), *[past_round(None, 0, 0)] * 20], BEHAVIOUR),
    ],
)
def test_the_stage_follows_from_the_history(history, wanted):
    assert stage(history) == wanted


def test_without_a_task_or_asked_for_behaviour_is_at_once_rewarded_and_validity_stays():
    assert stage(None) == stage([], asked=BEHAVIOUR) == BEHAVIOUR
    assert stage(None, reference=False) == stage([], asked=BEHAVIOUR, reference=False) == VALIDITY
    assert stage(good(50), asked=VALIDITY) == VALIDITY


def test_ten_high_rounds_in_a_row_move_on_and_nine_do_not():
    assert stage(good(9)) == VALIDITY
    decision = decide_stage(good(10), reference=True)
    assert decision.stage == BEHAVIOUR
    assert decision.why == "10 rounds in a row were above 0.8, with 100% usable answers"


@given(st.lists(st.builds(past_round, st.none() | st.floats(0, 1), st.just(4), st.integers(0, 4)), max_size=60))
def test_behaviour_is_never_rewarded_without_a_reference(history):
    for asked in ("auto", BEHAVIOUR, VALIDITY):
        assert stage(history, reference=False, asked=asked) == VALIDITY


def test_it_falls_back_when_rewards_or_usable_answers_do():
    decision = decide_stage([*good(10), *good(10, 0.65)], reference=True)
    assert (decision.stage, "fell to 0.65" in decision.why) == (VALIDITY, True)
    decision = decide_stage([*good(10), *[past_round(0.9, 4, 3)] * 10], reference=True)
    assert (decision.stage, "usable answers" in decision.why) == (VALIDITY, True)


def test_the_reference_decides_last():
    decision = decide_stage(good(10), reference=False)
    assert decision.stage == VALIDITY
    assert decision.why.startswith("there is no reference, although ")


def test_rounds_are_read_in_order_and_by_kind_of_model(tmp_path):
    path = tmp_path / "selections.jsonl"
    rounds = [past("a"), past("b", simulated=False), past("c", chosen=None, reward=None, cost_usd=None)]
    assert [record_round(path, each) for each in (*rounds, rounds[0])] == [True, True, True, False]
    assert list(recorded_rounds(path, simulated=True)) == [rounds[0], rounds[2]]
    assert list(recorded_rounds(path, simulated=False)) == [rounds[1]]
    assert path.stat().st_mode & 0o777 == 0o600
