"""The adapters for torch models, tried with a small stand-in for torch: the real one does not fit into these tests."""

import contextlib
import sys
import types

import numpy as np
import pytest

from tfgrpo.stores.errors import SettingsError, ShapeError
from tfgrpo.tasks.collector import ExperienceCollector, TorchPolicy, TorchReward


class Tensor:
    """What the adapters use of ``torch.Tensor``."""

    def __init__(self, values, torch):
        self._values = np.array(values)
        self._torch = torch
        self.shape = self._values.shape
        self.where = "cuda"

    def detach(self):
        return self

    def to(self, device):
        self._torch.moves += 1
        self.where = device
        return self

    def tolist(self):
        assert self.where == "cpu"
        return self._values.tolist()


@pytest.fixture
def torch(monkeypatch):
    module = types.ModuleType("torch")
    module.depth = module.moves = 0

    @contextlib.contextmanager
    def inference_mode():
        module.depth += 1
        yield
        module.depth -= 1

    module.inference_mode = inference_mode
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


class Policy:
    def __init__(self, torch, logprobs=None):
        self.torch, self.logprobs, self.options = torch, logprobs, None

    def generate_actions(self, states, num_actions_per_state, **options):
        assert self.torch.depth == 1
        self.options = options
        return [[f"{state}{index}" for index in range(num_actions_per_state)] for state in states]

    def get_log_probabilities(self, states, actions):
        assert self.torch.depth == 1
        assert len(states) == len(actions)
        return Tensor([-float(at) for at in range(len(actions))] if self.logprobs is None else self.logprobs, self.torch)


class Rewards:
    def __init__(self, torch):
        self.torch, self.asked = torch, 0

    def compute_rewards(self, states, actions):
        assert self.torch.depth == 1
        self.asked += 1
        return Tensor([float(action.endswith("0")) for action in actions], self.torch)


def collector(policy, rewards):
    return ExperienceCollector(TorchPolicy(policy), TorchReward(rewards), 2)


def test_a_torch_policy_and_reward_model_give_the_four_lists(torch):
    policy = Policy(torch)
    batch = collector(policy, Rewards(torch)).collect_experiences(["a", "b"], top_k=5)
    assert batch.to_lists() == (["a", "b"], [["a0", "a1"], ["b0", "b1"]], [[1.0, 0.0]] * 2, [[0.0, -1.0], [-2.0, -3.0]])
    assert policy.options == {"top_k": 5}
    assert torch.depth == 0


@pytest.mark.parametrize("shape", [(4, 7), (3,), ()])
def test_log_probabilities_of_another_shape_are_refused_before_rewards_are_computed(torch, shape):
    rewards, policy = Rewards(torch), Policy(torch, np.zeros(shape))
    expected = "log_probs_old: expected 1-D of length 4 = the number of completions, received shape "
    with pytest.raises(ShapeError) as caught:
        collector(policy, rewards).collect_experiences(["a", "b"])
    assert str(caught.value) == f"{expected}{shape}"
    assert rewards.asked == 0


def test_models_that_lack_a_method_are_refused_with_all_that_is_missing(torch):
    with pytest.raises(ShapeError, match="without generate_actions, get_log_probabilities"):
        TorchPolicy(object())
    with pytest.raises(ShapeError, match="without compute_rewards"):
        TorchReward(object())


def test_without_torch_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SettingsError, match=r"tfgrpo\[torch\]"):
        TorchReward(types.SimpleNamespace(compute_rewards=lambda states, actions: None))
