"""Check process models: errors and warnings, each with a JSON pointer.

A ``Model`` is well-formed already: its LOOPs have two children, its orders are
acyclic, its labels are not blank, and it is neither too deep nor too large.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from tfgrpo.rewarders.powl.model import Activity, Model, Operator, Site, sites

Code: TypeAlias = Literal[
    "ancestor-id", "repeated-id", "label-not-allowed", "no-activity", "repeated-label",
    "similar-label", "single-child", "nothing-ordered",
]  # fmt: skip
ERRORS: Final = frozenset({"ancestor-id", "label-not-allowed", "no-activity"})
"""Codes that make a model invalid; the others are warnings."""
_Doubt: TypeAlias = tuple[Code, str]
"""Code and message of a finding."""


class Finding(NamedTuple):
    """One error or warning."""

    code: Code
    message: str
    pointer: str
    """JSON pointer of the node in the model's JSON."""
    node_id: str

    @property
    def severity(self) -> Literal["error", "warning"]:
        """``error`` (invalid) or ``warning``."""
        return "error" if self.code in ERRORS else "warning"

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
    every = list(sites(model))
    labels = Counter(site.node.label for site in every if isinstance(site.node, Activity))
    findings = []
    if not labels:
        findings.append(Finding("no-activity", "the model has no activity, only silent steps", "", every[0].id))
    ids = Counter(site.id for site in every)
    spellings: dict[str, set[str]] = {}
    for label in labels:
        spellings.setdefault(_normalized(label), set()).add(label)
    allowed = None if allowed_labels is None else frozenset(allowed_labels)
    for site in every:
        doubts = _doubts(site, ids, labels, spellings, allowed)
        findings += [Finding(*doubt, site.pointer, site.id) for doubt in doubts]
    return Validation(tuple(findings))


def _doubts(
    site: Site, ids: Counter[str], labels: Counter[str], spellings: dict[str, set[str]], allowed: frozenset[str] | None
) -> Iterator[_Doubt]:
    node = site.node
    if site.id in site.above:
        yield "ancestor-id", f"a node above has the id {site.id!r} too"
    elif ids[site.id] > 1:
        yield "repeated-id", f"the id {site.id!r} is given {ids[site.id]} times"
    if isinstance(node, Operator) and len(node.children) == 1:
        yield "single-child", f"{node.kind} around a single child does nothing"
    elif isinstance(node, Operator) and node.kind == "PARTIAL_ORDER" and not node.order:
        yield "nothing-ordered", "PARTIAL_ORDER orders nothing: that is PARALLEL"
    if not isinstance(node, Activity):
        return
    if allowed is not None and node.label not in allowed:
        yield "label-not-allowed", f"{node.label!r} is none of the {len(allowed)} allowed labels"
    if labels[node.label] > 1:
        yield "repeated-label", f"{node.label!r} is there {labels[node.label]} times"
    others = sorted(spellings[_normalized(node.label)] - {node.label})
    if others:
        yield "similar-label", f"{node.label!r} is another activity than {others[0]!r}"


def _normalized(label: str) -> str:
    return " ".join(label.split()).casefold()
