"""A grading service over real sockets: what it is asked, and what its answers, late, long or wrong, are worth."""

import asyncio
import json
import re
import socket
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType

import pytest
from aiohttp import web

from tests.support.rewards.scoring import built, group, numbers
from tests.support.vectors import rows_of
from tfgrpo.rewarders.graders import remote as remote_module
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import RewardContext, Verdict
from tfgrpo.stores.errors import PipelineError

RECORD = {"prompt": "How many?", "answer": "42", "metadata": {"level": [1]}, "source": "not sent"}


def item(number: int, output: str, record=RECORD) -> RewardContext:
    """Return an item of a mix with one output, which its client calls by a number."""
    made = group(output, record=record, parse="think", completion_indices=(number,))
    return replace(made, item_id=f"d:{number}", outputs=tuple(replace(each, tokens=None) for each in made.outputs))


def items(count: int = 3) -> list[RewardContext]:
    return [item(number, f"<think>r</think>{number}") for number in range(count)]


def result(sample, **changed):
    return {"sample_id": sample["sample_id"], "completion_index": sample["completion_index"], "reward": 0.25, **changed}


class Service:
    """Answers with what ``answer(samples)`` makes; keeps what it was asked."""

    def __init__(self, answer):
        self.answer = answer
        self.bodies: list[dict] = []
        self.headers: list[dict] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        self.bodies.append(json.loads(await request.read()))
        said = self.answer(self.bodies[-1]["samples"])
        if asyncio.iscoroutine(said):
            said = await said
        if callable(said):
            return await said(request)
        return said if isinstance(said, web.StreamResponse) else web.json_response({"results": said})


@asynccontextmanager
async def serving(answer):
    service = Service(answer)
    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/grade", service.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    service.url = f"http://{host}:{port}/grade"
    try:
        yield service
    finally:
        await runner.cleanup()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(remote_module, "_WAIT_S", 0.01)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


async def asked(answer, contexts=None, **options):
    """The verdicts on a batch, and the service that was asked."""
    async with serving(answer) as service:
        return await verdicts_of(built("remote", url=service.url, **options), contexts), service


async def verdicts_of(scorer, contexts=None) -> list[Verdict]:
    with ScoreRunner() as runner:
        found = await runner.score(scorer, contexts or items())
    return [verdict for verdicts in found for verdict in verdicts]


def reasons(found) -> set[str]:
    return {verdict.reason for verdict in found}


async def test_the_service_is_sent_every_sample_in_the_form_it_knows():
    found, service = await asked(lambda samples: [result(sample) for sample in samples], items(2))
    assert numbers(found) == [0.25, 0.25]
    known = {"prompt": "How many?", "system_prompt": None, "answer": "42", "metadata": {"level": [1]}, "reasoning": "r"}
    for n, sample in enumerate(service.bodies[0].pop("samples")):
        said = {"completion": f"<think>r</think>{n}", "final_response": f"{n}", "completion_tokens": None}
        assert sample == {**known, **said, "sample_id": f"d:{n}", "completion_index": n}
    assert service.bodies == [{}]
    assert service.headers[0]["Content-Type"] == "application/json"
    assert "Authorization" not in service.headers[0]


async def test_records_of_any_shape_go_out_and_the_one_that_cannot_costs_itself_only():
    inputs = [
        item(0, "\ud800 lone", MappingProxyType({"metadata": MappingProxyType({"a": 1})})),
        item(1, "x", {"metadata": {"score": float("nan")}}),
        item(2, "x", ["no", "object"]),
        item(3, "x", {"answer": {"no", "ab"}}),  # of which ``dict`` would make an object
    ]
    found, service = await asked(lambda samples: [result(sample) for sample in samples], inputs)
    assert numbers(found) == [0.25, None, 0.25, None]
    assert "cannot be sent as JSON" in found[1].reason
    assert [sample["sample_id"] for sample in service.bodies[0]["samples"]] == ["d:0", "d:2"]
    assert service.bodies[0]["samples"][0]["metadata"] == {"a": 1}
    found, service = await asked(lambda samples: [], inputs[1:2])
    assert (numbers(found), service.bodies) == ([None], [])


def numbered(samples):
    return [result(sample, reward=float(place)) for place, sample in enumerate(samples)]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda said: said[:0:-1], [None, 1.0, 2.0]),
        (lambda said: [*said[:2], {"sample_id": "d:77", "completion_index": 2, "reward": 5}], [0.0, 1.0, None]),
        (lambda said: web.json_response({}), [None] * 3),
        (lambda said: [{"sample_id": 7, "reward": 1}, {"reward": 1}, {"reward": 1}], [None] * 3),
        (lambda said: [{"reward": 1}, {"sample_id": "x:1", "reward": 1}, {"reward": 1}], [None] * 3),
        (lambda said: [{"completion_index": 7 + n, "reward": 1} for n in range(3)], [None] * 3),
        (lambda said: [{"sample_id": "d:0", "reward": n} for n in range(3)], [None] * 3),
        (lambda said: [{**said[0], "reward": "good"}, {"sample_id": "d:1", "completion_index": 1}, said[2]], [None, None, 2.0]),
        (lambda said: [{"reward": 7}, {"reward": 8}], [7.0, 8.0, None]),
        (lambda said: [{"sample_id": one["sample_id"], "reward": one["reward"]} for one in said[::-1]], [0.0, 1.0, 2.0]),
    ],
)
async def test_results_find_their_items_and_wrong_ones_cost_their_own(change, expected):
    found, _ = await asked(lambda samples: change(numbered(samples)))
    assert numbers(found) == expected


async def test_a_reward_that_is_no_finite_number_is_none():
    text = '{"results": [{"sample_id": "d:0", "completion_index": 0, "reward": 1e999}, {"sample_id": "d:1", "reward": NaN}]}'
    found, _ = await asked(lambda samples: web.Response(body=text.encode()))
    assert ["no finite number" in each.reason for each in found] == [True, False, False]
    assert "no result" in found[2].reason


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (web.Response(text="<html>"), "its answer is no JSON"),
        (web.json_response({"results": {"d:0": 1}}), "no list of results"),
        (web.Response(status=404), "it answered 404"),
        (web.Response(status=307, headers={"Location": "http://127.0.0.1:9/elsewhere"}), "a redirect, which is not followed"),
        (web.Response(status=302, headers={"Location": "http://[bad"}), "grade: "),
        (web.json_response({"results": []}, headers={"Content-Encoding": "br"}), "encoding 'br', which was not asked for"),
    ],
)
async def test_an_answer_that_asking_again_does_not_mend_is_final(answer, said):
    async def same(request):
        return answer

    found, service = await asked(lambda samples: same)
    assert [each.broke for each in found] == [True] * 3
    assert said in found[0].reason
    assert len(service.bodies) == 1


async def test_a_key_is_never_taken_to_where_a_redirect_points(monkeypatch):
    monkeypatch.setenv("GRADER_TOKEN", "s3cret")
    async with serving(numbered) as other:
        found, service = await asked(
            lambda samples: web.Response(status=308, headers={"Location": other.url}), token_env="GRADER_TOKEN"
        )
        assert other.bodies == []
    assert service.headers[0]["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in str(found)


async def breaks(request):
    request.transport.abort()
    return web.Response()


@pytest.mark.parametrize("fault", [429, 500, breaks])
async def test_a_passing_fault_is_retried(fault):
    seen: list[int] = []

    def answer(samples):
        seen.append(1)
        if len(seen) > 2:
            return numbered(samples)
        return fault if callable(fault) else web.Response(status=fault)

    found, service = await asked(answer)
    assert numbers(found) == [0.0, 1.0, 2.0]
    assert len(service.bodies) == 3


async def test_retries_are_bounded_and_a_service_that_is_not_there_is_unavailable():
    found, service = await asked(lambda samples: web.Response(status=500), retries=1)
    assert [each.broke for each in found] == [True] * 3
    assert "it answered 500 (2 attempts)" in found[0].reason
    assert len(service.bodies) == 2  # not again item by item
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/grade?who=confidential"
        found = await verdicts_of(built("remote", url=url, retries=0))
    assert re.search(r"/grade: \w*ConnectorError", found[0].reason)
    assert "confidential" not in found[0].reason


async def test_an_answer_that_trickles_is_cut_at_the_limit():
    async def trickle(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(200):
            await response.write(b" ")
            await asyncio.sleep(0.05)
        return response

    found, service = await asked(lambda samples: trickle, timeout_s=2.0)
    assert [each.late for each in found] == [True] * 3
    assert "no whole answer within 2 s" in found[0].reason
    assert len(service.bodies) == 1


async def test_the_limit_is_one_for_all_attempts():
    async def slow(samples):
        await asyncio.sleep(0.05)
        return web.Response(status=503)

    found, service = await asked(slow, timeout_s=1.0, retries=10)
    assert [each.late for each in found] == [True] * 3
    assert 1 < len(service.bodies) < 10


async def test_a_huge_answer_is_not_read_to_its_end():
    sent = 0

    async def huge(request):
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1024):
            await response.write(b" " * (1 << 20))
            sent += 1
        return response

    found, _ = await asked(lambda samples: huge)
    assert "bytes; the rest was not read" in found[0].reason
    assert sent < 200


async def test_a_token_that_has_gone_makes_the_service_unavailable(monkeypatch):
    monkeypatch.setenv("GRADER_TOKEN", "s3cret")
    scorer = built("remote", url="http://127.0.0.1:9/grade", token_env="GRADER_TOKEN")
    monkeypatch.setenv("GRADER_TOKEN", "two words")
    assert reasons(await verdicts_of(scorer)) == {"http://127.0.0.1:9/grade: the variable GRADER_TOKEN holds no token"}


def test_every_option_that_means_nothing_is_named_at_once_and_no_secret_is_repeated():
    table = "every_option_that_means_nothing_is_named_at_once_and_no_secret_is_repeated"
    for options, named in rows_of("graders_remote", table):
        with pytest.raises(PipelineError) as caught:
            built("remote", **options)
        sources = [problem.source.removeprefix("rewarders: remote: options.") for problem in caught.value.problems]
        assert sources == named.split()
        assert not re.search("s3cret|4711", str(caught.value))
