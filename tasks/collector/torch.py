"""Adapters for a torch policy and a torch reward model; torch itself is the extra ``torch``.

They run without gradients, move each result to the CPU once, and return Python numbers. Shapes are checked here, those
of log-probabilities before the reward model is called.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from typing import Any

from tfgrpo.stores.batch.shapes import LogProbs
from tfgrpo.stores.errors import SettingsError, ShapeError, ShapeProblem
from tfgrpo.stores.frozen_json import Json
from tfgrpo.stores.numeric import as_list
from tfgrpo.tasks.collector.protocols import Generation


class TorchPolicy:
    """A policy with ``generate_actions(states, num_actions_per_state)`` and ``get_log_probabilities(states, actions)``.

    Actions must be JSON values (texts, say). Raises ``ShapeError`` for an object that lacks one of the two methods, and
    ``SettingsError`` where torch is not installed.
    """

    def __init__(self, model: object) -> None:
        self._torch = _torch_for("policy_model", model, "generate_actions", "get_log_probabilities")
        self._model: Any = model

    def generate_batch(self, states: Sequence[Json], n: int, **options: Any) -> list[list[Generation]]:
        """Return ``n`` actions for each state, with the log-probability of each whole action. Raise ``ShapeError``."""
        with self._torch.inference_mode():
            groups = self._model.generate_actions(list(states), num_actions_per_state=n, **options)
            _check_groups(groups, len(states), n)
            flat_states = [state for state, group in zip(states, groups, strict=True) for _ in group]
            flat_actions = [action for group in groups for action in group]
            values = _numbers(
                "log_probs_old", self._model.get_log_probabilities(flat_states, flat_actions), flat_actions
            )
        logprobs = iter(values)
        return [
            [Generation(action, logprob=LogProbs(total=next(logprobs), complete=True)) for action in group]
            for group in groups
        ]


class TorchReward:
    """A reward model with ``compute_rewards(states, actions)`` that returns a 1-D tensor."""

    def __init__(self, model: object) -> None:
        self._torch = _torch_for("reward_model", model, "compute_rewards")
        self._model: Any = model

    def score_batch(self, states: Sequence[Json], completions: Sequence[Json]) -> list[float]:
        """Return one reward per completion. Raise ``ShapeError``."""
        with self._torch.inference_mode():
            return _numbers("rewards", self._model.compute_rewards(list(states), list(completions)), completions)


def _numbers(name: str, tensor: Any, like: Sequence[object]) -> list[float]:
    """Return a 1-D tensor, array or list as numbers, one for each of ``like``. Raise ``ShapeError``."""
    moved = tensor.detach().to("cpu") if hasattr(tensor, "detach") else tensor
    values = as_list(moved)
    shape = getattr(tensor, "shape", None)
    received = f"shape {tuple(shape)}" if shape is not None else f"a {type(tensor).__name__}"
    wanted = f"1-D of length {len(like)} = the number of actions"
    if values is None or any(as_list(value) is not None for value in values):
        raise ShapeError.one(name, wanted, received)
    if len(values) != len(like):
        raise ShapeError.one(name, wanted, received if shape is not None else f"length {len(values)}")
    return [float(value) for value in values]


def _torch_for(name: str, model: object, *methods: str) -> Any:
    """Return the module torch, for a model that has these methods."""
    missing = [method for method in methods if not callable(getattr(model, method, None))]
    if missing:
        raise ShapeError.one(name, " and ".join(methods), f"a {type(model).__name__} without {', '.join(missing)}")
    with contextlib.suppress(ImportError):
        return importlib.import_module("torch")
    raise SettingsError.one("torch", "not installed", "the extra: pip install 'tfgrpo[torch]'")


def _check_groups(groups: Any, states: int, size: int) -> None:
    rows = as_list(groups)
    if rows is None or len(rows) != states:
        received = f"a {type(groups).__name__}" if rows is None else f"{len(rows)} groups"
        raise ShapeError.one("action_groups", f"{states} groups, one for each state", received)
    problems = [
        ShapeProblem("action_groups", f"{size} actions", _length(row), f"state index {index}")
        for index, row in enumerate(rows)
        if _length(row) != str(size)
    ]
    if problems:
        raise ShapeError(problems)


def _length(row: object) -> str:
    values = as_list(row)
    return f"a {type(row).__name__}" if values is None else str(len(values))
