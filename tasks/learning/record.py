"""Check the evidence of a lesson, and make the stamped record of an accepted change.

A record's identity is a digest of content and origin: the same change of the same run has the same id in every replay,
independent of position and time. The run is part of it, because two runs may delete the same lesson.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tfgrpo.pipelines.settings.learning import LearningSettings
from tfgrpo.prompt_packs.stamps import pack_stamp
from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.experiences.record import ExperienceRecord, Reward, ToolStat, stamp_record
from tfgrpo.stores.usage import add_costs
from tfgrpo.tasks.learning.operations import Change
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.shapes import Proposal, RolloutRecord

_ID_DIGITS = 24


def optimize_experience(lesson: Proposal | ExperienceRecord, policy: LearningSettings) -> str:
    """Return why the evidence of a proposal, or of a record before it is written, is too weak; empty if it suffices.

    ``min_rank`` and ``min_reward`` decide; deletions pass. Only lessons of polarity *do* must exceed the reward: what to
    avoid is also learned from attempts that all failed.
    """
    if isinstance(lesson, Proposal):
        reward, rank = lesson.best_reward, lesson.best_rank
    elif lesson.operation == "delete":
        return ""
    else:
        reward, rank = lesson.reward.gt_score, lesson.reward.relative_rank
    if rank < policy.min_rank:
        return f"best attempt ranks {rank:.3g}, below {policy.min_rank:.3g}"
    if lesson.polarity == "do" and reward <= policy.min_reward:
        return f"best reward {reward:.3g} does not exceed {policy.min_reward:.3g}"
    return ""


def record_of(
    change: Change, text: str, runtime: Runtime, *, epoch: int, batch: int, rollouts: Mapping[str, RolloutRecord]
) -> ExperienceRecord:
    """Return the stamped record of a change whose final wording is ``text``. ``rollouts``: those of the batch by id."""
    context = runtime.context
    manifest = runtime.pack.manifest
    # Under the first learning rules a reversed lesson inherited the evidence of the one it replaced.
    basis = change.basis if context.rules > 1 else change
    evidence = _evidence(basis)
    supersedes = tuple(sorted(record.experience_id for record in change.targets))
    identity = {
        "task": context.settings.task_id,
        "run": context.run_id,
        "epoch": epoch,
        "batch": batch,
        "operation": change.operation,
        "polarity": change.polarity,
        "text": text,
        "supersedes": list(supersedes),
        "evidence": list(evidence),
    }
    record = ExperienceRecord(
        experience_id=f"exp-{sha256_hex(canonical_json(identity))[:_ID_DIGITS]}",
        run_id=context.run_id,
        task_id=context.settings.task_id,
        domain=manifest.domain,
        pack_id=manifest.id,
        tags=manifest.tags,
        epoch=epoch,
        batch=batch,
        group_id=basis.group_ids[0] if basis.group_ids else change.targets[0].group_id,
        operation=change.operation,
        supersedes=supersedes,
        summary32=text,
        polarity=change.polarity,
        reward=_reward(basis),
        tool_stats=_tool_stats(basis, rollouts),
        evidence=evidence,
        stamp_signature="",
        created_at=runtime.clock(),
    )
    return stamp_record(record, pack_stamp(runtime.pack))


def _proposals(change: Change) -> list[Proposal]:
    return [proposal for source in change.sources for proposal in source.sources]


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
    """Summed over the evidence, each rollout once: targets that share rollouts with others add no statistics."""
    names = dict.fromkeys(name for proposal in _proposals(change) for name in proposal.evidence)
    stats = [
        ToolStat(tool=event.tool, tokens=event.tokens, latency_ms=event.latency_ms, cost_usd=event.cost_usd)
        for name in names
        if name in rollouts
        for event in rollouts[name].tools
    ]
    summed = set(names)
    for record in change.targets:
        if summed.isdisjoint(record.evidence):
            stats.extend(record.tool_stats)
            summed.update(record.evidence)
    return sum_by_tool(stats)


def sum_by_tool(stats: Iterable[ToolStat]) -> tuple[ToolStat, ...]:
    """Return one entry per tool, by name; one unknown cost makes the tool's cost unknown."""
    by_tool: dict[str, list[ToolStat]] = {}
    for stat in stats:
        by_tool.setdefault(stat.tool, []).append(stat)
    return tuple(
        ToolStat(
            tool=tool,
            tokens=sum(stat.tokens for stat in of_tool),
            latency_ms=sum(stat.latency_ms for stat in of_tool),
            cost_usd=add_costs(stat.cost_usd for stat in of_tool),
        )
        for tool, of_tool in sorted(by_tool.items())
    )
