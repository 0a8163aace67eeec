"""Draws follow the weights of the stage in force, evenly within a dataset, and repeat with a seed."""

import random

import pytest

from tests.support.pipelines.mixes import ROWS, write_mix
from tfgrpo.pipelines.mix.config import MixSampler, load_mix_config


@pytest.fixture
def config(tmp_path):
    return load_mix_config(write_mix(tmp_path, seed=3))


def test_the_stage_is_the_first_whose_boundary_lies_above_the_step_and_the_last_for_ever(config):
    names = {step: config.stage_at(step).name for step in (-5, 0, 9, 10, 29, 30, 10**9)}
    assert names == {-5: "warm-up", 0: "warm-up", 9: "warm-up", 10: "mixed", 29: "mixed", 30: "mixed", 10**9: "mixed"}


def test_a_seed_repeats_the_whole_stream_and_every_draw_advances_it(config, tmp_path):
    first, second = MixSampler(config), MixSampler(config)
    asked = [(0, 3), (12, 5), (0, 3)]
    one = [first.draw(*each) for each in asked]
    assert one == [second.draw(*each) for each in asked]
    assert one[0] != one[2]
    assert first.draw(0, 8) != first.draw(0, 8)
    assert MixSampler(config, random.Random(4)).draw(0, 20) != MixSampler(config, random.Random(3)).draw(0, 20)
    unseeded = load_mix_config(write_mix(tmp_path))
    assert MixSampler(unseeded).draw(0, 40) != MixSampler(unseeded).draw(0, 40)


def test_the_stream_is_that_of_independent_choices(config):
    """Dataset by ``choices``, record by ``randint``, item after item: as samplers of this form have always drawn."""
    rng = random.Random(3)
    expected = []
    for _ in range(50):
        name = rng.choices(["a", "b"], [0.25, 0.75], k=1)[0]
        expected.append((name, rng.randint(0, ROWS - 1)))
    assert MixSampler(config).draw(15, 50) == expected
