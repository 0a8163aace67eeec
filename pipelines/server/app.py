"""The HTTP interface of the data server: routes, limits, errors, and the description in ``openapi.yaml``."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from tfgrpo.pipelines.mix.config import MixConfig
from tfgrpo.pipelines.server.access import require_token
from tfgrpo.pipelines.server.limits import MEBIBYTE, RETRY_AFTER_S, GradeQueue, Limits, bounded_endpoint
from tfgrpo.pipelines.server.monitoring import LONGEST_REASON, NAME, GradeTally, Say, grade_lines, metered
from tfgrpo.pipelines.server.replies import answer, bad_body, refused
from tfgrpo.pipelines.server.service import DataService, GradeItem, GradeRequest, ItemGrade, SampleRequest
from tfgrpo.stores.errors import DatasetError
from tfgrpo.stores.packaged import packaged_yaml
from tfgrpo.stores.telemetry.setup import Telemetry
from tfgrpo.stores.text import pluralize

_SAMPLE_BODY: Final = MEBIBYTE // 16
"""Most bytes of a request for samples, which is two numbers."""
_ROUTES: Final = frozenset({"/meta", "/sample", "/grade", "/healthz"})
_SYNTAX: Final = re.compile(r"[\^$\\.*+?()\[\]{}|]")
"""Characters to escape in the regular expressions of every language."""


def data_app(
    service: DataService,
    *,
    limits: Limits,
    telemetry: Telemetry,
    say: Say,
    version: str,
    token: str | None = None,
    verbose: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> ASGIApp:
    """Return the app of a service. ``say`` gets lines about failing graders, and with ``verbose`` about every request.

    With a ``token`` every path but ``/healthz`` requires it.
    """
    handlers = _Handlers(service, limits, telemetry, GradeTally(telemetry, clock), say if verbose else None, say)
    description = describe(service.config, limits, version, token=token is not None)
    app = FastAPI(title=description["info"]["title"], exception_handlers={HTTPException: refused, Exception: refused})
    app.openapi = lambda: description  # type: ignore[method-assign] # FastAPI's own way to replace it
    app.add_api_route("/healthz", handlers.health, methods=["GET"])
    app.add_api_route("/meta", handlers.meta, methods=["GET"])
    samples = bounded_endpoint(SampleRequest, handlers.sample, _SAMPLE_BODY, limits.body_s)
    grades = bounded_endpoint(GradeRequest, handlers.grade, limits.max_body, limits.body_s, GradeQueue(limits))
    app.add_route("/sample", samples, methods=["POST"])
    app.add_route("/grade", grades, methods=["POST"])
    guarded = app if token is None else require_token(app, token)
    return metered(guarded, telemetry, _ROUTES)


@dataclass(frozen=True, slots=True)
class _Handlers:
    """The endpoints and their shared state."""

    service: DataService
    limits: Limits
    telemetry: Telemetry
    tally: GradeTally
    say: Say | None
    """Logs every request; None without ``--verbose``."""
    warn: Say

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
            message = f"Input should be less than or equal to {most}"
            raise bad_body({"type": "less_than_equal", "loc": ("batch_size",), "msg": message})
        if self.say is not None:
            stage = self.service.config.stage_at(asked.iteration).name
            self.say(f"{NAME} /sample iteration={asked.iteration} batch_size={asked.batch_size} stage={stage}")
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
            message = f"List should have at most {most} items, not {len(asked.items)}"
            raise bad_body({"type": "too_long", "loc": ("items",), "msg": message})
        try:
            grades = await self.service.grade(asked.items)
        except DatasetError as error:
            raise HTTPException(400, str(error)) from error
        for line in self.tally.add(grades):
            self.warn(line)
        if self.say is not None:
            self.say("\n".join(grade_lines(asked.iteration, asked.items, grades)))
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


def _result(item: GradeItem, grade: ItemGrade, parts: bool) -> dict[str, Any]:
    result: dict[str, Any] = {"sample_id": item.sample_id, "reward": 0.0, "completion_index": item.completion_index}
    if parts:
        result["parts"] = dict(grade.parts)
    if grade.reward is None:
        return {**result, "error": grade.reasons}
    return {**result, "reward": grade.reward}


def describe(config: MixConfig, limits: Limits, version: str, *, token: bool) -> dict[str, Any]:
    """Return the description of a server of this mix; ``token``: whether it requires one."""
    document: dict[str, Any] = packaged_yaml(__file__, "openapi.yaml")
    document["info"]["version"] = version
    shapes = document["components"]["schemas"]
    # Any of an integer, a truth value and digits, as the models read them.
    integer, _, text = shapes["SampleRequest"]["properties"]["batch_size"]["anyOf"]
    integer["maximum"] = limits.max_batch
    text["pattern"] = text["pattern"].replace("MAX", up_to(limits.max_batch))
    shapes["GradeRequest"]["properties"]["items"]["maxItems"] = limits.max_batch
    shapes["GradeItem"]["properties"]["sample_id"]["pattern"] = sample_id_pattern(config)
    if not token:
        del document["components"]["securitySchemes"]
        for operation in (each for path in document["paths"].values() for each in path.values()):
            operation.pop("security", None)
            operation["responses"].pop("401", None)
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
    for at, digit in enumerate(text):  # the numbers of as many digits that are smaller from this digit on
        lowest = 1 if at == 0 and len(text) > 1 else 0
        if int(digit) > lowest:
            choices.append(f"{text[:at]}[{lowest}-{int(digit) - 1}]{'[0-9]' * (len(text) - at - 1)}")
    return f"({'|'.join(choices)})"
