import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.records.watched import Watched
from tfgrpo.pipelines.settings.tree import ModelSettings
from tfgrpo.stores import errors
from tfgrpo.stores.errors import ActorError, CorruptFile, ModelCallError, ModelTimeout
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.runs import CallKey, Journal
from tfgrpo.tasks.models.base import ChatReply, ChatRequest, Message, TokenUsage, ToolCall
from tfgrpo.tasks.models.chat import JournaledModel, reply_of_json, reply_to_json
from tfgrpo.tasks.models.wire import request_digest

KEY = CallKey(GroupKey(1, "train", "train", 0, "q1"), 0, 0, "rollout")
REQUEST = ChatRequest("m", (Message("user", "2+2?"),), 0.7, 64, seed=1)
REPLY = ChatReply(
    Message(
        "assistant",
        None,
        tool_calls=(ToolCall("c", "add", "{}", '{"extra_content":1}'), ToolCall("d", "add", "{}")),
        extra='{"reasoning_content":""}',
    ),
    "tool_calls",
    TokenUsage(10, 5, cached=3, reasoning=2),
    0.25,
    0.001,
    "m-served",
    "id-1",
    attempts=2,
    token_logprobs=(-0.5, 0.0),
)


class Scripted:
    """Answers when told to; fails when that is what it holds."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.calls = 0

    async def complete(self, request, key):
        self.calls += 1
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "journal.jsonl") as opened:
        yield opened


async def test_an_answered_call_is_never_made_again(journal):
    inner = Scripted(REPLY)
    assert await JournaledModel(inner, journal).complete(REQUEST, KEY) == REPLY
    with Journal(journal.path) as reopened:
        again = await JournaledModel(None, reopened).complete(REQUEST, KEY)
    assert again == replace(REPLY, replayed=True)
    assert inner.calls == 1


@given(
    st.builds(
        ChatReply,
        st.builds(
            Message,
            st.just("assistant"),
            st.none() | st.text(alphabet=st.characters(exclude_categories=("Cs",))),
            st.tuples(st.builds(ToolCall, st.text(max_size=3), st.text(max_size=3), st.text(max_size=3))) | st.just(()),
        ),
        st.sampled_from(["stop", "length", "tool_calls", "content_filter", "other"]),
        st.none() | st.builds(TokenUsage, st.integers(9, 2**53), st.integers(9, 2**53), st.integers(0, 9), st.integers(0, 9)),
        st.floats(0, 1e6),
        st.none() | st.floats(0, 1e3),
        st.text(max_size=5),
        st.none() | st.text(max_size=5),
        st.integers(1, 9),
        st.none() | st.lists(st.floats(-100, 0), max_size=3).map(tuple),
        st.just(True),
    )
)
def test_every_reply_survives_the_journal(reply):
    assert reply_of_json(reply_to_json(reply)) == reply


async def test_a_failure_carries_its_key_and_is_not_journalled(journal):
    model = JournaledModel(Scripted(ModelTimeout("late"), REPLY), journal)
    with pytest.raises(ModelTimeout) as caught:
        await model.complete(REQUEST, KEY)
    key_text = KEY.text(request_digest(REQUEST))
    assert caught.value.__notes__ == [f"call {key_text}"]
    assert str(caught.value) == "late"
    assert pickle.loads(pickle.dumps(caught.value)).__notes__ == [f"call {key_text}"]
    assert len(journal) == 0
    assert await model.complete(REQUEST, KEY) == REPLY


def every_call_error(kind=ModelCallError):
    return [kind, *(found for child in kind.__subclasses__() for found in every_call_error(child))]


@pytest.mark.parametrize("kind", [*every_call_error(), ActorError])
async def test_a_journalled_failure_is_raised_again_as_what_it_was(journal, kind):
    inner = Scripted()
    journal.append_failure(KEY.text(request_digest(REQUEST)), kind.__name__, "as it was")
    with pytest.raises(errors.TfgrpoError, match="as it was") as caught:
        await JournaledModel(inner, journal).complete(REQUEST, KEY)
    assert type(caught.value) is kind
    assert caught.value.__notes__ == [f"call {KEY.text(request_digest(REQUEST))}"]
    assert inner.calls == 0


async def test_an_invalid_entry_is_a_corrupt_file(journal):
    journal.append(KEY.text(request_digest(REQUEST)), {"content": "half"})
    with pytest.raises(CorruptFile, match="1/train/0/q1"):
        await JournaledModel(None, journal).complete(REQUEST, KEY)


@pytest.mark.parametrize("kind", ["reply", "failure"])
async def test_an_invalid_entry_is_ignored_where_the_call_can_be_repeated(journal, kind):
    key_text = KEY.text(request_digest(REQUEST))
    journal._append(key_text, kind, {"content": "half"})  # type: ignore[arg-type]
    inner = Scripted(REPLY)
    assert await JournaledModel(inner, journal).complete(REQUEST, KEY) == REPLY
    assert inner.calls == 1
    assert journal.warning
    assert b"half" in journal.path.with_name(journal.path.name + ".torn").read_bytes()
    with Journal(journal.path) as again:
        assert (again.warning, again.get(key_text)["payload"]) == (None, reply_to_json(REPLY))


NO_USAGE = ([-10, 5, 0, 0], [0, 0, 0, 0], ["10", 5, 0, 0], [1e300, 5, 0, 0], [True, 5, 0, 0], [10, 5], "10", {"prompt": 1})


@pytest.mark.parametrize(
    "changed",
    [
        *({"usage": usage, "cost_usd": 0.5} for usage in NO_USAGE),
        *({"cost_usd": cost} for cost in (-1.0, "0.1", True, 10**400)),
    ],
    ids=str,
)
async def test_usage_and_cost_in_an_entry_that_are_none_are_unknown(journal, changed):
    journal.append(KEY.text(request_digest(REQUEST)), {**reply_to_json(REPLY), **changed})
    reply = await JournaledModel(None, journal).complete(REQUEST, KEY)
    assert (reply.usage, reply.cost_usd) == (None if "usage" in changed else REPLY.usage, None)
    assert reply.message == REPLY.message


async def test_a_call_is_a_span_and_is_counted_and_a_replay_is_only_a_span(journal):
    watched = Watched()
    model = JournaledModel(Scripted(REPLY), journal, watched.telemetry)
    await model.complete(REQUEST, KEY)
    await model.complete(REQUEST, KEY)
    made, replayed = (dict(span.attributes or {}) for span in watched.spans())
    assert watched.spans()[0].name == "chat m"
    assert made["gen_ai.usage.input_tokens"] == 10
    assert made["gen_ai.response.model"] == "m-served"
    assert made["gen_ai.request.seed"] == 1
    assert set(replayed) - set(made) == {"tfgrpo.replayed"}
    (point,) = watched.points("tfgrpo.llm.duration")
    assert point.count == 1
    assert (point.attributes["tfgrpo.phase"], point.attributes["tfgrpo.role"]) == ("train", "rollout")
    tokens = {each.attributes["gen_ai.token.type"]: each.value for each in watched.points("tfgrpo.llm.tokens")}
    assert tokens == {"input": 10, "output": 5}


async def test_a_failed_call_is_counted_under_its_error_and_in_its_phase(journal):
    watched = Watched()
    model = JournaledModel(Scripted(ModelTimeout("the secret reason")), journal, watched.telemetry)
    with pytest.raises(ModelTimeout):
        await model.complete(REQUEST, CallKey(GroupKey(3, "eval", "library", 0, "q1"), 0, 0, "rollout"))
    (point,) = watched.points("tfgrpo.llm.duration")
    assert (point.attributes["error.type"], point.attributes["tfgrpo.phase"]) == ("ModelTimeout", "eval")
    (span,) = watched.spans()
    assert "secret" not in span.to_json()


@pytest.mark.parametrize("asked_for", [False, True])
async def test_a_span_has_prompts_and_answers_only_when_asked_for_and_what_was_sent_alone(journal, asked_for):
    watched = Watched(content=asked_for)
    reply = ChatReply(Message("assistant", "four!"), "stop", None, 0.1, None, "m")
    wire = ModelSettings(send_temperature=asked_for, send_seed=asked_for)
    await JournaledModel(Scripted(reply), journal, watched.telemetry, wire=wire).complete(REQUEST, KEY)
    text = watched.spans()[0].to_json()
    for word in ("2+2?", "four!", "gen_ai.request.temperature", "gen_ai.request.seed"):
        assert (word in text) is asked_for
    assert "gen_ai.request.max_tokens" in text


async def test_a_reply_that_could_not_be_journalled_is_not_returned(journal, monkeypatch):
    def full(*_):
        raise errors.StoreError("no space left")

    monkeypatch.setattr(journal, "append", full)
    with pytest.raises(errors.StoreError, match="no space left"):
        await JournaledModel(Scripted(REPLY), journal).complete(REQUEST, KEY)
