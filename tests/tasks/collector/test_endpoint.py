"""An endpoint as a policy: one request for a group where it can, log-probabilities with the generation."""

from __future__ import annotations

import asyncio
import json
import random

import httpx
import pytest

from tfgrpo.stores.errors import ModelAuthRefused, ModelReplyMalformed, ModelRequestRejected, SettingsError, ShapeError
from tfgrpo.stores.ledger.ledger import Ledger
from tfgrpo.stores.ledger.state import Budget, Price
from tfgrpo.tasks.collector.collector import CollectorOptions, ExperienceCollector
from tfgrpo.tasks.collector.endpoint import EndpointPolicy, SamplingOptions, messages_of
from tfgrpo.tasks.models.endpoint import ApiKey, Endpoint
from tfgrpo.tasks.models.retry import RetryPolicy


def choice(text="fine", logprobs=(-0.5, -0.25), **more):
    message = {"role": "assistant", "content": text}
    half = len(text) // 2
    pieces = zip((text[:half], text[half:]), logprobs or (), strict=False)
    content = None if logprobs is None else {"content": [{"token": t, "logprob": value} for t, value in pieces]}
    return {"message": message, "finish_reason": "stop", "logprobs": content, **more}


def body(*choices, completion=None, **more):
    used = {"prompt_tokens": 10, "completion_tokens": completion or 2 * len(choices)}
    return {"id": "1", "model": "m-1", "choices": list(choices), "usage": used, **more}


class Vendor(httpx.AsyncBaseTransport):
    """Answers each request by a function of its JSON; keeps what it was asked."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    async def handle_async_request(self, request):
        self.asked.append(json.loads(await request.aread()))
        given = self.answer(self.asked[-1], len(self.asked))
        status, value = given if isinstance(given, tuple) else (200, given)
        return httpx.Response(status, json=value)


def policy(vendor, *, ledger=None, prices=None, **options):
    return EndpointPolicy(
        Endpoint("http://host.invalid/v1", ApiKey("sk-secret-123456")),
        SamplingOptions(**{"model": "m", **options}),
        transport=vendor,
        ledger=ledger,
        prices=prices,
        retry=RetryPolicy(max_retries=1, base_s=0.0),
        rng=random.Random(0),
    )


def many(asked, _):
    return body(*(choice(f"answer {index}") for index in range(asked.get("n", 1))))


async def test_a_group_is_one_request_with_log_probabilities():
    vendor = Vendor(many)
    async with policy(vendor, temperature=0.7, top_p=0.9, max_tokens=32, extra={"return_token_ids": True}) as chosen:
        found = await chosen.generate("2 + 2?", 4)
    assert vendor.asked == [
        {
            "model": "m", "messages": [{"role": "user", "content": "2 + 2?"}], "temperature": 0.7, "max_tokens": 32,
            "logprobs": True, "n": 4, "top_p": 0.9, "return_token_ids": True,
        }
    ]  # fmt: skip
    assert [generation.completion for generation in found] == [f"answer {index}" for index in range(4)]
    first = found[0]
    assert (first.logprob.total, first.logprob.count, first.logprob.complete) == (-0.75, 2, True)
    assert (first.sampling.model, first.sampling.temperature, first.sampling.top_p) == ("m-1", 0.7, 0.9)
    assert (first.sampling.finish_reason, first.usage.prompt_tokens, first.usage.completion_tokens) == ("stop", 10, 2)
    assert first.metadata == {"choices_in_request": 4}


async def test_an_endpoint_that_gives_one_choice_is_asked_again_for_the_rest():
    vendor = Vendor(lambda asked, count: body(choice(f"answer {count}")))
    found = await policy(vendor).generate("x", 3)
    assert [asked.get("n") for asked in vendor.asked] == [3, None, None]
    assert sorted(generation.completion for generation in found) == ["answer 1", "answer 2", "answer 3"]


async def test_an_endpoint_that_refuses_n_is_asked_one_by_one():
    def answer(asked, count):
        return (400, {"error": "n: Input should be 1"}) if "n" in asked else body(choice(f"answer {count}"))

    vendor = Vendor(answer)
    found = await policy(vendor).generate("x", 3)
    assert [asked.get("n") for asked in vendor.asked] == [3, None, None, None]
    assert [generation.status for generation in found] == ["ok"] * 3


async def test_a_request_refused_for_another_reason_is_repeated_only_once():
    vendor = Vendor(lambda asked, count: (400, {"error": "no such model"}))
    with pytest.raises(ModelRequestRejected, match="no such model"):
        await policy(vendor).generate("x", 8)
    assert len(vendor.asked) == 2


async def test_without_n_each_completion_is_a_request_with_its_own_seed():
    vendor = Vendor(many)
    chosen = policy(vendor, use_n=False, seed=5)
    await chosen.generate("x", 3)
    await chosen.generate("y", 1)
    seeds = [asked["seed"] for asked in vendor.asked]
    assert all("n" not in asked for asked in vendor.asked)
    assert len(set(seeds)) == 4
    again = Vendor(many)
    await policy(again, use_n=False, seed=5).generate("x", 3)
    assert [asked["seed"] for asked in again.asked] == seeds[:3]


async def seeds_of_a_collection(answer, *, size=3, states=("x", "x"), **sampling):
    vendor = Vendor(answer)
    collector = ExperienceCollector(
        policy(vendor, seed=5, **sampling), lambda *_: 1.0, size, CollectorOptions(ragged="resample")
    )
    collected = await collector.collect(list(states))
    return [asked["seed"] for asked in vendor.asked], [
        [rollout.sampling.seed for rollout in group.rollouts] for group in collected.batch
    ]


async def test_equal_states_of_one_collection_have_different_seeds():
    sent, kept = await seeds_of_a_collection(many, use_n=False)
    assert len(set(sent)) == 6
    assert sorted(sent) == sorted(seed for group in kept for seed in group)
    assert (await seeds_of_a_collection(many, use_n=False))[1] == kept
    sent, kept = await seeds_of_a_collection(many)
    assert [len(set(group)) for group in kept] == [1, 1]
    assert len(set(sent)) == 2


@pytest.mark.parametrize("use_n", [True, False])
async def test_repeated_requests_have_a_new_seed_in_every_round(use_n):
    def answer(asked, count):
        lost = [choice("cut", finish_reason="content_filter")] if asked.get("n") or count in (3, 4) else []
        return body(*lost, *(choice(f"answer {count}") for _ in range(asked.get("n", 1) - len(lost))))

    sent, kept = await seeds_of_a_collection(answer, states=["x"], use_n=use_n)
    assert len(sent) > (1 if use_n else 3)
    assert len(set(sent)) == len(sent)
    assert len(kept[0]) == 3
    assert (await seeds_of_a_collection(answer, states=["x"], use_n=use_n)) == (sent, kept)


async def test_the_choices_requested_again_have_their_own_seeds():
    sent, _ = await seeds_of_a_collection(lambda asked, count: body(choice(f"answer {count}")))
    assert len(set(sent)) == len(sent) == 6


async def test_options_of_a_collection_override_those_of_the_policy():
    vendor = Vendor(many)
    await policy(vendor).generate("x", 1, temperature=0.1, logprobs=False)
    assert (vendor.asked[0]["temperature"], "logprobs" in vendor.asked[0]) == (0.1, False)
    with pytest.raises(SettingsError, match=r"temprature.*accepted: model, temperature"):
        await policy(vendor).generate("x", 1, temprature=0.1)


async def test_hidden_tokens_leave_the_log_probabilities_incomplete():
    vendor = Vendor(lambda asked, count: body(choice(), completion=50))
    (alone,) = await policy(vendor).generate("x", 1)
    assert (alone.logprob.complete, alone.logprob.total, alone.usage.completion_tokens) == (False, None, 50)


async def test_the_kind_of_the_values_and_the_ids_of_the_tokens_are_kept():
    vendor = Vendor(lambda asked, count: body(choice(token_ids=[7, 8]), prompt_token_ids=[1, 2, 3]))
    (alone,) = await policy(vendor, logprob_kind="processed").generate("x", 1)
    assert (alone.logprob.kind, alone.logprob.token_ids, alone.prompt_token_ids) == ("processed", (7, 8), (1, 2, 3))


async def test_a_malformed_choice_does_not_affect_the_others():
    empty = choice("")
    filtered = choice("cut", finish_reason="content_filter")
    call = {"message": {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}}
    vendor = Vendor(lambda asked, count: body(empty, choice("fine", None), filtered, call))
    found = await policy(vendor).generate("x", 4)
    assert [generation.status for generation in found] == ["transport_error", "ok", "filtered", "parse_error"]
    assert "empty" in found[0].error
    assert found[1].logprob is None
    assert "called a tool" in found[3].error
    assert len(vendor.asked) == 1


async def test_a_reply_without_any_usable_choice_fails_as_a_whole():
    for answer in (body(choice(""), choice("")), body(), {"id": "x"}):
        vendor = Vendor(lambda asked, count, answer=answer: answer)
        with pytest.raises(ModelReplyMalformed):
            await policy(vendor).generate("x", 2)
        assert len(vendor.asked) == 2


async def test_single_requests_that_fail_do_not_affect_the_others():
    def answer(asked, count):
        return (400, {"error": {"message": "too long"}}) if count == 2 else body(choice())

    found = await policy(Vendor(answer), use_n=False).generate("x", 3)
    assert sorted(generation.status for generation in found) == ["ok", "ok", "transport_error"]
    with pytest.raises(ModelAuthRefused):
        await policy(Vendor(lambda asked, count: (401, {})), use_n=False).generate("x", 2)


async def test_the_api_key_is_removed_from_every_choice():
    vendor = Vendor(lambda asked, count: body(choice("a"), choice("key sk-secret-123456")))
    found = await policy(vendor).generate("x", 2)
    assert found[1].completion == "key ***"


async def test_a_request_for_many_is_reserved_and_settled_as_a_whole():
    ledger = Ledger(Budget(max_tokens=3_000))
    prices = {"m": Price.per_million(1.0, 10.0)}
    chosen = policy(Vendor(many), ledger=ledger, prices=prices, max_tokens=500)
    found = await chosen.generate("x", 4)
    assert sum(generation.usage.cost_usd for generation in found) == pytest.approx(10e-6 + 80e-6)
    assert ledger.totals().tokens == 18
    over = ExperienceCollector(policy(Vendor(many), ledger=ledger, max_tokens=900), lambda *_: 1.0, 4)
    with pytest.raises(ShapeError, match=r"BudgetRefused.*tokens"):
        await over.collect(["x"])


@pytest.mark.parametrize(
    "state",
    [3, [], [{"role": "user"}], [{"role": "tool", "content": "x"}], [{"role": "user", "content": "x", "name": "n"}]],
)
async def test_an_invalid_state_ends_the_collection_before_any_request(state):
    vendor = Vendor(many)
    with pytest.raises(SettingsError, match="state"):
        await ExperienceCollector(policy(vendor), lambda *_: 1.0, 2).collect([state])
    assert vendor.asked == []


def test_messages_are_sent_as_they_are():
    sent = messages_of([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])
    assert [(message.role, message.content) for message in sent] == [("system", "s"), ("user", "u")]


async def test_a_collection_over_a_real_connection():
    async def serve(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.split("content-length: ")[1].split("\r\n")[0])
        asked = json.loads(await reader.readexactly(size))
        text = json.dumps(many(asked, 1)).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, EndpointPolicy(Endpoint(f"http://127.0.0.1:{port}/v1"), SamplingOptions("m")) as chosen:
        collector = ExperienceCollector(chosen, lambda state, text: float(text.endswith("0")), 4)
        collected = await collector.collect(["a", "b"])
    assert [group.rewards for group in collected.batch] == [(1.0, 0.0, 0.0, 0.0)] * 2
    assert collected.batch.arrays().logp_old.tolist() == [[-0.75] * 4] * 2


async def test_of_a_group_in_one_request_a_choice_short_of_values_is_never_ready_for_ratios():
    whole, short = choice("an answer"), choice("an answer", logprobs=(-0.5,))
    for completion in (3, 4, None):
        vendor = Vendor(lambda asked, count, completion=completion: body(whole, short, completion=completion))
        collector = ExperienceCollector(policy(vendor, top_p=1.0), lambda *_: 1.0, 2)
        (group,) = (await collector.collect(["x"])).batch
        assert [rollout.ratio_ready for rollout in group.rollouts] == [True, False]
        assert [rollout.usage.completion_tokens for rollout in group.rollouts] == [2, None]
