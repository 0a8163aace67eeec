"""Requests are logged when asked for, and counted."""

from tests.support.pipelines.data_server import RIGHT, graded, in_process, item, mix, rogue
from tfgrpo.pipelines.server.app import GradeTally
from tfgrpo.pipelines.server.service import ItemGrade
from tfgrpo.stores.telemetry.setup import Telemetry, TelemetryOptions, configure


async def test_every_request_has_its_lines(tmp_path):
    async with in_process(mix(tmp_path), verbose=True) as (client, served):
        await client.post("/sample", json={"iteration": 12, "batch_size": 3})
        await graded(client, item(RIGHT, completion_index=0), item("<think>r</think>\n7\nlast", completion_index=1))
        await graded(client)
    assert served.messages[0] == "[dataserver] /sample iteration=12 batch_size=3 stage=second"
    assert served.messages[1].splitlines() == [
        "[dataserver] iteration=0 graded 2 | avg=0.625 min=0.250 max=1.000",
        "  sums:0 #0 reward=1.000 math_exact=1.000 reasoning_format=1.000",
        "  sums:0 #1 reward=0.250 math_exact=0.000 reasoning_format=1.000",
        "[dataserver] BEST reward=1.000 sums:0 #0",
        "  | <think>r</think>",
        "  | 42",
        "[dataserver] WORST reward=0.250 sums:0 #1",
        "  | <think>r</think>",
        "  | 7",
        "  | last",
    ]
    assert served.messages[2] == "[dataserver] iteration=0 graded 0 completions."


async def test_items_without_a_reward_are_in_no_figure_and_their_grader_is_named_without_verbose_too(tmp_path):
    for verbose in (True, False):
        async with in_process(rogue(tmp_path, "Raising"), verbose=verbose) as (client, served):
            await graded(client, item("boom"), item("boom"), item())
            await graded(client, item("boom", completion_index=4))
        (warning,) = [line for line in served.messages if "grader Raising left 2 items ungraded" in line]
        assert "boom" in warning
        first, second = [line for line in served.messages if " graded " in line] if verbose else ("", "")
        assert len(served.messages) == (3 if verbose else 1)
        if verbose:
            head = "[dataserver] iteration=0 graded 3 | avg=1.000 min=1.000 max=1.000 ungraded=2"
            assert first.splitlines()[0] == head
            assert second.splitlines()[0] == "[dataserver] iteration=0 graded 1 | no rewards ungraded=1"
            assert "sums:0 #4 ungraded: Raising: " in second
            assert "BEST" not in second


def test_a_grader_that_keeps_failing_is_logged_once_in_ten_seconds_and_names_itself_once():
    now = 100.0
    tally = GradeTally(Telemetry(TelemetryOptions()), lambda: now)
    failed = [ItemGrade(None, {"fine": 1.0}, {"bad": "RuntimeError: " + "x" * 1000})]
    assert len(list(tally.add([*failed * 3, ItemGrade(1.0, {"fine": 1.0}, {})]))) == 1
    for _ in range(9):
        now += 1.0
        assert list(tally.add(failed)) == []
    now += 1.0
    (line,) = tally.add(failed)
    assert line.startswith("[dataserver] grader bad left 10 items ungraded; the last: RuntimeError: xxx")
    assert len(line) < 400
    assert ItemGrade(None, {}, {"slow": "slow: late", "bad": "no"}).reasons == "slow: late; bad: no"


async def test_grades_samples_and_requests_are_counted(tmp_path, otlp_receiver):
    telemetry = configure(TelemetryOptions(), otlp_receiver.environment())
    async with in_process(rogue(tmp_path, "Raising"), telemetry=telemetry) as (client, _):
        await client.post("/sample", json={"iteration": 0, "batch_size": 3})
        await graded(client, item("boom"), item(), item())
        await client.get("/nowhere")
        await client.request("BREW", "/grade")
    assert telemetry.shutdown() is None
    grades = {
        (point.attributes["tfgrpo.grader"], point.attributes["tfgrpo.outcome"]): point.value
        for point in otlp_receiver.points("tfgrpo.dataserver.grades")
    }
    assert (grades["Raising", "ungraded"], grades["Raising", "scored"]) == (1, 2)
    (samples,) = otlp_receiver.points("tfgrpo.dataserver.samples")
    assert (samples.attributes, samples.value) == ({"tfgrpo.dataset": "sums"}, 3)
    seen = {
        tuple(point.attributes[f"http.{key}"] for key in ("request.method", "route", "response.status_code"))
        for point in otlp_receiver.points("http.server.request.duration")
    }
    assert seen == {("POST", "/sample", 200), ("POST", "/grade", 200), ("GET", "other", 404), ("_OTHER", "/grade", 405)}
