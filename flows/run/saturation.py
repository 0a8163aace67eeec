"""Tell that a library is saturated: several nights have left it as it was, and nothing speaks for a change.

The night after such a night takes half of the items.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

from tfgrpo.flows.console.figures import plus_unknown
from tfgrpo.pipelines.plan.plan import load_pack
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.rewarders.statistics.sequential import Capital
from tfgrpo.rewarders.statistics.summary import mean_and_error
from tfgrpo.stores.errors import ConfigError, StoreError
from tfgrpo.stores.experiences.library import Promotion, nights_unchanged, promotions
from tfgrpo.stores.files.atomic import read_rows
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.ledger.state import Totals
from tfgrpo.stores.runs.manifest import ManifestFile, expected_shape

if TYPE_CHECKING:
    from tfgrpo.flows.run.loop.session import Session

_NIGHTS: Final = 3


def saturation(session: Session, totals: Totals) -> dict[str, Any] | None:
    """Return nights without a change, calls of this night and a sentence about them; None for a library that may change.

    A candidate that is kept because the evidence so far speaks for it, and is not proven, is such a change, and so is a
    lower success than in the nights before.
    """
    if session.books.gate is None:
        return None
    decisions, nights = _unchanged(session.task, simulated=session.plan.simulated)
    if nights < _NIGHTS:
        return None
    last = decisions[-1]
    confidence = session.settings.gate.confidence
    evidence = Capital(last.capital) if last.decision == "undecided" and last.capital else Capital()
    if evidence.log_value > 0.0 and not evidence.reaches(confidence):
        return None
    before = [session.task.run(one.run_id) for one in decisions[-nights:-1][-_NIGHTS:]]
    if _lower(session.task.run(last.run_id), before, confidence):
        return None
    calls = plus_unknown(f"{totals.calls:,}", totals)
    then = "" if session.settings.tfgrpo.half_night is False else "; the next one takes half of the items"
    return {
        "nights": nights,
        "calls": None if totals.unmeasured_attempts else totals.calls,
        "explanation": f"saturated: the library has not changed in {nights} nights; a night like this one takes {calls} "
        f"calls, which a pause would save{then}",
    }


def saturated_before(settings: Settings) -> bool:
    """Return whether the last night of the task found its library saturated, and nothing has changed since.

    It is another library for another model or another version of the pack. What cannot be read is no saturation.
    """
    # A damaged file or no pack: the plan reports it, whatever this night takes.
    with suppress(ConfigError, StoreError, OSError):
        models, task = choose_models(settings), TaskPaths.of(settings.out, settings.task_id)
        decisions, nights = _unchanged(task, simulated=models.simulated)
        last = ManifestFile(task.run(decisions[-1].run_id).manifest).read() if nights >= _NIGHTS else {}
        if last.get("saturated"):  # no manifest from before there was such a field has it
            with expected_shape(task.root):
                before = last["model"], last["pack"]["stamp"]
            return before == (models.name, load_pack(settings, settings.pack).manifest.stamp)
    return False


def _unchanged(task: TaskPaths, *, simulated: bool) -> tuple[list[Promotion], int]:
    """Return the decisions about one kind of model, and how many of the last left the library as it was."""
    decisions = [one for one in promotions(task.promotions) if one.simulated == simulated]
    return decisions, nights_unchanged(decisions)


def _lower(run: RunPaths, before: Sequence[RunPaths], confidence: float) -> bool:
    """Return whether lessons gained less in a run than in those before it, beyond chance; without a half of none, rewards.

    One-sided test of two means of groups with unequal variances (Welch 1947), by the normal distribution.
    """
    now, then = _means([run]), _means(before)
    if min(len(now), len(then)) < 2:
        return False
    one, other = mean_and_error(now), mean_and_error(then)
    error = math.hypot(one.se or 0.0, other.se or 0.0)
    return one.mean + NormalDist().inv_cdf(confidence) * error < other.mean


def _means(runs: Sequence[RunPaths]) -> list[float]:
    rows = (row for run in runs for row in read_rows(run.groups) if row.get("phase") == "train")
    return [reward for reward in map(_reward, rows) if reward is not None]


def _reward(row: Mapping[str, Any]) -> float | None:
    """Return the mean reward of a group; of one that ran half without lessons the difference, which items do not change."""
    without, *rest = row.get("halves") or [{}]
    if not rest or without["arm"] != "baseline":
        mean: float | None = row.get("mean_reward")
        return mean
    means = [half["mean_reward"] for half in (without, *rest)]
    return None if None in means else means[1] - means[0]
