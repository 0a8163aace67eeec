"""Check process models: errors and warnings, each with a JSON pointer.

A ``Model`` is well-formed already: its LOOPs have two children, its orders are acyclic, its labels are not blank, and it
is neither too deep nor too large.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from tfgrpo.rewarders.powl.model import Activity, Model, Operator, Site, labels_of, sites

Severity: TypeAlias = Literal["error", "warning"]
_Doubt: TypeAlias = tuple[Severity, str, str]  # with code and message


class Finding(NamedTuple):
    """An error, which makes a model invalid, or a warning."""

    code: str
    message: str
    pointer: str
    """JSON pointer of the node in the model's JSON."""
    node_id: str
    severity: Severity

    def __str__(self) -> str:
        return f"{self.severity} at {self.pointer or 'the root'}: {self.message}"


@dataclass(frozen=True, slots=True)
class Validation:
    """All findings, from the root down."""

    findings: tuple[Finding, ...]

    @property
    def valid(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that make the model invalid."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Findings that are suspicious but allowed."""
        return tuple(finding for finding in self.findings if finding.severity == "warning")


def validate(model: Model, *, allowed_labels: Collection[str] | None = None) -> Validation:
    """Return all errors and warnings of a model.

    Errors: the id of an ancestor; no activity; a label that is not in ``allowed_labels``. Warnings: a repeated id; a label
    that is repeated, or differs from another only in case and white space; an operator around a single child; a
    PARTIAL_ORDER of several children without pairs.
    """
    every = [*sites(model)]
    ids, labels = Counter(site.id for site in every), Counter(labels_of(model))
    allowed = None if allowed_labels is None else frozenset(allowed_labels)
    spellings: dict[str, list[str]] = {}
    for label in sorted(labels):
        spellings.setdefault(" ".join(label.split()).casefold(), []).append(label)
    alike = {label: group for group in spellings.values() for label in group}

    def doubts(site: Site) -> Iterator[_Doubt]:
        yield from _doubts_of_place(site, ids[site.id])
        if isinstance(site.node, Activity):
            label = site.node.label
            if allowed is not None and label not in allowed:
                yield "error", "label-not-allowed", f"{label!r} is none of the {len(allowed)} allowed labels"
            if labels[label] > 1:
                yield "warning", "repeated-label", f"{label!r} is there {labels[label]} times"
            if len(alike[label]) > 1:
                other = alike[label][alike[label][0] == label]
                yield "warning", "similar-label", f"{label!r} is another activity than {other!r}"

    findings = [
        Finding(code, message, site.pointer, site.id, severity)
        for site in every
        for severity, code, message in doubts(site)
    ]
    if not labels:
        reason = "the model has no activity, only silent steps"
        findings.insert(0, Finding("no-activity", reason, "", every[0].id, "error"))
    return Validation(tuple(findings))


def _doubts_of_place(site: Site, count: int) -> Iterator[_Doubt]:
    node = site.node
    if site.id in site.above:
        yield "error", "ancestor-id", f"a node above has the id {site.id!r} too"
    elif count > 1:
        yield "warning", "repeated-id", f"the id {site.id!r} is given {count} times"
    if isinstance(node, Operator) and len(node.children) == 1:
        yield "warning", "single-child", f"{node.kind} around a single child does nothing"
    elif isinstance(node, Operator) and node.kind == "PARTIAL_ORDER" and not node.order:
        yield "warning", "nothing-ordered", "PARTIAL_ORDER orders nothing: that is PARALLEL"
