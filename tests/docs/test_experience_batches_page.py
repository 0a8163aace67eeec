"""What docs/experience-batches.md shows is what the program does: its code runs, its tables are the program's."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.support.runs.pages import blocks, page, table
from tfgrpo.rewarders.advantages.batch import batch_advantages
from tfgrpo.rewarders.advantages.estimators import ALIASES, ESTIMATORS
from tfgrpo.stores.batch.batch import RaggedPolicy

PAGE = "docs/experience-batches.md"


def test_the_code_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-123456")
    code = "\n".join(block.text for block in blocks(PAGE, "python"))
    exec(compile(code, PAGE, "exec"), {"__name__": "page"})
    assert (tmp_path / "groups.parquet").exists()


def test_the_endpoint_of_the_page_is_asked_with_the_key_of_the_environment(monkeypatch):
    (shown,) = (block.text for block in blocks(PAGE, "python") if "EndpointPolicy(" in block.text)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-123456")
    names: dict = {}
    exec(compile(shown, PAGE, "exec"), names)
    assert names["endpoint"].headers()["authorization"] == "Bearer sk-secret-123456"
    assert "sk-secret" not in repr(names["endpoint"])


def test_every_estimator_is_in_the_table_with_its_names_formula_and_needs():
    shown = {row[0].strip("`"): row[1:] for row in table(page(PAGE), "estimator")}
    assert list(shown) == list(ESTIMATORS)
    for name, (aliases, formula, needs, alone) in shown.items():
        estimator = ESTIMATORS[name]
        assert [alias.strip("`") for alias in aliases.split(", ") if alias != "–"] == [
            alias for alias, target in ALIASES.items() if target == name
        ]
        assert formula == estimator.formula
        assert ("token lengths" in needs) == ("token_lengths" in estimator.needs)
        assert ("greedy" in needs) == ("greedy" in estimator.needs)
        assert ("the batch" in needs) == ("batch" in estimator.needs)
        assert alone == alone_in_the_batch(name), name


def alone_in_the_batch(name):
    """What a reward gets that is alone in its group, beside another group, as the column says it."""
    groups, more = [[0.75], [1.0, 0.0, 0.5]], {"token_lengths": [[3], [2, 4, 5]], "greedy": [0.5, 0.5]}
    if ESTIMATORS[name].singleton == "refuse":
        with pytest.raises(ValueError, match="has a single reward"):
            batch_advantages(groups, estimator=name, **more)
        return "refuse"
    value = batch_advantages(groups, estimator=name, **more)[0, 0]
    known = {0.0: "zero", 0.75: "r", 0.75 / (1 + 1e-6): "r / (1 + 1e-6)"}
    return known.get(value, "by the formula")


def test_every_policy_for_ragged_groups_is_in_the_table():
    rows = table(page(PAGE), "policy")
    assert [row[0].strip("`") for row in rows] == list(get_args(RaggedPolicy))
