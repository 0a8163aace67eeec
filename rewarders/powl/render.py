"""Write process models as text and as JSON, which the parsers read back to an equal model."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tfgrpo.rewarders.powl.model import ROOT_ID, Activity, Model, Operator, check_model, fold


def to_text(model: Model, *, brief: bool = False) -> str:
    """Return one line such as ``SEQUENCE(ACTIVITY(a), XOR(ACTIVITY(b), SILENT()))``.

    A label that cannot be parsed from ``ACTIVITY(label)`` is written ``ACTIVITY["…"]``, as a JSON string.
    ``brief`` writes labels alone, ``SEQUENCE(check credit, b)``: for readers, not for parsers.
    """
    write: Callable[[str], str] = str if brief else _activity

    def combine(node: Model, parts: Sequence[str]) -> str:
        if isinstance(node, Operator):
            steps = ", ".join(f"{before}->{after}" for before, after in sorted(node.order))
            return f"{node.kind}({', '.join([*parts, f'ORDER({steps})'] if steps else parts)})"
        return write(node.label) if isinstance(node, Activity) else "SILENT()"

    return fold(model, combine)


def to_json(model: Model) -> str:
    """Return one line of JSON, which ``parse_json`` reads. Nodes without an id get their path."""
    identities = _identities(model)

    def combine(node: Model, parts: Sequence[str]) -> str:
        head = f'"id": {_quoted(identities.pop())}'
        if isinstance(node, Activity):
            return f'{{"type": "ACTIVITY", {head}, "label": {_quoted(node.label)}}}'
        if not isinstance(node, Operator):
            return f'{{"type": "SILENT", {head}}}'
        pairs = [list(pair) for pair in sorted(node.order)]
        order = f', "order": {json.dumps(pairs)}' if node.kind == "PARTIAL_ORDER" else ""
        return f'{{"type": "{node.kind}", {head}, "children": [{", ".join(parts)}]{order}}}'

    return fold(model, combine)


def to_value(model: Model) -> dict[str, Any]:
    """Return the JSON object as dictionaries and lists."""
    value: dict[str, Any] = json.loads(to_json(model))
    return value


def _identities(model: Model) -> list[str]:
    """Return ids in the order in which ``fold`` visits the nodes, last one first."""
    check_model(model)
    waiting = [(model, ROOT_ID)]
    identities: list[str] = []
    while waiting:
        node, path = waiting.pop()
        identities.append(node.id or path)
        if isinstance(node, Operator):
            waiting.extend((child, f"{path}.{index}") for index, child in enumerate(node.children))
    return identities


def _activity(label: str) -> str:
    plain = label.isprintable() and label == label.strip() and not set("()") & set(label)
    return f"ACTIVITY({label})" if plain else f"ACTIVITY[{_quoted(label)}]"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.isprintable())
