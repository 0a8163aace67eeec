"""The names of the specification are at the door of the packs."""

from __future__ import annotations

from tfgrpo import prompt_packs


def test_the_names_of_the_specification_are_public() -> None:
    assert {"load_prompt_pack", "merge_experiences", "StampVerifier"} <= set(prompt_packs.__all__)
