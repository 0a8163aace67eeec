"""Record metrics: one small typed method per event, a no-op without instruments.

Unknown figures are omitted, never recorded as zero. Names chosen by users or models (tools, models, error classes) are
bounded: beyond the bound they become ``other``, so that no run can flood a metrics backend.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from opentelemetry.metrics import Counter, Histogram, Meter
from opentelemetry.metrics import _Gauge as Gauge

from tfgrpo.stores.outcomes import OutcomeName, Phase, Signal
from tfgrpo.stores.telemetry import names as n
from tfgrpo.stores.text import replace_surrogates

NAMES_PER_KEY: Final = 24
"""Distinct names of one open attribute per process."""
_OPEN_KEYS: Final = (
    n.TOOL, n.MODEL, n.REWARDER, n.DOMAIN, n.REASON, n.RULE, n.ERROR_TYPE, n.AGENT, n.PROVIDER, n.GRADER, n.DATASET,
)  # fmt: skip
Attributes = dict[str, str | int]


class NameBounds:
    """The names of each open attribute; the first ones keep their name."""

    def __init__(self, limit: int = NAMES_PER_KEY) -> None:
        self._limit = limit
        self._seen: dict[str, set[str]] = {key: set() for key in _OPEN_KEYS}
        self._turn = threading.Lock()

    def admit(self, key: str, name: str) -> str:
        """Return the name while it is within the bound, else ``other``."""
        seen = self._seen[key]
        if name in seen:
            return name
        name = replace_surrogates(name)  # a lone surrogate would fail the whole export
        with self._turn:  # two threads must not both add the last name
            if name not in seen and len(seen) >= self._limit:
                return n.OTHER
            seen.add(name)
        return name


@dataclass(frozen=True, slots=True)
class Instruments:
    """All instruments of a meter."""

    counters: Mapping[str, Counter]
    histograms: Mapping[str, Histogram]
    gauges: Mapping[str, Gauge]

    @classmethod
    def of(cls, meter: Meter, genai: n.GenaiMetrics) -> Instruments:
        """Create our instruments, and those of the chosen convention."""
        metrics = (*n.OURS, *n.GENAI[genai])
        return cls(
            {m.name: meter.create_counter(m.name, m.unit, m.description) for m in metrics if m.kind == "counter"},
            {
                m.name: meter.create_histogram(
                    m.name, m.unit, m.description, explicit_bucket_boundaries_advisory=m.boundaries
                )
                for m in metrics
                if m.kind == "histogram"
            },
            {m.name: meter.create_gauge(m.name, m.unit, m.description) for m in metrics if m.kind == "gauge"},
        )


class Recorder:
    """The metrics of ``Telemetry``. ``instruments`` None: every method returns at once."""

    def __init__(self, instruments: Instruments | None) -> None:
        self._instruments = instruments
        self._bounds = NameBounds()

    def record_tool_call(  # noqa: PLR0913 - keyword-only; one event has this many facts
        self,
        *,
        epoch: int,
        phase: Phase,
        tool: str,
        duration_s: float,
        tokens: int = 0,
        token_type: n.TokenType = "total",  # noqa: S107 - no password
        cost_usd: float | None = None,
        error_type: str | None = None,
        group_size: int | None = None,
    ) -> None:
        """Record a tool call. ``cost_usd`` None: unknown."""
        if self._instruments is None:
            return
        base: Attributes = {n.EPOCH: int(epoch), n.PHASE: phase, n.TOOL: self._bounds.admit(n.TOOL, tool)}
        if group_size is not None:
            base[n.GROUP_SIZE] = int(group_size)
        failed = self._error(error_type)
        self._count(n.TOOL_CALLS, 1, {**base, n.OUTCOME: "error" if failed else "ok"})
        self._observe(n.TOOL_DURATION, duration_s, {**base, **failed})
        self._count(n.TOOL_MONEY, cost_usd, base)
        self._count(n.TOOL_TOKENS, tokens, {**base, n.TOKEN_TYPE: token_type})
        self._observe(n.GENAI_TOOL, duration_s, {n.TOOL: base[n.TOOL], **failed})

    def record_llm_call(  # noqa: PLR0913 - keyword-only; one event has this many facts
        self,
        *,
        epoch: int,
        phase: Phase,
        role: str,
        model: str,
        duration_s: float,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cost_usd: float | None = None,
        error_type: str | None = None,
        provider: str = "openai",
    ) -> None:
        """Record a model call. Unknown tokens and cost are None; unknown roles become ``other``."""
        if self._instruments is None:
            return
        name = self._bounds.admit(n.MODEL, model)
        base: Attributes = {
            n.EPOCH: int(epoch),
            n.PHASE: phase,
            n.ROLE: role if role in n.ROLES else n.OTHER,
            n.MODEL: name,
        }
        failed = self._error(error_type)
        self._observe(n.LLM_DURATION, duration_s, {**base, **failed})
        self._count(n.LLM_MONEY, cost_usd, base)
        call: Attributes = {n.OPERATION: "chat", n.PROVIDER: self._bounds.admit(n.PROVIDER, provider), n.MODEL: name}
        self._observe(n.GENAI_INFERENCE, duration_s, {**call, **failed})
        self._observe(n.GENAI_OPERATION, duration_s, {**call, **failed})
        for kind, tokens in (("input", input_tokens), ("output", output_tokens)):
            if tokens is not None:
                self._count(n.LLM_TOKENS, tokens, {**base, n.TOKEN_TYPE: kind})
                self._observe(n.GENAI_TOKENS, tokens, {**call, n.TOKEN_TYPE: kind})

    def record_rollout(
        self,
        *,
        epoch: int,
        phase: Phase,
        outcome: OutcomeName,
        duration_s: float,
        agent: str = "chat",
        error_type: str | None = None,
        group_size: int | None = None,
    ) -> None:
        """Record a rollout with any outcome."""
        if self._instruments is None:
            return
        base: Attributes = {n.EPOCH: int(epoch), n.PHASE: phase, n.OUTCOME: outcome}
        size: Attributes = {} if group_size is None else {n.GROUP_SIZE: int(group_size)}
        self._count(n.ROLLOUTS, 1, {**base, **size})
        self._observe(n.ROLLOUT_DURATION, duration_s, base)
        name = self._bounds.admit(n.AGENT, agent)
        self._observe(n.GENAI_AGENT, duration_s, {n.AGENT: name, **self._error(error_type)})

    def record_reward(self, *, epoch: int, phase: Phase, rewarder: str, score: float) -> None:
        """Record the score of one rewarder for one rollout."""
        if self._instruments is not None:
            name = self._bounds.admit(n.REWARDER, rewarder)
            self._observe(n.REWARDS, score, {n.EPOCH: int(epoch), n.PHASE: phase, n.REWARDER: name})

    def record_group(
        self, *, epoch: int, phase: Phase, signal: Signal, spread: float | None, group_size: int | None = None
    ) -> None:
        """Record a group. ``spread`` None: fewer than two scored rollouts."""
        if self._instruments is None:
            return
        base: Attributes = {n.EPOCH: int(epoch), n.PHASE: phase}
        size: Attributes = {} if group_size is None else {n.GROUP_SIZE: int(group_size)}
        self._count(n.GROUPS, 1, {**base, **size, n.SIGNAL: signal})
        if spread is not None:
            self._observe(n.GROUP_SPREAD, spread, base)

    def record_experience_op(
        self, *, epoch: int, domain: str, op: n.ExperienceOp, reason: str | None = None, count: int = 1
    ) -> None:
        """Record operations on the library. ``reason``: short code for a rejection."""
        if self._instruments is None:
            return
        base: Attributes = {n.EPOCH: int(epoch), n.DOMAIN: self._bounds.admit(n.DOMAIN, domain), n.OP: op}
        if reason is not None:
            base[n.REASON] = self._bounds.admit(n.REASON, reason)
        self._count(n.EXPERIENCES, count, base)

    def record_library(self, *, domain: str, active: int) -> None:
        """Record the size of the library."""
        self._gauge(n.ACTIVE, active, {n.DOMAIN: domain})

    def record_injected(self, *, epoch: int, domain: str, count: int) -> None:
        """Record lessons injected into a prompt."""
        if self._instruments is not None:
            self._count(n.INJECTED, count, {n.EPOCH: int(epoch), n.DOMAIN: self._bounds.admit(n.DOMAIN, domain)})

    def record_epoch(
        self,
        *,
        epoch: int,
        phase: Phase,
        duration_s: float,
        reward_mean: float | None = None,
        solve_rate: float | None = None,
    ) -> None:
        """Record an epoch. Means are None without scored rollouts."""
        self._observe(n.EPOCH_DURATION, duration_s, {n.PHASE: phase})
        self._gauge(n.EPOCH_REWARD, reward_mean, {n.EPOCH: int(epoch), n.PHASE: phase})
        self._gauge(n.EPOCH_SOLVED, solve_rate, {n.EPOCH: int(epoch), n.PHASE: phase})

    def record_run(self, *, run_id: str, task_id: str | None) -> None:
        """Record that a run reports: the one metric with its id, which on all others would be new series every night."""
        self._gauge(n.RUN_INFO, 1, {n.RUN_ID: run_id, **({} if task_id is None else {n.TASK_ID: task_id})})

    def record_guardrail(self, *, rule: str) -> None:
        """Record a lesson refused by a guard rail; ``rule`` is its short name."""
        if self._instruments is not None:
            self._count(n.VIOLATIONS, 1, {n.RULE: self._bounds.admit(n.RULE, rule)})

    def record_grades(self, *, grader: str, scored: int, ungraded: int) -> None:
        """Record the items that a grader of the data server graded, and failed to grade."""
        if self._instruments is not None:
            name = self._bounds.admit(n.GRADER, grader)
            self._count(n.GRADES, scored, {n.GRADER: name, n.OUTCOME: "scored"})
            self._count(n.GRADES, ungraded, {n.GRADER: name, n.OUTCOME: "ungraded"})

    def record_samples(self, *, dataset: str, count: int) -> None:
        """Record samples of a dataset sent by the data server."""
        if self._instruments is not None:
            self._count(n.SAMPLES, count, {n.DATASET: self._bounds.admit(n.DATASET, dataset)})

    def record_request(self, *, method: str, route: str, status: int, duration_s: float) -> None:
        """Record a request to the data server. ``method`` and ``route`` are from closed sets."""
        attributes: Attributes = {n.HTTP_METHOD: method, n.HTTP_ROUTE: route, n.HTTP_STATUS: status}
        self._observe(n.REQUEST_DURATION, duration_s, attributes)

    def _error(self, error_type: str | None) -> Attributes:
        return {} if error_type is None else {n.ERROR_TYPE: self._bounds.admit(n.ERROR_TYPE, error_type)}

    def _count(self, metric: n.Metric, amount: float | None, attributes: Attributes) -> None:
        if self._instruments is not None and amount is not None and math.isfinite(amount) and amount > 0:
            self._instruments.counters[metric.name].add(amount, attributes)

    def _observe(self, metric: n.Metric, value: float, attributes: Attributes) -> None:
        """Ignore instruments of a convention that is off."""
        if self._instruments is None or not math.isfinite(value):
            return
        histogram = self._instruments.histograms.get(metric.name)
        if histogram is not None:
            histogram.record(value, attributes)

    def _gauge(self, metric: n.Metric, value: float | None, attributes: Attributes) -> None:
        if self._instruments is not None and value is not None and math.isfinite(value):
            self._instruments.gauges[metric.name].set(value, attributes)
