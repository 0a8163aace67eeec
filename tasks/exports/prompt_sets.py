"""What rows do verl and OpenRLHF take? Prompts with their ground truth; both trainers draw their own rollouts.

The recorded attempts ride along in columns that neither looks at unless a reward function of the user's does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfgrpo.tasks.exports.choosing import Chosen, ExportOptions, Left
from tfgrpo.tasks.exports.rows import provenance, recorded, reference_answer

_ANY = "general"


def verl_rows(chosen: Chosen, options: ExportOptions, left: Left, index: int) -> Iterator[dict[str, Any]]:
    """``data_source``, ``prompt``, ``ability``, ``reward_model``, ``extra_info``. ``index`` is the number of the row.

    A group of one attempt stays out: verl would take its reward for its advantage.
    """
    if len(chosen.group.rollouts) < 2:
        left.groups["a single attempt, whose reward verl would take for its advantage"] += 1
        return
    answer = reference_answer(chosen)
    source = provenance(chosen, options)
    yield {
        "data_source": _source(chosen),
        "prompt": list(chosen.prompt),
        "ability": str(chosen.group.metadata.get("domain") or _ANY),
        "reward_model": {"style": "rule" if answer else "model", "ground_truth": answer},
        "extra_info": {
            "index": index,
            "split": "train" if source["phase"] == "train" else "test",
            **source,
            **recorded(chosen, left),
        },
    }


def openrlhf_rows(chosen: Chosen, options: ExportOptions, left: Left) -> Iterator[dict[str, Any]]:
    """``input``, ``label``, ``datasource``. Only whole groups: OpenRLHF reshapes rewards to one row per prompt."""
    if len(chosen.group.rollouts) != chosen.group.target_size:
        left.groups["ragged: not every attempt has a reward and its whole answer"] += 1
        return
    yield {
        "input": list(chosen.prompt),
        "label": reference_answer(chosen),
        "datasource": _source(chosen),
        **recorded(chosen, left),
        "provenance": provenance(chosen, options),
    }


def _source(chosen: Chosen) -> str:
    known = chosen.group.metadata
    return str(known.get("task_id") or known.get("domain") or _ANY)
