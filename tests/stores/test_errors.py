"""The tree of failures is what its docstring draws."""

import inspect
import pickle
import re

import pytest

from tfgrpo.stores import errors
from tfgrpo.stores.errors import ConfigError, OptionError, RepairExhausted, SettingsError, ShapeError, TfgrpoError, error_named
from tfgrpo.stores.outcomes import status_of, status_of_outcome

_CLASSES = {name: kind for name, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)}
_CARRY_MORE = ConfigError | OptionError | RepairExhausted | ShapeError


def _drawn() -> dict[str, str]:
    """Class to parent, as drawn: four columns of indent are one level."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"^(?P<indent>[ \u2502\u251c\u2514\u2500]*)(?P<name>[A-Z]\w+)(?:\s|$)", line):
            depth = len(match["indent"]) // 4
            if depth == 0:
                continue
            path[depth - 1 :] = [match["name"]]
            parents[match["name"]] = path[depth - 2] if depth > 1 else "Exception"
    return parents


def test_the_drawn_tree_is_the_real_one():
    assert _drawn() == {name: kind.__base__.__name__ for name, kind in _CLASSES.items()}


@pytest.mark.parametrize(
    "error",
    [
        SettingsError.one("--epochs", "0", "1 or more"),
        RepairExhausted("no JSON after 2 attempts", [("{", "line 1")]),
        OptionError("weight is -1", "at least 0"),
        ShapeError.one("rewards", "shape (2, 8)", "(2, 7)", "first bad group: index 1, id 'q-17'"),
        *(kind("why") for kind in _CLASSES.values() if not issubclass(kind, _CARRY_MORE)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_keep_their_fields_when_pickled(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert isinstance(copy, TfgrpoError)


def test_a_recorded_failure_is_read_as_its_class():
    for name in (*_CLASSES, "NoSuchError", "annotations", "Problem", "Exception"):
        error, kind = error_named(name, "why"), _CLASSES.get(name, errors.ActorError)
        assert type(error) is (errors.ActorError if issubclass(kind, _CARRY_MORE) else kind)
        assert str(error) == "why"


def test_every_error_and_outcome_has_one_status():
    statuses = {name: status_of(kind) for name, kind in _CLASSES.items()}
    calls = {name for name, kind in _CLASSES.items() if issubclass(kind, errors.ModelCallError)}
    assert {name for name, status in statuses.items() if status == "transport_error"} == calls - {"ModelTimeout"}
    assert {name for name, status in statuses.items() if status == "timeout"} == {"ModelTimeout"}
    assert {name for name, status in statuses.items() if status == "refused"} == {"BudgetRefused"}
    assert [status_of(kind) for kind in (TimeoutError, OSError, ValueError)] == ["timeout", "transport_error", "error"]

    assert status_of_outcome("failed", "ModelTimeout", None) == "timeout"
    assert status_of_outcome("failed", "NoSuchError", None) == "error"
    assert status_of_outcome("failed", "ModelOfMyOwn", None) == "error", "a user's class is none of ours by its name"
    assert status_of_outcome("ungraded", "empty", "stop") == "parse_error"
    assert status_of_outcome("ungraded", "empty", "content_filter") == "filtered"
    assert status_of_outcome("ungraded", "rewarder", "stop") == "ok"
    assert status_of_outcome("refused", "", None) == "refused"
    assert status_of_outcome("scored", "", "content_filter") == "ok"
