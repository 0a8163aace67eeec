"""Is the list of public names the truth?"""

from __future__ import annotations

import prompt_packs


def test_all_is_sorted_and_every_name_exists() -> None:
    names = prompt_packs.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert len(set(names)) == len(names)
    assert [name for name in names if not hasattr(prompt_packs, name)] == []


def test_the_names_of_the_specification_are_public() -> None:
    assert {"load_prompt_pack", "merge_experiences", "load_instruction_set", "StampVerifier"} <= set(
        prompt_packs.__all__
    )
