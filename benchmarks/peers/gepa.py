"""Run GEPA itself (``gepa.optimize``) on an order, and print the prompt it ends with.

Reflection is the service's reflecting role, through GEPA's own hook for proposals: the packaged prompt of GEPA means
nothing to a simulated model. That role learns from contrasts alone, so an item that failed is tried again, at the
optimizer's cost. Selection, Pareto front, mini-batches and acceptance are GEPA's, with its defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gepa

from benchmarks.peers.service import Attempt, Item, Service, read_order

PROMPT = "prompt"
VALIDATION = 40
"""Items of the validation set, the first of those to learn on; the others are the training set."""

TRIES = 3


class Adapter:
    """The seam of GEPA: one prompt, attempts at items, and lessons as mutations."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def evaluate(self, batch: list[Item], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        """Attempt the items of a batch."""
        with ThreadPoolExecutor(8) as threads:
            attempts = list(threads.map(lambda item: self._service.attempt(candidate[PROMPT], item), batch))
        rewards = [attempt.reward for attempt in attempts]
        return gepa.EvaluationBatch(attempts, rewards, attempts if capture_traces else None)

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Pass the attempts on."""
        del candidate, components_to_update
        return {PROMPT: [{"attempt": attempt} for attempt in eval_batch.trajectories]}

    def propose_new_texts(
        self,
        candidate: dict[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> dict[str, str]:
        """Add a lesson to the prompt."""
        del components_to_update
        attempts: list[Attempt] = [row["attempt"] for row in reflective_dataset[PROMPT]]
        pairs = (self._contrast(candidate[PROMPT], attempt) for attempt in attempts if attempt.reward < 1.0)
        pair = next(filter(None, pairs), None)
        lesson = self._service.reflect(pair) if pair is not None else ""
        return {PROMPT: "\n".join([candidate[PROMPT], *([lesson] if lesson else [])])}

    def _contrast(self, system: str, failed: Attempt) -> tuple[Attempt, Attempt] | None:
        """Return a better attempt at the same item and the failed one."""
        tries = (self._service.attempt(system, failed.item) for _ in range(TRIES))
        better = next((attempt for attempt in tries if attempt.reward > failed.reward), None)
        return None if better is None else (better, failed)


class Quiet:
    """Logs nothing."""

    def log(self, message: str) -> None:
        """Drop a message."""


def main() -> None:
    """Optimize, and print the prompt and the number of calls as one JSON object."""
    order = read_order()
    service = Service(order.url)
    result = gepa.optimize(
        seed_candidate={PROMPT: order.system},
        trainset=order.items[VALIDATION:],
        valset=order.items[:VALIDATION],
        adapter=Adapter(service),
        stop_callbacks=lambda _: service.calls >= order.calls - 2 * VALIDATION,
        seed=order.seed,
        logger=Quiet(),
    )
    print(json.dumps({"system": result.best_candidate[PROMPT], "calls": service.calls}))


if __name__ == "__main__":
    main()
