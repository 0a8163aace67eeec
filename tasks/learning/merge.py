"""Which proposals of a batch say the same thing? Merged locally and counted, before any model is asked.

The result does not depend on the order in which groups came back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tfgrpo.stores.experiences.record import Polarity
from tfgrpo.tasks.learning.similarity import alike, gist_of
from tfgrpo.tasks.shapes import Proposal


@dataclass(frozen=True, slots=True)
class Candidate:
    """One lesson as several groups proposed it, in the words of the group with the widest spread."""

    sources: tuple[Proposal, ...]

    @property
    def text(self) -> str:
        """Its wording."""
        return self.sources[0].text

    @property
    def polarity(self) -> Polarity:
        """What all its sources say: do, or avoid."""
        return self.sources[0].polarity

    @property
    def support(self) -> int:
        """How many groups said it."""
        return len(self.group_ids)

    @property
    def group_ids(self) -> tuple[str, ...]:
        """The groups that said it, the one with the widest spread first."""
        return tuple(dict.fromkeys(proposal.group_id for proposal in self.sources))

    @property
    def best(self) -> Proposal:
        """The source with the best attempt."""
        return max(self.sources, key=lambda proposal: (proposal.best_reward, proposal.best_rank))


def merge_proposals(proposals: Iterable[Proposal]) -> tuple[Candidate, ...]:
    """Candidates, best supported first. A proposal joins the first one of its polarity whose wording it is like."""
    clusters: list[list[Proposal]] = []
    for proposal in sorted(proposals, key=_order):
        gist = gist_of(proposal.text)
        for cluster in clusters:
            if cluster[0].polarity == proposal.polarity and alike(gist_of(cluster[0].text), gist):
                cluster.append(proposal)
                break
        else:
            clusters.append([proposal])
    candidates = (Candidate(tuple(cluster)) for cluster in clusters)
    return tuple(sorted(candidates, key=lambda candidate: (-candidate.support, -candidate.best.best_reward)))


def _order(proposal: Proposal) -> tuple[float, str, str, str, str]:
    return (-proposal.spread, proposal.item_id, proposal.group_id, proposal.polarity, proposal.text)
