"""Texts of users' code are recorded without the API key and without lone surrogates."""

from __future__ import annotations

from tfgrpo.rewarders.base import Abstained
from tfgrpo.rewarders.scoring import GroupScores
from tfgrpo.stores.frozen_json import FrozenDict, frozen
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.stores.text import replace_surrogates
from tfgrpo.tasks.models.endpoint import ApiKey, scrubbed, scrubber
from tfgrpo.tasks.shapes import Frame, Trajectory

KEY = "sk-test-0123456789abcdef"
SCRUB = scrubber(ApiKey(KEY))


def test_the_key_is_removed_from_every_text_of_a_rewarder() -> None:
    details = frozen({"votes": [{"raw": f"{KEY}!"}], "mean": 0.5})
    scores = GroupScores(
        verdicts=((RewardScore("r", 0.5, f"saw {KEY}", details), Abstained("s", f"no {KEY}")),),
        totals={"a": 0.5},
        faults={"s": f"broke at {KEY}"},
        timed_out=f"late {KEY}",
    )
    kept = scrubbed(scores, SCRUB)
    assert KEY not in repr(kept)
    score, silent = kept.verdicts[0]
    assert score == RewardScore("r", 0.5, "saw ***", FrozenDict({"votes": (FrozenDict({"raw": "***!"}),), "mean": 0.5}))
    assert silent == Abstained("s", "no ***")
    assert (kept.totals, kept.faults, kept.timed_out) == ({"a": 0.5}, {"s": "broke at ***"}, "late ***")


def test_texts_without_the_key_are_unchanged() -> None:
    details = frozen({"votes": [1, 2]})
    scores = GroupScores(((RewardScore("r", 0.5, "7 = 7", details),),), {"a": 0.5}, {}, None)
    assert scrubbed(scores, SCRUB) == scores
    trajectory = Trajectory("7 é", (Frame("model", "m", "x", 1, None, 1.0),))
    assert scrubbed(trajectory, SCRUB) == trajectory


def test_lone_surrogates_are_replaced_in_every_text() -> None:
    half = "a\ud83db"
    assert replace_surrogates(half) == "a?b"
    kept = scrubbed(Trajectory(half, (Frame("tool", half, half, 1, None, 1.0, half),)), scrubber())
    assert kept == Trajectory("a?b", (Frame("tool", "a?b", "a?b", 1, None, 1.0, "a?b"),))
