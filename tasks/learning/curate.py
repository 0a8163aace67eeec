"""Curate one batch: merge its proposals, decide on each, return records and events of accounts.

Records and events are written by the caller.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfgrpo.pipelines.settings.learning import MAX_PROPOSALS, LearningSettings
from tfgrpo.tasks.learning.curation import Curation, CurationInput, CurationResult
from tfgrpo.tasks.learning.operations import RejectedLesson, optimize_experience
from tfgrpo.tasks.learning.signed import SignedCuration
from tfgrpo.tasks.learning.similarity import Candidate, merge_proposals
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.shapes import Proposal


async def curate_batch(batch: CurationInput, runtime: Runtime) -> CurationResult:
    """Decide on the proposals of a batch. Only cancellation is raised; see ``spend`` of the result."""
    settings = runtime.context.settings.tfgrpo
    proposals = [proposal for group in batch.groups for proposal in group.proposals]
    candidates, rejected = _eligible(proposals, settings)
    curation = (Curation if runtime.context.rules < 4 else SignedCuration)(batch, candidates, runtime)
    await curation.decide()
    return curation.result(rejected)


def _eligible(
    proposals: Sequence[Proposal], settings: LearningSettings
) -> tuple[tuple[Candidate, ...], list[RejectedLesson]]:
    """Candidates above the thresholds, best supported first, and the rejected rest."""
    checks = [(proposal, optimize_experience(proposal, settings)) for proposal in proposals]
    below = [weak for _, weak in checks if weak is not None]
    below.sort(key=lambda each: (each.text, each.reason, each.polarity))
    candidates = merge_proposals(proposal for proposal, weak in checks if weak is None)
    reason = f"not among the {MAX_PROPOSALS} best supported"
    crowded_out = [RejectedLesson(each.text, reason, each.polarity) for each in candidates[MAX_PROPOSALS:]]
    return candidates[:MAX_PROPOSALS], below + crowded_out
