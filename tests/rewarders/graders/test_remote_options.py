"""Options of the remote grader: every bad one is named at once, and no secret is repeated."""

from __future__ import annotations

import pickle

import pytest

from tests.support.rewards.scoring import built
from tfgrpo.rewarders.graders.remote import RemoteGrader
from tfgrpo.stores.errors import PipelineError


def test_every_option_without_a_meaning_is_named_at_once(monkeypatch):
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    with pytest.raises(PipelineError) as caught:
        RemoteGrader("ftp://host", timeout_s=0, retries=99, token_env="NO_SUCH_TOKEN")
    assert [problem.source for problem in caught.value.problems] == ["url", "timeout_s", "retries", "token_env"]


@pytest.mark.parametrize(
    "url", ["", "host/grade", "http://", "http://u:secret@h/", "http://h:99999999/", "http://[x", None]
)
def test_what_is_no_address_is_refused_without_repeating_it(url):
    with pytest.raises(PipelineError) as caught:
        RemoteGrader(url)
    assert "secret" not in str(caught.value)


def test_the_name_of_a_variable_is_wanted_and_not_the_token():
    with pytest.raises(PipelineError) as caught:
        RemoteGrader("http://h", token_env="sk-secret-token", retries=True)
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize("options", [{"token": 4711}, {"token_env": 4711}])
def test_a_token_under_a_wrong_name_or_that_is_no_text_is_not_repeated(options):
    with pytest.raises(PipelineError) as caught:
        built("remote", url="http://h", **options)
    assert [problem.source for problem in caught.value.problems] == [
        f"rewarders: remote: options.{next(iter(options))}"
    ]
    assert "4711" not in str(caught.value)


def test_a_remote_grader_can_travel_to_another_process():
    grader = RemoteGrader("http://127.0.0.1/grade", timeout_s=3)
    assert pickle.loads(pickle.dumps(grader)) == grader
