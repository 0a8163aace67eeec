"""What docs/experience-batches.md shows is what the program does: its code runs, its tables are the program's."""

from __future__ import annotations

from typing import get_args

from rewarders.estimators import ALIASES, ESTIMATORS
from stores.experience_batch_ragged import RaggedPolicy
from tests.docs.pages import blocks, page, table

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
        assert ("token lengths" in needs) == estimator.weighs_tokens
        assert ("greedy" in needs) == ("greedy" in estimator.needs)
        assert ("the batch" in needs) == ("batch" in estimator.needs)
        assert alone == estimator.singleton


def test_every_policy_for_ragged_groups_is_in_the_table():
    rows = table(page(PAGE), "policy")
    assert [row[0].strip("`") for row in rows] == list(get_args(RaggedPolicy))
