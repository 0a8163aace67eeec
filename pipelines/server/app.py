"""The HTTP interface of the data server: routes, limits, errors and the OpenAPI description."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastapi import FastAPI, Security
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from tfgrpo.pipelines.mix.config import MixConfig
from tfgrpo.pipelines.server import monitoring
from tfgrpo.pipelines.server.access import require_token
from tfgrpo.pipelines.server.limits import MEBIBYTE, RETRY_AFTER_S, GradeQueue, Limits, bounded_route
from tfgrpo.pipelines.server.monitoring import LONGEST_REASON, GradeTally, RequestMeter
from tfgrpo.pipelines.server.replies import answer, bad_body, refused
from tfgrpo.pipelines.server.service import DataService
from tfgrpo.pipelines.server.shapes import (
    SPACE,
    BadBody,
    GradeItem,
    GradeReply,
    GradeRequest,
    Health,
    MetaReply,
    Refusal,
    SampleReply,
    SampleRequest,
)
from tfgrpo.rewarders.graders.combine import ItemGrade
from tfgrpo.stores.errors import DatasetError
from tfgrpo.stores.telemetry.setup import Telemetry
from tfgrpo.stores.text import pluralize

_SAMPLE_BODY: Final = MEBIBYTE // 16
"""Most bytes of a request for samples, which is two numbers."""
_ROUTES: Final = frozenset({"/meta", "/sample", "/grade", "/healthz"})
_ABOUT: Final = "Samples of a staged data mix, and rewards for completions of them."
_SYNTAX: Final = re.compile(r"[\^$\\.*+?()\[\]{}|]")
"""Characters to escape in the regular expressions of every language."""


def data_app(
    service: DataService,
    *,
    limits: Limits,
    telemetry: Telemetry,
    say: monitoring.Say,
    version: str,
    token: str | None = None,
    verbose: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> ASGIApp:
    """Return the app of a service. ``say`` gets lines about failing graders, and with ``verbose`` about every request.

    With a ``token`` every path but ``/healthz`` requires it.
    """
    handlers = _Handlers(service, limits, telemetry, GradeTally(telemetry, clock), say if verbose else None, say)
    app = FastAPI(
        title="tfgrpo data server",
        description=_ABOUT,
        version=version,
        exception_handlers={HTTPException: refused, RequestValidationError: bad_body, Exception: refused},
    )
    queue = GradeQueue(limits)
    refusals = {401: "The bearer token is missing or wrong."} if token else {}
    body = {408: "The body does not arrive in time.", 413: "The body is too large.", **refusals}
    samples = {
        **body,
        400: "The stage has no records to draw from.",
        503: "The data cannot be read, or the server is being stopped.",
    }
    grades = {
        **body,
        400: "No sample has such an id.",
        503: "Too many requests wait already, graders failed, or the server is being stopped; come again.",
    }
    small = bounded_route(_SAMPLE_BODY, limits.body_s)
    large = bounded_route(limits.max_body, limits.body_s, queue)
    _add(app, "/healthz", handlers.health, Health, {}, "GET")
    _add(app, "/meta", handlers.meta, MetaReply, refusals, "GET")
    _add(app, "/sample", handlers.sample, SampleReply, samples, "POST", small)
    _add(app, "/grade", handlers.grade, GradeReply, grades, "POST", large)
    description = describe(app, service.config, limits)
    app.openapi = lambda: description  # type: ignore[method-assign] # FastAPI's own way to replace it
    guarded: ASGIApp = app if token is None else require_token(app, token)
    return RequestMeter(guarded, telemetry, _ROUTES)


def _add(  # noqa: PLR0917 - one row of the table above
    app: FastAPI,
    path: str,
    handler: Callable[..., Any],
    reply: type,
    refusals: dict[int, str],
    method: str,
    route: type[APIRoute] = APIRoute,
) -> None:
    responses: dict[int | str, dict[str, Any]] = {
        status: {"model": Refusal, "description": text} for status, text in sorted(refusals.items())
    }
    if method == "POST":
        responses[422] = {"model": BadBody, "description": "The body is not what is described here."}
    # A scheme that refuses nothing, for the description: the token is checked before any route.
    guards = [Security(HTTPBearer(auto_error=False, scheme_name="bearer"))] if 401 in refusals else None
    app.router.add_api_route(
        path,
        handler,
        methods=[method],
        response_model=reply,
        responses=responses,
        dependencies=guards,
        route_class_override=route,
    )


@dataclass(frozen=True, slots=True)
class _Handlers:
    """The endpoints and their shared state."""

    service: DataService
    limits: Limits
    telemetry: Telemetry
    tally: GradeTally
    say: monitoring.Say | None
    """Logs every request; None without ``--verbose``."""
    warn: monitoring.Say

    async def health(self) -> Response:
        """Answer that the server is up."""
        return answer({"status": "ok"})

    async def meta(self) -> Response:
        """Return the length of the mix and its stages."""
        return answer(self.service.meta())

    async def sample(self, asked: SampleRequest) -> Response:
        """Draw samples from the stage of an iteration: with replacement, others at every request."""
        most = self.limits.max_batch
        if asked.batch_size > most:
            raise _too_many("batch_size", "less_than_equal", f"Input should be less than or equal to {most}")
        if self.say is not None:
            stage = self.service.config.stage_at(asked.iteration).name
            self.say(monitoring.sample_line(asked.iteration, asked.batch_size, stage))
        try:
            samples = await self.service.sample(asked.iteration, asked.batch_size)
        except DatasetError as error:
            raise HTTPException(400, "; ".join(problem.given for problem in error.problems)) from error
        except OSError as error:
            raise HTTPException(503, f"the data cannot be read: {error.strerror}") from error
        for dataset, count in Counter(sample["dataset_id"] for sample in samples).items():
            self.telemetry.record("samples", dataset=dataset, count=count)
        return answer({"samples": samples})

    async def grade(self, asked: GradeRequest) -> Response:
        """Grade completions: one result for each item, in their order. An ungradable item affects no other."""
        most = self.limits.max_batch
        if len(asked.items) > most:
            raise _too_many("items", "too_long", f"List should have at most {most} items, not {len(asked.items)}")
        try:
            grades = await self.service.grade(asked.items)
        except DatasetError as error:
            raise HTTPException(400, str(error)) from error
        for line in self.tally.add(grades):
            self.warn(line)
        if self.say is not None:
            self.say("\n".join(monitoring.grade_lines(asked.iteration, asked.items, grades)))
        _refuse_if_lost(grades, self.limits.max_lost_share)
        results = [_result(item, grade, asked.parts) for item, grade in zip(asked.items, grades, strict=True)]
        return answer({"results": results})


def _refuse_if_lost(grades: Sequence[ItemGrade], max_share: float) -> None:
    """Answer 503 if failing graders left more than a share of the items ungraded; a retry may help only then."""
    lost = [grade for grade in grades if grade.broke or grade.late]
    if len(lost) > max_share * len(grades):
        reason = lost[-1].reasons[:LONGEST_REASON]
        detail = f"graders failed on {len(lost)} of {pluralize(len(grades), 'item')}: {reason}"
        raise HTTPException(503, detail, {"Retry-After": str(RETRY_AFTER_S)})


def _too_many(field: str, kind: str, message: str) -> RequestValidationError:
    return RequestValidationError([{"type": kind, "loc": ("body", field), "msg": message}])


def _result(item: GradeItem, grade: ItemGrade, parts: bool) -> dict[str, Any]:
    result: dict[str, Any] = {"sample_id": item.sample_id, "reward": 0.0, "completion_index": item.completion_index}
    if parts:
        result["parts"] = dict(grade.parts)
    if grade.reward is None:
        return {**result, "error": grade.reasons}
    return {**result, "reward": grade.reward}


def describe(app: FastAPI, config: MixConfig, limits: Limits) -> dict[str, Any]:
    """Return the description of an app that serves this mix."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    shapes = document["components"]["schemas"]
    shapes["SampleRequest"]["properties"]["batch_size"]["anyOf"] = list(_bounded(shapes, limits))
    shapes["GradeRequest"]["properties"]["items"]["maxItems"] = limits.max_batch
    shapes["GradeItem"]["properties"]["sample_id"]["pattern"] = sample_id_pattern(config)
    return document


def sample_id_pattern(config: MixConfig) -> str:
    """Return a regular expression for all sample ids."""
    ids = [
        _SYNTAX.sub(r"\\\g<0>", name) + f":{up_to(len(dataset.records) - 1)}"
        for name, dataset in config.datasets.items()
        if len(dataset.records)
    ]
    return f"^({'|'.join(ids)})$" if ids else "^$a"


def up_to(last: int) -> str:
    """Return a regular expression for the whole numbers from 0 to ``last``, without leading zeros."""
    text = str(last)
    shorter = [f"[1-9]{'[0-9]' * (digits - 1)}" for digits in range(2, len(text))]
    choices = [*(["[0-9]"] if len(text) > 1 else []), *shorter, text]
    for at, digit in enumerate(text):
        lowest = 1 if at == 0 and len(text) > 1 else 0
        if int(digit) > lowest:
            choices.append(f"{text[:at]}[{lowest}-{int(digit) - 1}]{'[0-9]' * (len(text) - at - 1)}")
    return f"({'|'.join(choices)})"


def _bounded(shapes: dict[str, Any], limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield the forms of a batch size, with the limit."""
    for form in shapes["SampleRequest"]["properties"]["batch_size"]["anyOf"]:
        if form["type"] == "integer":
            yield form | {"maximum": limits.max_batch}
        elif form["type"] == "string":
            yield form | {"pattern": rf"^{SPACE}(-[0-9]+(_[0-9]+)*|[+]?0*{up_to(limits.max_batch)})(\.0+)?{SPACE}$"}
        else:
            yield form
