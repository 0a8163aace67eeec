"""What record does an accepted change become? With evidence, rewards and tool use, an identity, and the pack's stamp.

The identity is a digest of content and origin: the same change of the same run has the same id in every replay, and no
position or clock enters it. The run does: two runs that delete one lesson rest on nothing else that tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfgrpo.prompt_packs.stamps import pack_stamp
from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.experiences.record import ExperienceRecord, Reward, ToolStat
from tfgrpo.stores.experiences.signing import stamp_record
from tfgrpo.tasks.learning.operations import Change
from tfgrpo.tasks.runtime.context import RunContext
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.runtime.tool_metrics import add_stats, sum_by_tool
from tfgrpo.tasks.shapes import Proposal, RolloutRecord

_ID_DIGITS = 24


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the changes of one curation come from."""

    epoch: int
    batch: int
    rollouts: Mapping[str, RolloutRecord]
    """Rollouts of the batch by id."""


def record_of(change: Change, text: str, origin: Origin, runtime: Runtime) -> ExperienceRecord:
    """The stamped record of a change whose final wording is ``text``."""
    context = runtime.context
    manifest = runtime.pack.manifest
    # Under the first rules of learning a change of direction inherited what it replaced.
    basis = change.basis if context.rules > 1 else change
    evidence = _evidence(basis)
    supersedes = tuple(sorted(record.experience_id for record in change.targets))
    record = ExperienceRecord(
        experience_id=_identity(context, change, text, origin, supersedes, evidence),
        run_id=context.run_id,
        task_id=context.settings.task_id,
        domain=manifest.domain,
        pack_id=manifest.id,
        tags=manifest.tags,
        epoch=origin.epoch,
        batch=origin.batch,
        group_id=basis.group_ids[0] if basis.group_ids else change.targets[0].group_id,
        operation=change.operation,
        supersedes=supersedes,
        summary32=text,
        polarity=change.polarity,
        reward=_reward(basis),
        tool_stats=_tool_stats(basis, origin.rollouts),
        evidence=evidence,
        stamp_signature="",
        created_at=runtime.clock(),
    )
    return stamp_record(record, pack_stamp(runtime.pack))


def _identity(
    context: RunContext, change: Change, text: str, origin: Origin, supersedes: Sequence[str], evidence: Sequence[str]
) -> str:
    content = {
        "task": context.settings.task_id,
        "run": context.run_id,
        "epoch": origin.epoch,
        "batch": origin.batch,
        "operation": change.operation,
        "polarity": change.polarity,
        "text": text,
        "supersedes": list(supersedes),
        "evidence": list(evidence),
    }
    return f"exp-{sha256_hex(canonical_json(content))[:_ID_DIGITS]}"


def _proposals(change: Change) -> tuple[Proposal, ...]:
    return tuple(proposal for source in change.sources for proposal in source.sources)


def _evidence(change: Change) -> tuple[str, ...]:
    """Rollouts of this batch, then those of the targets: a lesson that is rewritten keeps its support."""
    fresh = [name for proposal in _proposals(change) for name in proposal.evidence]
    kept = [name for record in change.targets for name in record.evidence]
    return tuple(dict.fromkeys(fresh + kept))


def _reward(change: Change) -> Reward:
    """Of the best attempt that the change rests on."""
    known = [(proposal.best_reward, proposal.best_rank) for proposal in _proposals(change)]
    known += [(record.reward.gt_score, record.reward.relative_rank) for record in change.targets]
    score, rank = max(known)
    return Reward(gt_score=score, relative_rank=rank)


def _tool_stats(change: Change, rollouts: Mapping[str, RolloutRecord]) -> tuple[ToolStat, ...]:
    """Summed over the evidence. Targets that share rollouts with what is already counted add nothing."""
    names = list(dict.fromkeys(name for proposal in _proposals(change) for name in proposal.evidence))
    stats = list(sum_by_tool(event for name in names if name in rollouts for event in rollouts[name].tools))
    counted = set(names)
    for record in change.targets:
        if counted.isdisjoint(record.evidence):
            stats.extend(record.tool_stats)
            counted.update(record.evidence)
    return add_stats(stats)
