"""Adapters for a torch policy and a torch reward model; torch itself is the extra ``torch``.

They run without gradients, move each result to the CPU once, and return Python numbers. The shape of log-probabilities
is checked here, before the reward model is called; the collector checks the rest.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from tfgrpo.stores.batch.shapes import LogProbs
from tfgrpo.stores.errors import SettingsError, ShapeError
from tfgrpo.stores.frozen_json import Json
from tfgrpo.stores.numeric import as_list
from tfgrpo.tasks.collector.collector import Generation, flat_values


class TorchPolicy:
    """A policy with ``generate_actions(states, num_actions_per_state)`` and ``get_log_probabilities(states, actions)``.

    Actions must be JSON values (texts, say). Raises ``ShapeError`` for an object that lacks one of the two methods, and
    ``SettingsError`` where torch is not installed.
    """

    def __init__(self, model: object) -> None:
        self._torch = _torch_for("policy_model", model, "generate_actions", "get_log_probabilities")
        self._model: Any = model

    def generate_batch(self, states: Sequence[Json], n: int, **options: Any) -> Any:
        """Return ``n`` actions for each state, with the log-probability of each whole action. Raise ``ShapeError``."""
        with self._torch.inference_mode():
            groups = self._model.generate_actions(list(states), num_actions_per_state=n, **options)
            rows = [as_list(row) for row in as_list(groups) or ()]
            if None in rows or len(rows) != len(states):
                return groups  # no groups of these states: the collector says what they are
            flat_states = [state for state, row in zip(states, rows, strict=True) for _ in row or ()]
            flat_actions = [action for row in rows for action in row or ()]
            values = self._model.get_log_probabilities(flat_states, flat_actions)
            totals = iter(_numbers("log_probs_old", values, len(flat_actions)))
        return [
            [Generation(action, logprob=LogProbs(total=next(totals), complete=True)) for action in row or ()]
            for row in rows
        ]


class TorchReward:
    """A reward model with ``compute_rewards(states, actions)`` that returns a 1-D tensor."""

    def __init__(self, model: object) -> None:
        self._torch = _torch_for("reward_model", model, "compute_rewards")
        self._model: Any = model

    def score_batch(self, states: Sequence[Json], completions: Sequence[Json]) -> list[float]:
        """Return one reward per completion. Raise ``ShapeError``."""
        with self._torch.inference_mode():
            return _numbers("rewards", self._model.compute_rewards(list(states), list(completions)), len(completions))


def _numbers(name: str, tensor: Any, count: int) -> list[float]:
    moved = tensor.detach().to("cpu") if hasattr(tensor, "detach") else tensor
    return [float(value) for value in flat_values(name, moved, count)]


def _torch_for(name: str, model: object, *methods: str) -> Any:
    missing = [method for method in methods if not callable(getattr(model, method, None))]
    if missing:
        raise ShapeError.one(name, " and ".join(methods), f"a {type(model).__name__} without {', '.join(missing)}")
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise SettingsError.one("torch", "not installed", "the extra: pip install 'tfgrpo[torch]'") from error
