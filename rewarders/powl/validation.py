"""Check process models: errors and warnings, each with a JSON pointer.

A ``Model`` is well-formed already: its LOOPs have two children, its orders are acyclic, its labels are not blank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from tfgrpo.rewarders.powl.model import (
    MAX_DEPTH,
    MAX_NODES,
    ROOT_ID,
    Activity,
    Model,
    Operator,
    check_model,
    depth_of,
    size_of,
)

Severity: TypeAlias = Literal["error", "warning"]
Code: TypeAlias = Literal[
    "ancestor-id",
    "repeated-id",
    "label-not-allowed",
    "no-activity",
    "too-deep",
    "too-large",
    "repeated-label",
    "similar-label",
    "single-child",
    "nothing-ordered",
]
ERRORS: Final = frozenset({"ancestor-id", "label-not-allowed", "no-activity", "too-deep", "too-large"})
"""Codes that make a model invalid; the others are warnings."""


class Finding(NamedTuple):
    """One error or warning."""

    code: Code
    message: str
    pointer: str
    """JSON pointer of the node in the model's JSON."""
    node_id: str

    @property
    def severity(self) -> Severity:
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


class _Site(NamedTuple):
    """A node with its position."""

    node: Model
    pointer: str
    id: str
    above: frozenset[str]


def validate(
    model: Model,
    *,
    allowed_labels: Collection[str] | None = None,
    max_depth: int = MAX_DEPTH,
    max_nodes: int = MAX_NODES,
) -> Validation:
    """Return all errors and warnings of a model.

    Errors: the id of an ancestor; no activity; a label that is not in ``allowed_labels``; more than ``max_depth`` nested
    operators, or ``max_nodes`` nodes. Warnings: a repeated id; a label that is repeated, or differs from another only in
    case and white space; an operator around a single child; a PARTIAL_ORDER of several children without pairs.
    """
    check_model(model)
    sites = list(_sites(model))
    findings: list[Finding] = []
    if depth_of(model) > max_depth:
        findings.append(Finding("too-deep", f"{depth_of(model)} levels, at most {max_depth}", "", sites[0].id))
    if size_of(model) > max_nodes:
        findings.append(Finding("too-large", f"{size_of(model):,} nodes, at most {max_nodes:,}", "", sites[0].id))
    ids = Counter(site.id for site in sites)
    labels = Counter(site.node.label for site in sites if isinstance(site.node, Activity))
    if not labels:
        findings.append(Finding("no-activity", "the model has no activity, only silent steps", "", sites[0].id))
    spellings: dict[str, set[str]] = {}
    for label in labels:
        spellings.setdefault(_normalized(label), set()).add(label)
    allowed = None if allowed_labels is None else frozenset(allowed_labels)
    for site in sites:
        findings.extend(_identity(site, ids))
        if isinstance(site.node, Operator):
            findings.extend(_operator(site, site.node))
        elif isinstance(site.node, Activity):
            findings.extend(_label(site, site.node.label, labels, spellings, allowed))
    return Validation(tuple(findings))


def _sites(model: Model) -> Iterator[_Site]:
    waiting = [(_Site(model, "", model.id or ROOT_ID, frozenset()), ROOT_ID)]
    while waiting:
        site, path = waiting.pop()
        yield site
        if isinstance(site.node, Operator):
            above = site.above | {site.id}
            for index in reversed(range(len(site.node.children))):
                child, below = site.node.children[index], f"{path}.{index}"
                waiting.append((_Site(child, f"{site.pointer}/children/{index}", child.id or below, above), below))


def _identity(site: _Site, ids: Counter[str]) -> Iterator[Finding]:
    if site.id in site.above:
        yield Finding("ancestor-id", f"a node above has the id {site.id!r} too", site.pointer, site.id)
    elif ids[site.id] > 1:
        yield Finding("repeated-id", f"the id {site.id!r} is given {ids[site.id]} times", site.pointer, site.id)


def _operator(site: _Site, node: Operator) -> Iterator[Finding]:
    if len(node.children) == 1:
        yield Finding("single-child", f"{node.kind} around a single child does nothing", site.pointer, site.id)
    elif node.kind == "PARTIAL_ORDER" and not node.order:
        message = "PARTIAL_ORDER orders nothing: that is PARALLEL"
        yield Finding("nothing-ordered", message, site.pointer, site.id)


def _label(
    site: _Site, label: str, labels: Counter[str], spellings: dict[str, set[str]], allowed: frozenset[str] | None
) -> Iterator[Finding]:
    if allowed is not None and label not in allowed:
        yield Finding(
            "label-not-allowed", f"{label!r} is none of the {len(allowed)} allowed labels", site.pointer, site.id
        )
    if labels[label] > 1:
        yield Finding("repeated-label", f"{label!r} is there {labels[label]} times", site.pointer, site.id)
    others = sorted(spellings[_normalized(label)] - {label})
    if others:
        yield Finding("similar-label", f"{label!r} is another activity than {others[0]!r}", site.pointer, site.id)


def _normalized(label: str) -> str:
    return " ".join(label.split()).casefold()
