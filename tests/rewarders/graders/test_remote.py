"""A grading service over real sockets: what it is asked, and what its answers, late, long or wrong, are worth."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from types import MappingProxyType

import pytest
from aiohttp import web
from tfgrpo.rewarders.graders.running import GraderRunner

from tfgrpo.rewarders.graders import remote as remote_module
from tfgrpo.rewarders.graders.base import GraderInput, NotGraded
from tfgrpo.rewarders.graders.remote import RemoteGrader
from tfgrpo.stores.errors import GraderUnavailable

RECORD = {"prompt": "How many?", "answer": "42", "metadata": {"level": [1]}, "source": "not sent"}


def items(count: int = 3) -> list[GraderInput]:
    return [GraderInput.of(f"d:{n}", RECORD, f"<think>r</think>{n}", completion_index=n) for n in range(count)]


def result(sample, **changed):
    return {"sample_id": sample["sample_id"], "completion_index": sample["completion_index"], "reward": 0.25, **changed}


class Service:
    """Answers with what ``answer(samples)`` makes; keeps what it was asked."""

    def __init__(self, answer):
        self.answer = answer
        self.bodies: list[dict] = []
        self.headers: list[dict] = []
        self.ports: set[int] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        self.ports.add(request.transport.get_extra_info("peername")[1])
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


async def asked(answer, inputs=None, **options):
    """Grades of a batch, and the service that was asked."""
    async with serving(answer) as service:
        with GraderRunner() as runner:
            grades = await runner.grade("remote", RemoteGrader(service.url, **options), inputs or items())
    return grades, service


def rewards(grades) -> list[float | None]:
    return [None if isinstance(grade, NotGraded) else grade for grade in grades]


async def test_the_service_is_sent_every_sample_in_the_form_it_knows():
    grades, service = await asked(lambda samples: [result(sample) for sample in samples], items(2))
    assert rewards(grades) == [0.25, 0.25]
    assert service.bodies == [
        {
            "samples": [
                {
                    "sample_id": f"d:{n}",
                    "prompt": "How many?",
                    "system_prompt": None,
                    "answer": "42",
                    "metadata": {"level": [1]},
                    "completion": f"<think>r</think>{n}",
                    "reasoning": "r",
                    "final_response": f"{n}",
                    "completion_tokens": None,
                    "completion_index": n,
                }
                for n in range(2)
            ]
        }
    ]
    assert service.headers[0]["Content-Type"] == "application/json"
    assert "Authorization" not in service.headers[0]


async def test_records_of_any_shape_go_out_and_the_one_that_cannot_costs_itself_only():
    inputs = [
        GraderInput.of("d:0", MappingProxyType({"metadata": MappingProxyType({"a": 1})}), "\ud800 lone"),
        GraderInput.of("d:1", {"metadata": {"score": float("nan")}}, "x"),
        GraderInput.of("d:2", ["no", "object"], "x"),  # type: ignore[arg-type]
        GraderInput.of("d:3", {"answer": {1, 2}}, "x"),
    ]
    grades, service = await asked(lambda samples: [result(sample) for sample in samples], inputs)
    assert rewards(grades) == [0.25, None, 0.25, None]
    assert "cannot be sent as JSON" in grades[1].reason
    assert [sample["sample_id"] for sample in service.bodies[0]["samples"]] == ["d:0", "d:2"]
    assert service.bodies[0]["samples"][0]["metadata"] == {"a": 1}


async def test_when_nothing_can_be_sent_nobody_is_asked():
    grades, service = await asked(lambda samples: [], [GraderInput.of("d:0", {"answer": float("inf")}, "x")])
    assert rewards(grades) == [None]
    assert service.bodies == []


def numbered(samples):
    return [result(sample, reward=float(place)) for place, sample in enumerate(samples)]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda said: said, [0.0, 1.0, 2.0]),
        (lambda said: said[::-1], [0.0, 1.0, 2.0]),
        (lambda said: said[1:], [None, 1.0, 2.0]),
        (lambda said: [*said, {"sample_id": "d:77", "reward": 5}], [0.0, 1.0, 2.0]),
        (lambda said: [*said[:2], {"sample_id": "d:77", "completion_index": 2, "reward": 5}], [0.0, 1.0, None]),
        (lambda said: [], [None] * 3),
        (lambda said: [{**said[0], "reward": "0.5"}, {**said[1], "reward": True}, said[2]], [0.5, 1.0, 2.0]),
        (lambda said: [{**said[0], "reward": "good"}, {**said[1], "reward": None}, said[2]], [None, None, 2.0]),
        (lambda said: [said[0], {"sample_id": "d:1", "completion_index": 1}, None], [0.0, None, None]),
        (lambda said: [{"reward": 7}, {"reward": 8}, {"reward": 9}], [7.0, 8.0, 9.0]),
        (lambda said: [{"reward": 7}, {"reward": 8}], [7.0, 8.0, None]),
        (
            lambda said: [{"sample_id": one["sample_id"], "reward": one["reward"]} for one in said[::-1]],
            [0.0, 1.0, 2.0],
        ),
    ],
    ids=[
        "right",
        "reversed",
        "short",
        "long",
        "foreign",
        "empty",
        "numbers",
        "no numbers",
        "no reward",
        "nameless",
        "few",
        "ids",
    ],
)
async def test_results_find_their_items_and_wrong_ones_cost_their_own(change, expected):
    grades, _ = await asked(lambda samples: change(numbered(samples)))
    assert rewards(grades) == expected


@pytest.mark.parametrize(
    ("names", "foreign"),
    [
        ([{"sample_id": f"x:{n}"} for n in range(3)], "'x:0'"),
        ([{"sample_id": f"x:{n}", "completion_index": n} for n in range(3)], "'x:0', completion_index 0"),
        ([{"sample_id": "x:7"}] * 3, "'x:7'"),
        ([{"sample_id": 7}, {}, {}], "7"),
        ([{}, {"sample_id": "x:1"}, {}], "'x:1'"),
        ([{"completion_index": n} for n in (7, 8, 9)], "completion_index 7"),
    ],
)
async def test_results_that_name_other_samples_reach_nobody_by_position(names, foreign):
    grades, _ = await asked(lambda samples: [{**name, "reward": 1.0} for name in names])
    assert rewards(grades) == [None] * 3
    assert {grade.reason for grade in grades} == {
        f"the grader returned no result for it, but one for {foreign}, which it was not asked for"
    }


async def test_one_name_for_all_results_is_believed():
    grades, _ = await asked(lambda samples: [{"sample_id": "d:0", "reward": reward} for reward in (0.5, 0.25, 1.0)])
    assert rewards(grades) == [None] * 3
    assert [grade.error_type for grade in grades] == ["TwoResults", "NoResult", "NoResult"]


async def test_empty_names_are_none():
    names = {"sample_id": "", "completion_index": None}
    grades, _ = await asked(lambda samples: [{**names, "reward": float(n)} for n in range(3)])
    assert rewards(grades) == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("text", ['{"results": [{"sample_id": "d:0", "completion_index": 0, "reward": %s}]}'])
@pytest.mark.parametrize("reward", ["NaN", "Infinity", "1e999"])
async def test_a_reward_that_is_no_finite_number_is_none(text, reward):
    grades, _ = await asked(lambda samples: web.Response(body=(text % reward).encode()))
    assert rewards(grades) == [None] * 3
    assert "no finite number" in grades[0].reason
    assert "no result" in grades[1].reason


async def test_an_answer_without_results_leaves_the_items_ungraded():
    grades, _ = await asked(lambda samples: web.json_response({}))
    assert {grade.error_type for grade in grades} == {"NoResult"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (web.Response(text="<html>"), "its answer is no JSON"),
        (web.Response(body=b"[" * 100_000), "its answer is no JSON"),
        (web.json_response([1.0]), "no list of results"),
        (web.json_response({"results": {"d:0": 1}}), "no list of results"),
        (web.Response(status=404), "it answered 404"),
        (web.Response(status=422, text="no"), "it answered 422"),
        (
            web.Response(status=307, headers={"Location": "http://127.0.0.1:9/elsewhere"}),
            "a redirect, which is not followed",
        ),
        (web.Response(status=302, headers={"Location": "http://[bad"}), "grade: "),
        (
            web.json_response({"results": []}, headers={"Content-Encoding": "br"}),
            "encoding 'br', which was not asked for",
        ),
    ],
)
async def test_an_answer_that_asking_again_does_not_mend_is_final(answer, said):
    async def same(request):
        return answer

    grades, service = await asked(lambda samples: same)
    assert {grade.error_type for grade in grades} == {"GraderUnavailable"}
    assert said in grades[0].reason
    assert len(service.bodies) == 1


async def test_a_key_is_never_taken_to_where_a_redirect_points(monkeypatch):
    monkeypatch.setenv("GRADER_TOKEN", "s3cret")
    async with serving(numbered) as other:
        grades, service = await asked(
            lambda samples: web.Response(status=308, headers={"Location": other.url}), token_env="GRADER_TOKEN"
        )
        assert other.bodies == []
    assert service.headers[0]["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in str(grades)


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_passing_fault_is_retried(status):
    async def faulty(samples):
        return web.Response(status=status) if len(seen) < 3 else numbered(samples)

    seen: list[int] = []

    def answer(samples):
        seen.append(1)
        return faulty(samples)

    grades, service = await asked(answer)
    assert rewards(grades) == [0.0, 1.0, 2.0]
    assert len(service.bodies) == 3


async def test_retries_are_bounded_and_a_batch_is_not_asked_again_item_by_item():
    grades, service = await asked(lambda samples: web.Response(status=500), retries=1)
    assert {grade.error_type for grade in grades} == {"GraderUnavailable"}
    assert "it answered 500 (2 attempts)" in grades[0].reason
    assert len(service.bodies) == 2


async def test_a_connection_that_breaks_is_retried():
    async def breaks(request):
        request.transport.abort()
        return web.Response()

    seen: list[int] = []

    def answer(samples):
        seen.append(1)
        return breaks if len(seen) == 1 else numbered(samples)

    grades, service = await asked(answer)
    assert rewards(grades) == [0.0, 1.0, 2.0]
    assert len(service.bodies) == 2


async def test_nobody_there_is_said_so():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/grade?who=nobodys-business"
        grader = RemoteGrader(url, retries=0)
        with pytest.raises(GraderUnavailable, match=r"/grade: \w*ConnectorError") as caught:
            await grader.grade_batch(items())
        assert "nobodys-business" not in str(caught.value)
        await grader.aclose()


async def test_an_answer_that_trickles_is_cut_at_the_limit():
    async def trickle(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(200):
            await response.write(b" ")
            await asyncio.sleep(0.05)
        return response

    grades, service = await asked(lambda samples: trickle, timeout_s=2.0)
    assert {grade.error_type for grade in grades} == {"RewarderTimeout"}
    assert "no whole answer within 2 s" in grades[0].reason
    assert len(service.bodies) == 1


async def test_the_limit_is_one_for_all_attempts():
    async def slow(samples):
        await asyncio.sleep(0.05)
        return web.Response(status=503)

    grades, service = await asked(slow, timeout_s=1.0, retries=10)
    assert {grade.error_type for grade in grades} == {"RewarderTimeout"}
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

    grades, _ = await asked(lambda samples: huge)
    assert "bytes; the rest was not read" in grades[0].reason
    assert sent < 200


async def test_direct_callers_get_one_grade_for_each_item():
    async with serving(lambda samples: numbered(samples)[::-1][:2]) as service:
        grader = RemoteGrader(service.url)
        first, second, third = await grader.grade_batch(items())
        assert await grader.grade_batch([]) == []
        await grader.aclose()
        await grader.aclose()
    assert isinstance(first, NotGraded)
    assert first.error_type == "NoResult"
    assert (second, third) == (1.0, 2.0)


async def test_many_calls_share_connections():
    async with serving(numbered) as service:
        grader = RemoteGrader(service.url)
        said = await asyncio.gather(*(grader.grade_batch(items()) for _ in range(200)))
        again = [await grader.grade_batch(items()) for _ in range(20)]
        await grader.aclose()
    assert {tuple(each) for each in said + again} == {(0.0, 1.0, 2.0)}
    assert len(service.ports) <= 64


async def test_a_token_that_has_gone_makes_the_service_unavailable(monkeypatch):
    monkeypatch.setenv("GRADER_TOKEN", "s3cret")
    grader = RemoteGrader("http://127.0.0.1:9/grade", token_env="GRADER_TOKEN")
    monkeypatch.setenv("GRADER_TOKEN", "two words")
    with pytest.raises(GraderUnavailable, match="variable GRADER_TOKEN holds no token"):
        await grader.grade_batch(items())
