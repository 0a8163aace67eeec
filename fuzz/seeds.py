"""First inputs of the fuzzers: the sample texts and JSON of the tests, and what else the grammar has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

VECTORS: Final = Path(__file__).resolve().parent.parent / "tests" / "vectors"
WORDS: Final = (
    *("SEQUENCE(", "XOR(", "PARALLEL(", "LOOP(", "PARTIAL_ORDER(", "ACTIVITY(", 'ACTIVITY["', '"]', "SILENT()", "ORDER("),
    *("0->1", "->", ")", ",", "```", "<think>", "</think>", '{"type": "', '"children": [', '"label": "', '"order": ['),
    *("SEQ(", "AND(", "\\u0000", "\\ud800", "\ufeff", "…", "]", "}", "\\", '"'),
)
"""Words of both forms, from which inputs are put together."""
_MORE: Final = (
    "PARTIAL_ORDER(a, b, XOR(c, SILENT()), ORDER(0->1->2))",
    'SEQUENCE(ACTIVITY["check (credit)"], b)',
    "<think>XOR(a, b)</think>\n```\nLOOP(a, b)\n```\nDone.",
    '{"type": "PARTIAL_ORDER", "children": [{"type": "SILENT"}, {"type": "ACTIVITY", "label": "a"}], "order": [[0, 1]]}',
)


def seeds() -> Iterator[bytes]:
    """Every seed."""
    for name, field in (("powl_parse_text", "text"), ("powl_parse_json", "json")):
        for line in (VECTORS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            value = json.loads(line)[field] if line else None
            if value:
                yield value.encode()
    yield from (text.encode() for text in _MORE)
