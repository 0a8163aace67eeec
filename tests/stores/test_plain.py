"""Lines hold what ``dataclasses.asdict`` would have put there."""

import json
from dataclasses import asdict, dataclass, field

import hypothesis.strategies as st
from hypothesis import given

from tfgrpo.stores.plain import plain


@dataclass(frozen=True, slots=True)
class _Leaf:
    name: str
    value: float | None


@dataclass(frozen=True, slots=True)
class _Tree:
    leaves: tuple[_Leaf, ...]
    by_name: dict[str, _Leaf] = field(default_factory=dict)
    one: _Leaf | None = None


LEAVES = st.builds(_Leaf, st.text(), st.none() | st.floats(allow_nan=False, allow_infinity=False))


@given(st.builds(_Tree, st.lists(LEAVES).map(tuple), st.dictionaries(st.text(), LEAVES), st.none() | LEAVES))
def test_a_tree_of_dataclasses_is_written_as_asdict_writes_it(tree):
    assert json.dumps(plain(tree)) == json.dumps(asdict(tree))


def test_leaves_are_not_copied():
    value = float("1.5")
    assert plain(_Leaf("a", value))["value"] is value
