"""What do the log-probabilities of one choice of a reply say? Read from the OpenAI-compatible field, as they came.

A value that is missing, or that stands for "not computed", makes the whole incomplete: it is never taken for a number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from stores.experience_batch_shapes import NOT_COMPUTED, LogProbKind, LogProbs
from stores.numbers import is_finite


def logprobs_of_choice(
    choice: Mapping[str, Any], *, kind: LogProbKind = "unknown", completion_tokens: int | None = None
) -> LogProbs | None:
    """Log-probabilities of the completion of ``choices[i]``; None when the choice has none at all.

    Reads ``logprobs.content`` (chat), ``.refusal`` (a refusal's tokens) and ``.token_logprobs`` (older completions),
    and ``token_ids`` where a server returns them. ``completion_tokens``: how many tokens were counted; fewer values
    than that (hidden reasoning, for one) leave it incomplete. ``total`` is the exact sum, None unless complete.
    """
    values = _values(choice.get("logprobs"))
    ids = _token_ids(choice.get("token_ids"))
    if values is None:
        return None if ids is None else LogProbs(token_ids=ids, count=None, kind=kind)
    known = [value for value in values if value is not None]
    whole = len(known) == len(values) and bool(known)
    complete = whole and (completion_tokens is None or len(known) >= completion_tokens)
    return LogProbs(
        tokens=tuple(known) if whole else None,
        token_ids=ids if ids is not None and (not whole or len(ids) == len(known)) else None,
        total=math.fsum(known) if complete else None,
        count=len(values),
        kind=kind,
        complete=complete,
    )


def _values(logprobs: object) -> list[float | None] | None:
    if not isinstance(logprobs, Mapping):
        return None
    for name in ("content", "refusal"):
        tokens = logprobs.get(name)
        if isinstance(tokens, Sequence) and tokens:
            return [_value(token.get("logprob") if isinstance(token, Mapping) else None) for token in tokens]
    older = logprobs.get("token_logprobs")
    return [_value(value) for value in older] if isinstance(older, Sequence) and older else None


def _value(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, float | int):
        return None
    return float(value) if is_finite(value) and value > NOT_COMPUTED else None


def _token_ids(ids: object) -> tuple[int, ...] | None:
    if not isinstance(ids, Sequence) or isinstance(ids, str) or not ids:
        return None
    whole = all(isinstance(token, int) and not isinstance(token, bool) for token in ids)
    return tuple(ids) if whole else None
