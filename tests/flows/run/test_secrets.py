"""The key comes from where the pipeline says, and from nowhere into a message."""

import pytest
from prefect.blocks.system import Secret

from tfgrpo.flows.run.prepare import read_api_key
from tfgrpo.pipelines.settings.tree import ModelSettings
from tfgrpo.stores.errors import SettingsError

KEY = "sk-quite-secret"


@pytest.mark.parametrize("value", [None, ""])
def test_an_endpoint_without_a_key_gets_none(monkeypatch, value):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("OPENAI_API_KEY", value)
    assert read_api_key(ModelSettings()) is None


@pytest.mark.parametrize(("held", "read"), [(KEY, KEY), ("", None)])
def test_a_secret_block_wins_over_the_environment(monkeypatch, held, read):
    async def load(name):
        assert name == "vendor"
        return Secret(value=held)

    monkeypatch.setenv("OPENAI_API_KEY", "another")
    monkeypatch.setattr(Secret, "aload", load)
    assert read_api_key(ModelSettings(api_key="secret:vendor")) == read


@pytest.mark.parametrize(
    ("error", "says"), [(ValueError(f"no block {KEY}"), "no such block"), (RuntimeError(KEY), "no answer from Prefect")]
)
def test_a_block_that_cannot_be_read_is_refused_without_its_name(monkeypatch, error, says):
    async def load(name):
        raise error

    monkeypatch.setattr(Secret, "aload", load)
    with pytest.raises(SettingsError, match=says) as caught:
        read_api_key(ModelSettings(api_key=f"secret:{KEY}"))
    assert KEY not in str(caught.value)
