"""Remove the API key, and what no file can store, from texts of the user's agents, tools and rewarders.

Applied where such texts come in, before they are journalled, recorded or shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from tfgrpo.rewarders.base import Abstained, Verdict
from tfgrpo.rewarders.scoring import GroupScores
from tfgrpo.stores.frozen_json import FrozenDict, frozen
from tfgrpo.stores.text import replace_surrogates
from tfgrpo.tasks.models.endpoint import ApiKey
from tfgrpo.tasks.shapes import Frame, Trajectory

Scrub: TypeAlias = Callable[[str], str]


def scrubber(key: ApiKey | None) -> Scrub:
    """Return the function that removes this key and lone surrogates from a text."""
    return replace_surrogates if key is None else lambda text: replace_surrogates(key.scrub(text))


def scrubbed_trajectory(trajectory: Trajectory, scrub: Scrub) -> Trajectory:
    """Return a trajectory as it may be journalled."""
    return replace(
        trajectory, output=scrub(trajectory.output), frames=tuple(_frame(frame, scrub) for frame in trajectory.frames)
    )


def scrubbed_scores(scores: GroupScores, scrub: Scrub) -> GroupScores:
    """Return scores as they may be recorded."""
    return replace(
        scores,
        verdicts=tuple(tuple(_verdict(verdict, scrub) for verdict in each) for each in scores.verdicts),
        faults={name: scrub(reason) for name, reason in scores.faults.items()},
        timed_out=None if scores.timed_out is None else scrub(scores.timed_out),
    )


def _frame(frame: Frame, scrub: Scrub) -> Frame:
    error = None if frame.error is None else scrub(frame.error)
    return replace(frame, name=scrub(frame.name), text=scrub(frame.text), error=error)


def _verdict(verdict: Verdict, scrub: Scrub) -> Verdict:
    if isinstance(verdict, Abstained):
        return replace(verdict, reason=scrub(verdict.reason))
    return replace(verdict, evidence=scrub(verdict.evidence), details=_details(verdict.details, scrub))


def _details(details: FrozenDict | None, scrub: Scrub) -> FrozenDict | None:
    if details is None:
        return None
    text = json.dumps(details, ensure_ascii=False)
    kept = scrub(text)
    return details if kept == text else frozen(json.loads(kept))
