"""Read the log-probabilities of the choices of a reply from the OpenAI-compatible field, as they came.

A value that is missing, or a marker of "not computed", makes the whole incomplete: it is never taken for a number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tfgrpo.stores.batch.shapes import NOT_COMPUTED, ROUNDING, LogProbKind, LogProbs
from tfgrpo.stores.frozen_json import mapping_of
from tfgrpo.stores.numeric import is_finite

_NOT_COMPARED: Final = re.compile(r"[^0-9A-Za-z]+")
"""Characters that vocabularies encode differently: spaces, accents, partial characters."""


def logprobs_of_choices(
    choices: Sequence[object], *, kind: LogProbKind = "unknown", completion_tokens: int | None, hidden: bool = False
) -> list[LogProbs | None]:
    """Return the log-probabilities of each choice of a reply; None for a choice without any.

    Reads ``logprobs.content`` (chat), ``.refusal`` (a refusal's tokens) and ``.token_logprobs`` (older completions),
    and ``token_ids`` where a server returns them. A choice is complete when it has a value for each of its tokens: by
    ``completion_tokens``, which counts those of all choices, or where that is inconclusive, by the texts of the tokens,
    which then make up the completion. ``hidden``: some of the tokens counted are in no text. ``total`` is the exact sum,
    None unless complete.
    """
    read = [_Choice.of(choice) for choice in choices]
    surplus = sum(len(each.values or ()) for each in read) - (completion_tokens or 0)
    # Choices whose texts fall short explain the missing tokens; a surplus of one choice may hide a lack of another.
    explained = surplus < 0 and not hidden and any(each.is_whole is False for each in read)
    inconclusive = completion_tokens is None or explained or (surplus > 0 and len(read) > 1)
    count_matches = None if inconclusive else surplus >= 0
    return [each.logprobs(kind, count_matches) for each in read]


@dataclass(frozen=True, slots=True)
class _Choice:
    values: list[float | None] | None
    ids: tuple[int, ...] | None
    is_whole: bool | None
    """Whether the texts of the tokens make up the completion; None when they cannot be compared."""

    @classmethod
    def of(cls, choice: object) -> _Choice:
        fields = mapping_of(choice)
        raw = mapping_of(fields.get("logprobs"))
        values = _values(raw)
        message = fields.get("message")
        text = message.get("content") or message.get("refusal") if isinstance(message, Mapping) else fields.get("text")
        whole = None if values is None else _make_up(_token_texts(raw), text)
        return cls(values, token_ids_of(fields.get("token_ids")), False if values is None and text else whole)

    def logprobs(self, kind: LogProbKind, count_matches: bool | None) -> LogProbs | None:
        if self.values is None:
            return None if self.ids is None else LogProbs(token_ids=self.ids, count=None, kind=kind)
        known = [value for value in self.values if value is not None]
        valued = len(known) == len(self.values) and bool(known)
        confirmed = True in (count_matches, self.is_whole) and False not in (count_matches, self.is_whole)
        return LogProbs(
            tokens=tuple(known) if valued else None,
            token_ids=self.ids if self.ids is not None and (not valued or len(self.ids) == len(known)) else None,
            total=math.fsum(known) if valued and confirmed else None,
            count=len(self.values),
            kind=kind,
            complete=valued and confirmed,
        )


def _values(logprobs: Mapping[str, Any]) -> list[float | None] | None:
    tokens = _chat_tokens(logprobs)
    if tokens is not None:
        return [_value(mapping_of(token).get("logprob")) for token in tokens]
    older = logprobs.get("token_logprobs")
    return [_value(value) for value in older] if isinstance(older, Sequence) and older else None


def _chat_tokens(logprobs: Mapping[str, Any]) -> Sequence[object] | None:
    for name in ("content", "refusal"):
        tokens = logprobs.get(name)
        if isinstance(tokens, Sequence) and tokens:
            return tokens
    return None


def _value(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, float | int):
        return None
    return float(value) if is_finite(value) and NOT_COMPUTED < value <= ROUNDING else None


def _token_texts(logprobs: Mapping[str, Any]) -> list[str]:
    tokens = _chat_tokens(logprobs)
    texts = logprobs.get("tokens") if tokens is None else [mapping_of(token).get("token") for token in tokens]
    return [text for text in texts if isinstance(text, str)] if isinstance(texts, Sequence) else []


def _make_up(tokens: Sequence[str], text: object) -> bool | None:
    """Whether the joined tokens contain the text; None when they cannot be compared, as with ids instead of texts."""
    letters = _NOT_COMPARED.sub("", text) if isinstance(text, str) else ""
    if not letters or not tokens or tokens[0].startswith("token_id:"):
        return None
    return letters in _NOT_COMPARED.sub("", "".join(tokens))


def token_ids_of(ids: object) -> tuple[int, ...] | None:
    """Return a list of token ids, or None when the value is none."""
    if not isinstance(ids, Sequence) or isinstance(ids, str) or not ids:
        return None
    whole = all(isinstance(token, int) and not isinstance(token, bool) for token in ids)
    return tuple(ids) if whole else None
