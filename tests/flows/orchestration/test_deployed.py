"""Prefect's form, the deployments that ask for runs by it, and what a flow run makes of them."""

import os
import re
from collections import Counter
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Self
from uuid import uuid4
from zoneinfo import ZoneInfo

import httpx
import pytest
import yaml
from prefect.client.schemas.objects import CreatedBy, FlowRun, FlowRunPolicy
from prefect.server.schemas.schedules import CronSchedule
from prefect.utilities.callables import parameter_schema

from tests.support.runs.pages import ROOT
from tfgrpo.flows import learning_flow
from tfgrpo.flows.commands.deploy import NO_HEARTBEAT_S
from tfgrpo.flows.console.environment import PREFECT_DEFAULTS
from tfgrpo.flows.console.observer import Observers
from tfgrpo.flows.learning_flow import tfgrpo_learning
from tfgrpo.flows.orchestration import deployed
from tfgrpo.flows.orchestration.deployed import asked_of, in_parameters
from tfgrpo.flows.orchestration.request import RunRequest, SelectRequest
from tfgrpo.flows.run.index import runs_of
from tfgrpo.flows.run.prepare import earlier_run, prepare
from tfgrpo.flows.selection_flow import tfgrpo_select
from tfgrpo.pipelines.settings.layers import fields_by_key
from tfgrpo.stores.errors import SettingsError
from tfgrpo.stores.files.layout import TaskPaths

RUN_ID = uuid4()
FLOWS = {tfgrpo_learning: RunRequest, tfgrpo_select: SelectRequest}


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_the_form_describes_every_parameter_and_offers_no_none(flow):
    schema = parameter_schema(flow).model_dump()
    assert len(schema["properties"]) <= 15
    assert not schema.get("required")
    for name, shown in schema["properties"].items():
        assert shown["description"], name
        assert isinstance(shown["type"], str), name
        # Prefect's form sends a default back as it is, and its server refuses null for a plain type.
        assert shown.get("default", "") is not None, name


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_every_parameter_is_a_field_of_the_request_with_the_default_it_names(flow):
    kind = FLOWS[flow]
    for name, shown in parameter_schema(flow).properties.items():
        assert name in {*kind.model_fields, *kind.KEYS}
        named = re.search(r"the pipeline's, or (\w+)\.$", shown["description"])
        if named is not None:
            assert str(fields_by_key()[kind.KEYS[name]].default) == named[1]


CAPS = {"max_calls": 800, "settings": {"budget.max_usd": 5, "tfgrpo.epochs": 4}}


@pytest.fixture
def of_deployment(monkeypatch):
    """What a flow run asks for of a deployment with these caps, as Prefect mixes the parameters."""
    monkeypatch.setattr(deployed, "deployed_run", lambda: FlowRun(flow_id=uuid4()))

    def asked(parameters, own=CAPS):
        monkeypatch.setattr(deployed, "_parameters_of_deployment", lambda _: own)
        return asked_of(RunRequest, {**own, **parameters})

    return asked


@pytest.mark.parametrize(
    ("parameters", "refusal"),
    [
        ({"max_calls": 100_000}, "parameter max_calls: got 100000; accepted: at most 800: the deployment's cap is 800"),
        ({"settings": {"budget.max_calls": 801}}, "settings budget.max_calls: got 801; .* cap is 800"),
        ({"settings": {"budget.max_calls": " 100000 "}}, "settings budget.max_calls: got 100000; .* cap is 800"),
        ({"settings": {"budget.max_calls": "none"}}, "settings budget.max_calls: got none; .* cap is 800"),
        ({"settings": {"budget.max_calls": None}}, "settings budget.max_calls: got none; .* cap is 800"),
        ({"settings": {"budget.max_usd": 100}}, "settings budget.max_usd: got 100.0; .* cap is 5.0"),
        ({"settings": {"budget.max_usd": "5.01"}}, "settings budget.max_usd: got 5.01; .* cap is 5.0"),
        ({"max_usd": 100.0}, "parameter max_usd: got 100.0; .* cap is 5.0"),
        ({"pipeline": "general", "max_calls": 801}, "parameter max_calls: got 801; .* cap is 800"),
        (
            {"settings": {"model.prices": {"m": {"input": 0.01, "output": 0.01}}}},
            "settings model.prices: got other prices; accepted: those",
        ),
    ],
)
def test_a_run_that_asks_for_more_than_a_cap_of_its_deployment_is_refused(of_deployment, parameters, refusal):
    with pytest.raises(SettingsError, match=refusal):
        of_deployment(parameters)


def test_another_pipeline_does_not_bring_other_prices_under_a_cap_on_dollars(of_deployment, tmp_path):
    named = {}
    for name, usd in (("own", 1), ("same", 1), ("free", 0)):
        named[name] = str(tmp_path / f"{name}.yaml")
        Path(named[name]).write_text(f"budget: {{max_usd: 5}}\nmodel: {{prices: {{m: {{input: {usd}, output: {usd}}}}}}}\n")
    of_deployment({"pipeline": named["same"]}, own={"pipeline": named["own"]})
    with pytest.raises(SettingsError, match="parameter pipeline: got other prices; accepted: those of the deployment"):
        of_deployment({"pipeline": named["free"]}, own={"pipeline": named["own"]})


@pytest.mark.parametrize(
    ("parameters", "calls", "usd"),
    [
        ({}, 800, 5.0),
        ({"max_calls": 100, "max_usd": 4.0}, 100, 4.0),
        ({"settings": {"budget.max_calls": "100"}}, 100, 5.0),
        ({"settings": {"budget.max_usd": "4"}, "max_calls": 800}, 800, 4.0),
        ({"max_calls": None, "settings": {}}, 800, 5.0),
        ({"pipeline": "general"}, 800, 5.0),
    ],
)
def test_a_run_may_ask_for_less_and_keeps_the_rest_of_its_deployment(of_deployment, parameters, calls, usd):
    settings = of_deployment(parameters).resolved({}).settings
    assert (settings.budget.max_calls, settings.budget.max_usd, settings.tfgrpo.epochs) == (calls, usd, 4)


@pytest.mark.parametrize(("in_job", "usd"), [("1000", 0.05), ("0.01", 0.01), (None, 0.05)])
@pytest.mark.parametrize("resume", [None, "small"])
def test_the_budget_of_the_pipeline_file_is_a_cap_that_nothing_lifts(
    of_deployment, small_run, tmp_path, monkeypatch, in_job, usd, resume
):
    """Neither a job variable nor a run of larger caps that is resumed."""
    file = tmp_path / "capt.yaml"
    file.write_text("budget: {max_usd: 0.05, max_calls: 20}\n")
    if in_job:
        monkeypatch.setenv("TFGRPO_MAX_USD", in_job)
    place = {"out": str(small_run.out), "task_id": small_run.task.root.name}
    request = of_deployment({"settings": place, "resume": resume}, own={"pipeline": str(file)})
    resolved = request.resolved(os.environ) if resume is None else earlier_run(request, os.environ)[2]
    assert (resolved.settings.budget.max_usd, resolved.settings.budget.max_calls) == (usd, 20)
    assert (resolved.sources["budget.max_usd"] == "environment TFGRPO_MAX_USD") == (in_job == "0.01")


@pytest.mark.parametrize(
    ("flow", "source", "accepted", "said"),
    [
        (tfgrpo_learning, "--epochs", "from 2", "parameter epochs: got 0; accepted: from 2"),
        (tfgrpo_learning, "--task-id", "a name", "parameter task_id: got 0; accepted: a name"),
        (tfgrpo_learning, "--batch-size", "from 1", "settings tfgrpo.batch_size: got 0; accepted: from 1"),
        (tfgrpo_learning, "--set a.b", "--set c.d=1", "settings a.b: got 0; accepted: settings c.d=1"),
        (tfgrpo_learning, "--dataset", "or --pack powl", "parameter dataset: got 0; accepted: or settings pack powl"),
        (tfgrpo_learning, "--run-id", "`tfgrpo run --resume X`", "--run-id: got 0; accepted: `tfgrpo run --resume X`"),
        (tfgrpo_learning, "items.jsonl:17--x", "text", "items.jsonl:17--x: got 0; accepted: text"),
        (tfgrpo_select, "--k", "--max-calls", "parameter k: got 0; accepted: parameter max_calls"),
    ],
)  # fmt: skip
def test_a_refused_flow_run_names_parameters_and_keys_of_settings_in_place_of_options(flow, source, accepted, said):
    assert str(in_parameters(SettingsError.one(source, "0", accepted), flow, FLOWS[flow])) == said


class _Server:
    """Refuses connections until it has started again."""

    started = False

    def __call__(self, *, sync_client: bool) -> Self:
        return self

    def __enter__(self) -> Self:
        if not self.started:
            raise httpx.ConnectError("refused")
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read_deployment(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(parameters={"max_calls": 7})


@pytest.fixture
def begun(monkeypatch, tmp_path):
    """What a flow run of a deployment begins with at a server, and its summary."""
    server, asked = _Server(), list[RunRequest]()
    run = FlowRun(id=RUN_ID, flow_id=uuid4())
    monkeypatch.setattr(deployed, "deployed_run", lambda: run)
    monkeypatch.setattr(deployed, "get_client", server)

    def begin(*, comes_back: bool, **settings: object):
        monkeypatch.setattr(deployed, "why_silent", lambda limit_s: setattr(server, "started", comes_back and limit_s > 9))
        monkeypatch.setattr(learning_flow, "_run_here", lambda request, _: asked.append(request))
        asked_for = {"task_id": "t", "settings": {"out": str(tmp_path), **settings}}
        return learning_flow._run_with(asked_for, Observers()), asked

    return begin


def test_a_night_that_begins_while_the_server_is_started_again_waits_for_its_caps(begun):
    _, (request,) = begun(comes_back=True)
    assert request.settings["budget.max_calls"] == 7


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tfgrpo.epoch": 3}, "settings tfgrpo.epoch: got an unknown setting; accepted: tfgrpo.epochs (did you"),
        # The deployment has max_calls as a parameter.
        ({"budget.max_calls": "many"}, "parameter max_calls: got 'many'; accepted: a whole number"),
    ],
)
def test_a_run_asked_for_with_wrong_settings_is_refused_in_the_words_of_the_form(begun, tmp_path, settings, said):
    summary, asked = begun(comes_back=True, **settings)
    assert (summary.status, asked, summary.message.startswith(said)) == ("refused", [], True), summary.message
    (entry,) = runs_of(TaskPaths.of(tmp_path, "t"))
    assert (entry.state, entry.message) == ("refused", summary.message)


def test_a_night_whose_caps_cannot_be_read_is_a_line_of_the_runs(begun, tmp_path):
    summary, asked = begun(comes_back=False)
    assert (summary.status, asked) == ("failed", [])
    (entry,) = runs_of(TaskPaths.of(tmp_path, "t"))
    assert (entry.run_id, entry.state, entry.message) == (str(RUN_ID), "failed", summary.message)
    assert "its caps would not hold: ConnectError" in summary.message


@pytest.mark.parametrize(
    ("policy", "other_schedule", "refused"),
    [({}, False, True), ({"retry_type": "reschedule"}, False, False), ({}, True, False)],
    ids=["missed", "a person's retry of one that crashed before it began", "a night of another schedule is due"],
)
def test_a_missed_night_gives_way_to_a_later_one_of_its_schedule(of_deployment, monkeypatch, policy, other_schedule, refused):
    ours = CreatedBy(id=uuid4(), type="SCHEDULE", display_value="nightly")
    theirs = ours.model_copy(update={"id": uuid4()}) if other_schedule else ours
    due = datetime.now(UTC) - timedelta(days=2)
    night = FlowRun(
        flow_id=uuid4(),
        deployment_id=uuid4(),
        auto_scheduled=True,
        run_count=1,
        expected_start_time=due,
        created_by=ours,
        empirical_policy=FlowRunPolicy(**policy),
    )
    later = FlowRun(flow_id=uuid4(), auto_scheduled=True, expected_start_time=due + timedelta(days=1), created_by=theirs)
    server = _Server()
    server.started = True
    monkeypatch.setattr(server, "read_flow_runs", lambda **_: [later], raising=False)
    monkeypatch.setattr(deployed, "get_client", server)
    monkeypatch.setattr(deployed, "deployed_run", lambda: night)
    with pytest.raises(SettingsError, match="is due as well") if refused else nullcontext():
        of_deployment({})


def test_deployed_runs_are_as_quiet_as_those_of_the_command_line():
    declared = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))
    env = declared["definitions"]["work_pool"]["job_variables"]["env"]
    shared = {name for name in set(env) & set(PREFECT_DEFAULTS) if "LOGGING" not in name}
    assert {name: env[name] for name in shared} == {name: PREFECT_DEFAULTS[name] for name in shared}
    assert {"DO_NOT_TRACK", "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY"} <= shared
    assert env["PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL"] == "WARNING"


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
