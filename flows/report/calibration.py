"""Agreement of the judges of a run with the truth, over all groups, for the manifest and for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfgrpo.flows.report.figures import percent
from tfgrpo.rewarders.scorer import Weighted
from tfgrpo.stores.outcomes import REWARDER_BROKE
from tfgrpo.tasks.shapes import GroupResult, RolloutRecord

if TYPE_CHECKING:
    from tfgrpo.rewarders.judge.calibration import RankCalibration


class CalibrationTally:
    """Adds up what each group shows of each judge. Keeps counts, no scores."""

    def __init__(self, rewarders: Sequence[Weighted]) -> None:
        self._truth: str | None = None
        self._found: dict[str, RankCalibration] = {}
        if any(each.scorer.asks_model for each in rewarders):
            # A run without judges does without their modules.
            from tfgrpo.rewarders.judge.calibration import (  # noqa: PLC0415
                RankCalibration,
                judged_paths,
                true_path,
            )

            self._truth = true_path(rewarders)
            self._found = {path: RankCalibration() for path in judged_paths(rewarders)}

    def add(self, result: GroupResult) -> None:
        """Count a group."""
        if not self._found:
            return
        from tfgrpo.rewarders.judge.calibration import calibrate_group, scores_by_path  # noqa: PLC0415 - as above

        attempts = {
            rollout.rollout_id: scores_by_path(rollout.scores) for rollout in result.rollouts if _was_graded(rollout)
        }
        for path, found in self._found.items():
            self._found[path] = found + calibrate_group(attempts, path, self._truth)

    def as_json(self) -> dict[str, Any] | None:
        """Return the counts and shares by rewarder, and what they were compared with; None without judges."""
        if not self._found:
            return None
        return {"truth": self._truth, "rewarders": {path: found.as_json() for path, found in self._found.items()}}


def told(block: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield each judge with a sentence on how far it can be believed."""
    if block is None:
        return
    for path, found in block["rewarders"].items():
        judged = found["attempts"] - found["abstained"]
        bare = f"judged {judged:,} attempts, and there was nothing to compare that with"
        yield path, "; ".join(_parts(found, block["truth"])) or (bare if judged else "nothing was judged")


def _was_graded(rollout: RolloutRecord) -> bool:
    outcome = rollout.outcome
    return outcome.name == "scored" or (
        outcome.name == "ungraded" and outcome.error_type in {"rewarder", REWARDER_BROKE}
    )


def _parts(found: Mapping[str, Any], truth: str | None) -> Iterator[str]:
    if found["agreement"] is not None:
        tau = "" if found["tau"] is None else f" (tau {found['tau']:.2f})"
        yield f"agrees with {truth} on {percent(found['agreement'], compared_pairs(found))} pairs{tau}"
    if found["swap_consistency"] is not None:
        yield f"{percent(found['swap_consistency'], found['swaps'])} pairs the same in both orders"
    if found["intransitive_share"] is not None:
        yield f"{found['intransitive']:,} of {found['triples']:,} triples not transitive"
    if found["vote_difference"] is not None:
        yield f"two votes differ by {found['vote_difference']:.2f}"
    if found["abstained"]:
        yield f"abstained on {found['abstained']:,} of {found['attempts']:,} attempts"


def compared_pairs(found: Mapping[str, Any]) -> int:
    """Return the number of pairs of attempts that differ in truth."""
    return int(found["concordant"] + found["discordant"] + found["tied_by_judge"])
