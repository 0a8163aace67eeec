"""What ``prefect.yaml`` declares: quiet runs, requests that the flows accept, and a night within its budget."""

from __future__ import annotations

import yaml

from tests.support.runs.pages import ROOT
from tfgrpo.flows.orchestration.deploying import NO_HEARTBEAT_S
from tfgrpo.flows.orchestration.environment import PREFECT_DEFAULTS
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.flows.run.prepare import prepare
from tfgrpo.flows.selection.request import SelectRequest


def test_deployed_runs_are_as_quiet_as_those_of_the_command_line():
    declared = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))
    env = declared["definitions"]["work_pool"]["job_variables"]["env"]
    shared = {name for name in set(env) & set(PREFECT_DEFAULTS) if "LOGGING" not in name}
    assert {name: env[name] for name in shared} == {name: PREFECT_DEFAULTS[name] for name in shared}
    assert {"DO_NOT_TRACK", "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY"} <= shared
    assert env["PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL"] == "WARNING"


def test_every_deployment_asks_for_a_run_that_the_flow_accepts():
    declared = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))
    requests = {"nightly": RunRequest, "tfgrpo-learning": RunRequest, "tfgrpo-select": SelectRequest}
    assert {deployment["name"] for deployment in declared["deployments"]} == set(requests)
    for deployment in declared["deployments"]:
        requests[deployment["name"]](**deployment["parameters"]).resolved({})


def test_a_night_is_within_a_budget_that_lets_it_end():
    declared = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))
    (nightly,) = [each for each in declared["deployments"] if each["name"] == "nightly"]
    request = RunRequest(**nightly["parameters"])
    plan = prepare(request, {}).plan
    cap = plan.settings.budget.max_calls
    assert plan.forecast.calls.high < cap <= 5_000


def test_nights_wait_for_each_other_and_send_three_heartbeats_before_they_are_taken_for_dead():
    declared = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))
    learning = [each for each in declared["deployments"] if each["name"] != "tfgrpo-select"]
    assert [each["concurrency_limit"] for each in learning] == [{"limit": 1, "collision_strategy": "ENQUEUE"}] * 2
    env = declared["definitions"]["work_pool"]["job_variables"]["env"]
    assert 3 * int(env["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"]) <= NO_HEARTBEAT_S
