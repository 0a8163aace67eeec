"""What ``prefect.yaml`` declares: quiet runs, requests that the flows accept, and a night within its budget."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
import yaml
from prefect.server.schemas.schedules import CronSchedule

from tests.support.runs.pages import ROOT
from tfgrpo.flows.console.environment import PREFECT_DEFAULTS
from tfgrpo.flows.orchestration.deploying import NO_HEARTBEAT_S
from tfgrpo.flows.orchestration.request import RunRequest, SelectRequest
from tfgrpo.flows.run.prepare import prepare


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


@pytest.mark.parametrize("day", ["2027-03-28", "2027-10-31"])
@pytest.mark.parametrize("cron", ["30 1 * * *", "30 2 * * *"])
async def test_there_is_one_night_on_the_days_that_summer_time_begins_and_ends(cron, day):
    midnight = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo("Europe/Berlin"))
    schedule, before = CronSchedule(cron=cron, timezone="Europe/Berlin"), midnight - timedelta(hours=1)
    starts = {at for hour in range(12) for at in await schedule.get_dates(3, before + timedelta(minutes=30 * hour))}
    nights = Counter(at.astimezone(ZoneInfo("Europe/Berlin")).date().isoformat() for at in starts)
    assert nights[day] == 1, "from whatever moment the scheduler looks ahead"
