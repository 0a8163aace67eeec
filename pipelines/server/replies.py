"""Encode answers and refusals as JSON that every reader accepts, whatever text a dataset or client has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import fastapi
from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

_MOST_PROBLEMS: Final = 100
_LONGEST: Final = 200


def encoded(value: object) -> bytes:
    """Return compact UTF-8 JSON. Half surrogate pairs are escaped; NaN and infinity become null."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:  # of either
        finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
        return json.dumps(finite, separators=(",", ":")).encode()


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a JSON body."""
    return Response(encoded(value), status, headers, "application/json")


async def refused(_: Request, error: Exception) -> Response:
    """Answer ``{"detail": "…"}`` to a refusal by the server or the framework."""
    if not isinstance(error, HTTPException):
        return answer({"detail": "Internal Server Error"}, 500)
    return answer({"detail": error.detail}, error.status_code, error.headers)


def bad_body(*problems: Mapping[str, Any]) -> fastapi.HTTPException:
    """Return the refusal of a body, in FastAPI's form. Of the input only short texts and numbers are repeated."""
    rows = []
    for problem in problems[:_MOST_PROBLEMS]:
        row = {"type": problem["type"], "loc": ["body", *problem["loc"]], "msg": problem["msg"]}
        given = problem.get("input")
        if given is None or isinstance(given, bool | int | float | str):
            row["input"] = given[:_LONGEST] if isinstance(given, str) else given
        rows.append(row)
    return fastapi.HTTPException(422, rows)
