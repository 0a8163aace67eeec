"""A price has a source: the pipeline's own table, then the vendor's list; elsewhere it is unknown."""

import socket
import sys

import pytest

from tfgrpo.pipelines.settings import guardrails, model_choice
from tfgrpo.pipelines.settings.guardrails import validate_tfgrpo_config
from tfgrpo.pipelines.settings.model_choice import PriceList, choose_models
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.ledger import Price

OPENAI = "https://api.openai.com/v1"


def listed(model: str, url: str) -> Price | None:
    return PriceList({}, url).get(model)


def settings(**model: object) -> Settings:
    return Settings.model_validate({"model": {"base_url": OPENAI, **model}, "budget": {"max_usd": 5.0}})


def test_the_own_table_counts_before_the_vendors_list():
    own = settings(name="gpt-4.1", prices={"gpt-4.1": {"input": 1.0, "output": 2.0}})
    (row,) = choose_models(own).price_rows
    assert (row["input"], row["output"], row["source"]) == (1.0, 2.0, "model.prices")
    (row,) = choose_models(settings(name="gpt-4.1")).price_rows
    assert (row["input"], row["output"], row["cached_input"]) == (2.0, 8.0, 0.5)
    assert str(row["source"]).startswith("genai-prices ")
    assert str(row["source"]).endswith(", openai/gpt-4.1")


def test_a_cap_in_dollars_holds_for_known_models_without_a_table():
    validate_tfgrpo_config(settings(name="gpt-4.1"))
    with pytest.raises(SettingsError, match="no price for 'gpt-of-nobody'"):
        validate_tfgrpo_config(settings(name="gpt-of-nobody"))


def test_a_model_elsewhere_has_no_known_price_and_one_of_a_vendor_has_without_any_network(monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    model_choice._listed.cache_clear()
    assert listed("gpt-4.1", OPENAI) is not None
    for url in ("https://proxy.example/v1", "https://openrouter.ai/api/v1"):
        assert listed("gpt-4.1", url) is None
    assert [listed(name, OPENAI) for name in ("openai/gpt-4.1", "of-nobody")] == [None, None]
    local = Settings.model_validate({"model": {"name": "gpt-4.1", "base_url": "http://localhost:8000/v1"}})
    assert choose_models(local).unpriced == ("gpt-4.1",)


def test_each_role_has_the_price_of_its_endpoint():
    roles = {"reflection": {"name": "openai/gpt-4.1", "base_url": "https://openrouter.ai/api/v1", "api_key": "env:OR"}}
    rows = choose_models(settings(name="gpt-4.1", **roles)).price_rows
    assert [(row["model"], row["endpoint"]) for row in rows] == [
        ("gpt-4.1", OPENAI),
        ("openai/gpt-4.1", "https://openrouter.ai/api/v1"),
    ]
    assert all(row["source"] for row in rows)


def test_a_long_prompt_has_the_price_of_long_prompts():
    price = Price(1, 2, dearer=((200, Price(10, 20)), (500, Price(100, 200))))
    assert [price.cost(prompt, 1) for prompt in (200, 201, 500, 501)] == [202, 2030, 5020, 50300]
    gemini = listed("gemini-2.5-pro", "https://generativelanguage.googleapis.com/v1beta/openai")
    assert gemini is not None
    assert gemini.cost(400_000, 0) > 2 * gemini.cost(200_000, 0)


def test_without_the_package_prices_are_unknown_and_the_refusal_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "genai_prices.data_snapshot", None)
    monkeypatch.setattr(model_choice, "_listed", model_choice._listed.__wrapped__)  # nothing that was looked up before
    monkeypatch.setattr(guardrails, "find_spec", lambda name: None)
    assert listed("gpt-4.1", OPENAI) is None
    with pytest.raises(SettingsError, match=r"pip install 'tfgrpo\[prices\]'"):
        validate_tfgrpo_config(settings(name="gpt-4.1"))
