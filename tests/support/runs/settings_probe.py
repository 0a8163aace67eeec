"""Observe the effect of settings at low cost: a plan, one group against a scripted endpoint, or a tiny run.

Settings are dotted keys and texts, as on a command line.
"""

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from tests.support.runs.running import SHORT, lines
from tfgrpo.flows.console.observer import Observers
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.flows.run.execution import execute
from tfgrpo.flows.run.loop.books import RunGroups
from tfgrpo.flows.run.prepare import read_api_key
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.plan import Plan, build_plan
from tfgrpo.pipelines.settings.layers import Resolved, resolve_settings
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.tree import MODEL_ROLES, ModelRole, Settings
from tfgrpo.prompt_packs.stamps import SHIPPED_ROOT
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.json_values import sha256_hex
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.tasks.group import run_group
from tfgrpo.tasks.learning.curate import CurationInput, CurationResult, curate_batch
from tfgrpo.tasks.models.transport import client_over
from tfgrpo.tasks.runtime import host
from tfgrpo.tasks.runtime.host import runtime_for
from tfgrpo.tasks.runtime.runtime import RunContext
from tfgrpo.tasks.shapes import GroupResult, GroupSpec, PackText

Options = Mapping[str, str]
Effect = TypeVar("Effect")

REAL = {"model.name": "m", "model.base_url": "http://endpoint.test/v1", "model.max_retries": "0", "model.wait_s": "0"}
TINY = {"dataset.path": SHORT, "dry_run": "on", "tfgrpo.enabled": "on", "tfgrpo.epochs": "2", "tfgrpo.sample_size": "2"}
LESSONS = [
    {"polarity": "do", "text": "Write every carry above the column before the next column is added."},
    {"polarity": "avoid", "text": "Rounding a figure before the very last step of the sum."},
]


# Agents, tools and rewarders that settings name by module:attr.


async def slow(prompt: str) -> str:
    """Answer after 0.05 s."""
    del prompt
    await asyncio.sleep(0.05)
    return "Answer: 7"


class Crowd:
    """An agent that answers with the number of its concurrent calls."""

    def __init__(self) -> None:
        self._present = 0

    async def __call__(self, prompt: str) -> str:
        del prompt
        self._present += 1
        await asyncio.sleep(0.02)
        concurrent = self._present
        self._present -= 1
        return f"Answer: {concurrent}"


crowd = Crowd()


def double(number: int) -> int:
    """Return twice a number."""
    return 2 * number


def halve(number: int) -> float:
    """Return half a number."""
    return number / 2


# Results of an observation.


@dataclass
class TinyRun:
    """A whole run on the simulated model."""

    status: str
    manifest: dict[str, Any]
    specs: list[GroupSpec]
    contexts: list[RunContext]
    outputs: list[str]
    metrics: list[dict[str, Any]]


@dataclass
class Exchange:
    """One group and the curation of its proposals, against a scripted endpoint."""

    requests: list[tuple[httpx.Request, dict[str, Any]]]
    result: GroupResult
    curation: CurationResult

    @property
    def acting(self) -> list[dict[str, Any]]:
        """Return the bodies of the actors' requests."""
        return [body for _, body in self.requests if not _learns(body)]

    def of(self, role: ModelRole) -> list[tuple[httpx.Request, dict[str, Any]]]:
        """Return the requests of one role."""
        return [each for each in self.requests if _role_of(each[1]) == role]

    @property
    def learning(self) -> list[dict[str, Any]]:
        """Return the bodies of the requests that reflect, curate, shorten and repair."""
        return [body for _, body in self.of("reflection")]

    def payload(self, key: str) -> dict[str, Any]:
        """Return the payload of the learning request with this key."""
        asked = [json.loads(body["messages"][1]["content"]) for body in self.learning]
        return next(payload for payload in asked if key in payload)

    @property
    def outcomes(self) -> list[str]:
        return [rollout.outcome.name for rollout in self.result.rollouts]


def _learns(body: Mapping[str, Any]) -> bool:
    return str(body["messages"][1]["content"]).startswith("{")


def _role_of(body: Mapping[str, Any]) -> ModelRole:
    if not _learns(body):
        return "actor"
    return "judge" if "output" in json.loads(body["messages"][1]["content"]) else "reflection"


class Endpoint:
    """Answers all actors of a group correctly except the last, and learning requests with fixed lessons and edits.

    With ``says`` all actors are answered with that. Delay and status are those of the roles in ``troubles``.
    """

    def __init__(
        self,
        size: int,
        *,
        broken: bool = False,
        tool: str | None = None,
        delay_s: float = 0.0,
        status: int = 200,
        says: str = "",
        troubles: Sequence[ModelRole] = MODEL_ROLES,
    ) -> None:
        self.requests: list[tuple[httpx.Request, dict[str, Any]]] = []
        self._size, self._broken, self._tool = size, broken, tool
        self._delay_s, self._status, self._says = delay_s, status, says
        self._acted, self._troubles = 0, troubles

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.requests.append((request, body))
        troubled = _role_of(body) in self._troubles
        await asyncio.sleep(self._delay_s if troubled else 0.0)
        if troubled and self._status != 200:
            return httpx.Response(self._status, headers={"retry-after": "0"}, json={"error": {"message": "busy"}})
        message = self._learned(body) if _learns(body) else self._act()
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 500}}
        return httpx.Response(200, json={"id": "r", "model": body["model"], "choices": [choice], "usage": usage})

    def _act(self) -> dict[str, Any]:
        self._acted += 1
        if self._tool is not None:
            function = {"name": self._tool, "arguments": '{"number": 2}'}
            return {"content": None, "tool_calls": [{"id": f"c{self._acted}", "type": "function", "function": function}]}
        return {"content": self._says or ("Answer: 8" if self._acted == self._size else "Answer: 7.")}

    def _learned(self, body: Mapping[str, Any]) -> dict[str, Any]:
        question = json.loads(body["messages"][1]["content"])
        if "output" in question:
            return {"content": json.dumps({"reason": "It is so.", "score": len(question["output"]) / 10})}
        if self._broken:
            return {"content": "no JSON at all"}
        if "attempts" in question:
            cause = {"first_difference": "In the answer.", "cause": "One answer is right.", "judgements": []}
            return {"content": json.dumps({**cause, "lessons": LESSONS})}
        if "proposals" in question:
            added = [
                {"class": "new", "proposals": [each["id"]], "polarity": each["polarity"], "text": each["text"]}
                for each in question["proposals"]
            ]
            return {"content": json.dumps({"answers": added})}
        if "transcript" in question:
            return {"content": json.dumps({"digest": "It answered at once."})}
        screened: dict[str, Any] = {"refused": []}  # of lessons before they are on trial
        return {"content": json.dumps({"text": question["text"]} if "text" in question else screened)}


_shared: dict[tuple[str, int], Any] = {}


class SettingsProbe:
    """Resolves, plans and runs under settings as on the command line."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.monkeypatch = monkeypatch
        self._runs = 0
        self._asked = Counter[str]()

    def shared(self, effect: Callable[..., Effect], options: Options, **behaviour: Any) -> Effect:
        """Return an effect of options; the n-th of equal ones is made once for all probes, so two are two of them."""
        key = f"{effect.__name__} {sorted(options.items())} {behaviour}"
        self._asked[key] += 1
        place = (key, self._asked[key])
        if place not in _shared:
            _shared[place] = effect(options, **behaviour)
        made: Effect = _shared[place]
        return made

    def resolved(self, options: Options) -> Resolved:
        return resolve_settings(cli={"out": str(self.root / "out"), **options}, env={})

    def settings(self, options: Options) -> Settings:
        return self.resolved(options).settings

    def plan(self, options: Options) -> Plan:
        return build_plan(self.resolved({"tfgrpo.enabled": "on", **options}), {})

    def items(self) -> Path:
        """Return a dataset in which every field has two names."""
        fields = ("id", "prompt", "answer", "system_prompt", "domain")
        rows = []
        for number in range(40):
            row: dict[str, Any] = {f"{name}{way}": f"{name}{way}-{number}" for name in fields for way in ("", "_2")}
            rows.append({**row, "metadata": {"n": number}, "metadata_2": {"n": -number}})
        path = self.root / "items.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        return path

    def packs(self) -> Path:
        """Return a copy of the shipped packs."""
        root = self.root / "packs"
        if not root.exists():
            for manifest in SHIPPED_ROOT.glob("*/manifest.json"):
                shutil.copytree(manifest.parent, root / manifest.parent.name)
        return root

    def tiny_run(self, options: Options) -> TinyRun:
        """Execute one whole run without Prefect."""
        specs: list[GroupSpec] = []
        contexts: list[RunContext] = []

        @contextmanager
        def runner(_: Plan) -> Iterator[RunGroups]:
            def run_groups(context: RunContext, requested: Sequence[GroupSpec]) -> Generator[GroupResult, None, None]:
                specs.extend(requested)
                contexts.append(context)
                runner = runtime_for(context)
                for future in [runner.submit(partial(run_group, spec)) for spec in requested]:
                    yield future.result()

            yield run_groups

        self._runs += 1
        out = self.root / f"run-{self._runs}"
        request = RunRequest(run_id="run", settings={**TINY, **options, "out": str(out)})
        summary = execute(request, {}, Observers(), runner, clock=utc_now)
        paths = TaskPaths.of(out, "tfgrpo-learning").run("run")
        manifest = json.loads(paths.manifest.read_text("utf-8"))
        outputs = [row["output"] for row in lines(paths.rollouts)]
        return TinyRun(summary.status, manifest, specs, contexts, outputs, lines(paths.metrics))

    def exchange(self, options: Options, **behaviour: Any) -> Exchange:
        settings = self.settings({**REAL, "tfgrpo.enabled": "on", **options})
        endpoint = Endpoint(settings.tfgrpo.group_size, **behaviour)
        self.monkeypatch.setattr(host, "open_transport", lambda **_: client_over(httpx.MockTransport(endpoint)))
        result, curation = asyncio.run(self._group(settings))
        return Exchange(endpoint.requests, result, curation)

    async def _group(self, settings: Settings) -> tuple[GroupResult, CurationResult]:
        self._runs += 1
        context = RunContext(
            settings=settings,
            run_dir=self.root / f"exchange-{self._runs}",
            run_id="run",
            pack_id="arithmetic",
            packs_root=None,
            read_secret=read_api_key,
            models=choose_models(settings),
        )
        runtime = await host.open_runtime(context)
        try:
            spec = _spec(settings)
            result = await run_group(spec, runtime)
            batch = CurationInput(epoch=1, batch=0, groups=(result,), known={}, items={"q": spec.item})
            return result, await curate_batch(batch, runtime)
        finally:
            await runtime.aclose()


def _spec(settings: Settings) -> GroupSpec:
    return GroupSpec(
        group_id="run:e1:train:00000",
        key=GroupKey(1, "train", "group", 0, "q"),
        item=Item(id="q", prompt="3 + 4?", answer="7", source="items.jsonl:1"),
        size=settings.tfgrpo.group_size,
        temperature=0.7,
        pack=PackText("Be careful.", sha256_hex("Be careful."), "arithmetic", "ab" * 32, ()),
        reflect=True,
    )
