"""Do the caps hold, counted where the money goes? At 64 calls in flight, on the side of the server."""

from __future__ import annotations

import pytest

from tasks.models.simulated import SimulatedOptions
from tests.flows.kit import RUN, Server, lines, manifest, on_server, paths, run, store

BUSY = {"tfgrpo__concurrency": 64, "sample_size": 40, "batch_size": 20}
INPUT, OUTPUT = 2.0, 8.0
"""US dollars per million tokens."""
PRICED = f"""
pipeline: priced
task_id: tfgrpo-learning
pack: arithmetic
tfgrpo: {{enabled: true}}
model:
  prices: {{simulated: {{input: {INPUT}, output: {OUTPUT}}}}}
  max_tokens: 200
rewarders: [{{name: gt, options: {{match: numeric}}}}]
stages: [{{name: learn}}, {{name: spec-guard}}]
"""


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    path = tmp_path_factory.mktemp("pipeline") / "priced.yaml"
    path.write_text(PRICED)
    return str(path)


@pytest.fixture(scope="module")
def uncapped(tmp_path_factory, pipeline):
    """A run without caps: its directory and what it took, by the server's count."""
    out = tmp_path_factory.mktemp("uncapped")
    with Server() as server:
        summary = run(out, run_id=RUN, pipeline=pipeline, **on_server(server, **BUSY))
    assert summary.exit_code == 0, summary.message
    assert store(out)
    return out, {"max_calls": len(server.bodies), "max_tokens": server.tokens, "max_usd": dollars(server)}


def dollars(server):
    return (server.prompt_tokens * INPUT + (server.tokens - server.prompt_tokens) * OUTPUT) / 1e6


@pytest.mark.parametrize("cap", ["max_calls", "max_tokens", "max_usd"])
def test_a_cap_is_never_exceeded_and_the_run_goes_on_with_a_higher_one(tmp_path, pipeline, uncapped, cap):
    reference, needed = uncapped
    limit = needed[cap] * 0.6 if cap == "max_usd" else int(needed[cap] * 0.6)
    with Server(SimulatedOptions(latency_s=0.01)) as server:
        summary = run(tmp_path, run_id=RUN, pipeline=pipeline, **on_server(server, **BUSY), **{cap: limit})
        assert (summary.status, summary.exit_code) == ("stopped", 3), summary.message
        taken = {"max_calls": len(server.bodies), "max_tokens": server.tokens, "max_usd": dollars(server)}
        assert 0.3 * limit < taken[cap] <= limit
        assert cap in summary.message
        assert "\n" not in summary.message
        assert summary.message.endswith("under a higher cap it goes on")
        assert summary.details["resume with"] == f"--resume {RUN}"
        assert paths(tmp_path).report.exists()
        assert manifest(tmp_path)["status"] == "stopped"
        assert len(lines(paths(tmp_path).journal)) == len(server.bodies), "an answered call was not kept"

        still = run(tmp_path, resume=RUN)
        assert still.exit_code == 3, "the same cap holds for the whole run, not for each part of it"
        assert len(server.bodies) <= needed["max_calls"]
        assert {"max_calls": len(server.bodies), "max_tokens": server.tokens, "max_usd": dollars(server)}[cap] <= limit

        resumed = run(tmp_path, resume=RUN, **{cap: needed[cap] * 20})
        assert resumed.exit_code == 0, resumed.message
    assert max(server.asked().values()) == 1
    assert len(server.bodies) == needed["max_calls"]
    assert store(tmp_path) == store(reference)


def test_a_cap_below_the_first_call_stops_before_anything_is_sent(tmp_path, pipeline):
    with Server() as server:
        summary = run(tmp_path, run_id=RUN, pipeline=pipeline, max_tokens=250, **on_server(server, **BUSY))
    assert summary.exit_code == 3
    assert server.bodies == []
    assert summary.details["lost"] == {"rollouts": 0, "of": 0}


def test_a_refused_rollout_is_no_evidence_and_leaves_no_line(tmp_path):
    with Server() as server:
        summary = run(tmp_path, run_id=RUN, max_calls=5, **on_server(server))
    assert summary.exit_code == 3
    assert lines(paths(tmp_path).rollouts) == []
    assert store(tmp_path) == []
