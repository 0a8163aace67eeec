"""How is an answer put into bytes? As JSON that every reader accepts, whatever a dataset or a client put into it.

The forms of refusals are FastAPI's; what is refused is decided elsewhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

_MOST_PROBLEMS: Final = 100
_LONGEST: Final = 200


def encoded(value: object) -> bytes:
    """Compact UTF-8 JSON. Half a surrogate pair is escaped; NaN and infinity, which JSON has not, become null."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(json.loads(text), separators=(",", ":")).encode()


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response with a JSON body."""
    return Response(encoded(value), status, headers, "application/json")


async def refused(_: Request, error: Exception) -> Response:
    """``{"detail": "…"}`` for a refusal by us or by the framework."""
    if not isinstance(error, HTTPException):
        return answer({"detail": "Internal Server Error"}, 500)
    return answer({"detail": error.detail}, error.status_code, error.headers)


async def bad_body(_: Request, error: Exception) -> Response:
    """``{"detail": [...]}``: what is wrong, where. Of what was sent only short texts and numbers are shown again."""
    problems: Sequence[Any] = error.errors() if isinstance(error, RequestValidationError) else ()
    return answer({"detail": list(_problem_rows(problems))}, 422)


def _problem_rows(problems: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for problem in problems[:_MOST_PROBLEMS]:
        shown = {"type": problem["type"], "loc": list(problem["loc"]), "msg": problem["msg"]}
        given = problem.get("input")
        if given is None or isinstance(given, bool | int | float):
            shown["input"] = given
        elif isinstance(given, str):
            shown["input"] = given[:_LONGEST]
        yield shown


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
