"""Where calls go, with which key, and that texts of users' code are recorded without it and without lone surrogates."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from tfgrpo.pipelines.settings.model import ModelSettings
from tfgrpo.rewarders.runner import GroupScores
from tfgrpo.rewarders.scorer import Abstained
from tfgrpo.stores.errors import EndpointError
from tfgrpo.stores.frozen_json import FrozenDict, frozen
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.stores.text import replace_surrogates
from tfgrpo.tasks.models.endpoint import ApiKey, Endpoint, endpoint_of, scrubbed, scrubber
from tfgrpo.tasks.shapes import Frame, Trajectory

SECRET = "sk-very-secret-0123456789"


def test_no_text_or_pickle_of_an_endpoint_shows_the_key() -> None:
    endpoint = Endpoint("http://h/v1", ApiKey(f" {SECRET}\n"))
    assert endpoint.headers()["authorization"] == f"Bearer {SECRET}"
    for text in (repr(endpoint), str(endpoint), f"{endpoint.api_key}", repr(dataclasses.asdict(endpoint))):
        assert SECRET not in text
        assert "***" in text
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(endpoint)
    key = ApiKey(SECRET)
    assert copy.copy(key) is key
    assert copy.deepcopy(key) is key


@pytest.mark.parametrize("text", ["", "  ", "two words", "line\nbreak", "schlüssel", "nul\x00"])
def test_a_key_that_is_invalid_in_a_header_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(EndpointError) as caught:
        ApiKey(text)
    assert not text.strip() or text not in str(caught.value)


@pytest.mark.parametrize("url", ["", "host/v1", "ftp://h/v1", "http://", "http://[bad", "/v1", "http://h:99999999/v1"])
def test_an_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(EndpointError, match="base URL"):
        Endpoint(url)


@pytest.mark.parametrize(("key", "kind"), [("sk-secret-1", "a plain text"), (b"sk-secret-1", "of type bytes")])
def test_a_key_that_is_no_api_key_is_refused_at_once_without_showing_it(key, kind) -> None:
    with pytest.raises(EndpointError, match=rf"^api_key: got .*{kind}; accepted: ApiKey\(.*None$") as caught:
        Endpoint("https://host/v1", key)
    assert "secret" not in str(caught.value)


def test_an_api_key_is_made_of_text() -> None:
    with pytest.raises(EndpointError, match=r"^API key: got a value of type NoneType; accepted: the key as text$"):
        ApiKey(None)  # type: ignore[arg-type]


def test_credentials_inside_the_address_are_refused_and_not_shown() -> None:
    with pytest.raises(EndpointError) as caught:
        Endpoint("https://me:hunter2@h/v1")
    assert "hunter2" not in str(caught.value)


def test_paths_are_appended_to_the_root_and_a_query_is_kept_but_not_shown() -> None:
    endpoint = Endpoint("https://h:8443/openai/v1/?api-version=1")
    assert str(endpoint.url("/models")) == "https://h:8443/openai/v1/models?api-version=1"
    assert endpoint.display_url == "https://h:8443/openai/v1"
    assert Endpoint("http://[::1]:80/v1").display_url == "http://[::1]/v1"
    assert "authorization" not in endpoint.headers()


def test_an_excerpt_is_short_and_loses_the_key_before_it_is_cut() -> None:
    endpoint = Endpoint("http://h", ApiKey(SECRET))
    text = endpoint.excerpt("x" * 290 + SECRET + "\n\n tail")
    assert len(text) <= 300
    assert SECRET[:6] not in text
    assert endpoint.excerpt("a\n  b") == "a b"
    assert Endpoint("http://h").excerpt(SECRET) == SECRET
    assert Endpoint("http://h", ApiKey("x")).excerpt("axb") == "axb"


def test_every_setting_of_the_endpoint_is_used() -> None:
    settings = ModelSettings(
        name="a",
        max_tokens_field="max_completion_tokens",
        timeout_s=7.0,
        structured="none",
        send_seed=False,
    )
    endpoint = endpoint_of(settings, "http://h/v1", SECRET, ("a", "b"))
    assert endpoint.wire is settings
    assert (endpoint.models, endpoint.timeout_s) == (("a", "b"), 7.0)
    assert endpoint.api_key is not None
    assert endpoint_of(ModelSettings(), "http://h", "  ").api_key is None
    assert endpoint_of(ModelSettings(), "http://h", None).models == ()


KEY = "sk-test-0123456789abcdef"
SCRUB = scrubber(ApiKey(KEY))


def test_the_key_is_removed_from_every_text_of_a_rewarder() -> None:
    details = frozen({"votes": [{"raw": f"{KEY}!"}], "mean": 0.5})
    scores = GroupScores(
        verdicts=((RewardScore("r", 0.5, f"saw {KEY}", details), Abstained("s", f"no {KEY}")),),
        totals={"a": 0.5},
        faults={"s": f"broke at {KEY}"},
    )
    kept = scrubbed(scores, SCRUB)
    assert KEY not in repr(kept)
    score, silent = kept.verdicts[0]
    assert score == RewardScore("r", 0.5, "saw ***", FrozenDict({"votes": (FrozenDict({"raw": "***!"}),), "mean": 0.5}))
    assert silent == Abstained("s", "no ***")
    assert (kept.totals, kept.faults) == ({"a": 0.5}, {"s": "broke at ***"})


def test_texts_without_the_key_are_unchanged() -> None:
    details = frozen({"votes": [1, 2]})
    scores = GroupScores(((RewardScore("r", 0.5, "7 = 7", details),),), {"a": 0.5}, {})
    assert scrubbed(scores, SCRUB) == scores
    trajectory = Trajectory("7 é", (Frame("model", "m", "x", 1, None, 1.0),))
    assert scrubbed(trajectory, SCRUB) == trajectory


def test_lone_surrogates_are_replaced_in_every_text() -> None:
    half = "a\ud83db"
    assert replace_surrogates(half) == "a?b"
    kept = scrubbed(Trajectory(half, (Frame("tool", half, half, 1, None, 1.0, half),)), scrubber())
    assert kept == Trajectory("a?b", (Frame("tool", "a?b", "a?b", 1, None, 1.0, "a?b"),))
