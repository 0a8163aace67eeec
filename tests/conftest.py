"""What every test may rely on: a quiet, hermetic environment and a telemetry receiver."""

import atexit
import gc
import importlib
import os
import pkgutil
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import nullcontext
from pathlib import Path

import coverage
import hypothesis
import pytest

_BEGAN = time.monotonic()
gc.disable()  # until all tests are collected
ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

# A shell that starts the tests in the background, or nohup, has every program that they start ignore Ctrl-C or SIGHUP. What
# has a handler is the default again for a program, while the tests themselves outlive their terminal as before.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

# No test cuts the power, and a third of the time of a run would go into waiting for the disk. What must be synced, and what
# happens where that fails, is looked at by tests that put a function of theirs in this place.
os.fsync = lambda _fd: None

# Before anything imports Prefect or the OpenTelemetry SDK: both read the environment when they are imported.
for _name in list(os.environ):
    if _name.startswith(("OTEL_", "TFGRPO_", "FEATURE_TFGRPO", "OPENAI_", "PREFECT_")):
        del os.environ[_name]
_PREFECT_HOME = tempfile.mkdtemp(prefix="tfgrpo-prefect-")
atexit.register(shutil.rmtree, _PREFECT_HOME, ignore_errors=True)
os.environ |= {
    "DO_NOT_TRACK": "1",
    "PREFECT_HOME": _PREFECT_HOME,
    "PREFECT_LOGGING_LEVEL": "ERROR",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS": "false",
}

import tfgrpo  # noqa: E402
from tests.support.records.otlp_receiver import OtlpReceiver  # noqa: E402 - after the path is set
from tests.support.tracing import untraced  # noqa: E402

# Examples are not timed: on a busy machine any of them may take a second.
# Fifty of them, where a test names no number: a hundred take another minute.
hypothesis.settings.register_profile(
    "tfgrpo", deadline=None, max_examples=50, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("quick", parent=hypothesis.settings.get_profile("tfgrpo"), max_examples=5)
hypothesis.settings.load_profile("tfgrpo")


UNTRACED_GROUPS = {"deployments", "prefect"}
"""Groups of tests that start real processes."""
UNTRACED_PATHS = (
    "tests/benchmarks/",
    "tests/docs/",
    "tests/flows/commands/test_experiences.py::test_blame_names",
    "tests/flows/commands/test_export.py",
    "tests/flows/commands/test_grade.py::test_a_large_file",
    "tests/flows/commands/test_init.py::test_several",
    "tests/flows/commands/test_perfect_agent.py",
    "tests/flows/commands/test_prune.py::test_the_next_night",
    "tests/flows/commands/test_prune.py::test_what_looks_at",
    "tests/flows/commands/test_run.py::test_the_exit_code",
    "tests/flows/commands/test_taking_back.py",
    "tests/flows/commands/test_verify.py",
    "tests/flows/orchestration/test_dask.py",
    "tests/flows/orchestration/test_local_run.py::test_a_server_that",
    "tests/flows/report/test_page.py",
    "tests/flows/run/loop/test_curation.py",
    "tests/flows/run/loop/test_deciding.py",
    "tests/flows/run/loop/test_learn.py",
    "tests/flows/run/loop/test_measuring.py::test_a_named",
    "tests/flows/run/loop/test_measuring.py::test_what_is_in_force",
    "tests/flows/run/test_execution.py",
    "tests/flows/run/test_index.py",
    "tests/flows/run/test_judging.py",
    "tests/flows/run/test_notify.py",
    "tests/flows/run/test_open.py",
    "tests/flows/run/test_replay.py",
    "tests/flows/run/test_resume.py",
    "tests/flows/run/test_sealed.py",
    "tests/flows/run/test_trial.py",
    "tests/flows/test_cli",
    "tests/flows/test_selection.py::test_a_reference_is",
    "tests/flows/whole_runs/",
    "tests/pipelines/datasets/test_sources.py::test_items_are_the_same",
    "tests/pipelines/datasets/test_sources.py::test_rows_are",
    "tests/pipelines/mix/test_graders.py",
    "tests/pipelines/mix/test_sampling.py",
    "tests/pipelines/server/test_harm.py::test_only_the_item",
    "tests/pipelines/server/test_wire.py",
    "tests/pipelines/settings/test_layers.py",
    "tests/pipelines/settings/test_pipeline_file.py",
    "tests/prompt_packs/",
    "tests/rewarders/graders/builtin/test_math_verify.py",
    "tests/rewarders/graders/test_robustness.py",
    "tests/rewarders/judge/test_reading.py",
    "tests/rewarders/powl/test_model.py",
    "tests/rewarders/powl/test_text.py::test_endless_nesting",
    "tests/rewarders/powl/test_vectors.py",
    "tests/rewarders/statistics/test_credit.py",
    "tests/rewarders/statistics/test_power.py",
    "tests/rewarders/test_gt.py::test_a_long_run",
    "tests/rewarders/test_importing.py",
    "tests/rewarders/test_isolation.py",
    "tests/rewarders/test_registry.py::test_arguments",
    "tests/rewarders/test_registry.py::test_objects_classes",
    "tests/rewarders/test_runner.py::test_a_score_that_comes_after",
    "tests/rewarders/test_scorer_contract.py",
    "tests/rewarders/test_vectors.py::test_every_known_score",
    "tests/rewarders/text/test_fences.py",
    "tests/stores/batch/test_files.py::test_every_field",
    "tests/stores/files/test_lines.py",
    "tests/stores/telemetry/test_setup.py",
    "tests/tasks/actors/test_command_actor.py::test_a_run_that_is_killed",
    "tests/tasks/actors/test_own_agents.py",
    "tests/tasks/exports/test_consumers.py",
    "tests/tasks/gateway/test_budget.py",
    "tests/tasks/gateway/test_live.py::test_a_conversation_keeps",
    "tests/tasks/gateway/test_live.py::test_conversations_of_agents",
    "tests/tasks/gateway/test_passing.py",
    "tests/tasks/gateway/test_streams.py",
    "tests/tasks/gateway/test_tools.py",
    "tests/tasks/models/simulated/test_roles.py",
    "tests/tasks/models/simulated/test_worlds.py",
    "tests/tasks/selection/test_round.py",
    "tests/tasks/test_canaries.py",
    "tests/tasks/test_group.py",
    "tests/tasks/test_split_groups.py",
    "tests/test_doors.py",
    "tests/test_every_setting.py",
    "tests/test_front_door.py::test_a_run_on",
    "tests/test_front_door.py::test_it_runs",
    "tests/test_front_door.py::test_items_",
    "tests/test_front_door.py::test_pandas",
    "tests/test_front_door.py::test_the_prompt_holds",
    "tests/test_front_door_processes.py",
    "tests/test_fuzz.py",
    "tests/test_promises.py",
)
"""Tests of whole runs, of commands, of many cases and of whole texts: what the coverage counts comes from other tests. Those
that were added by measuring show it hardly a branch that no other test does, and each took a third of a second or more."""


@pytest.hookimpl(tryfirst=True)  # before ``-m`` and pytest-xdist look at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that run without the coverage tracer; the longest groups come first, then whole runs.

    Each file without a group is one, so that the fixtures of a module are made once, and not by each worker. With thousands
    of groups pytest-xdist itself would take half a minute: it counts through all of them after every test.
    """
    for item in items:
        groups = {mark.args[0] for mark in item.iter_markers("xdist_group")}
        many_examples = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if many_examples or item.nodeid.startswith(UNTRACED_PATHS) or groups & UNTRACED_GROUPS:
            item.add_marker("untraced")
        if not groups:
            item.add_marker(pytest.mark.xdist_group(item.path.relative_to(ROOT).as_posix()))
    items.sort(
        key=lambda item: (
            item.get_closest_marker("xdist_group").args[0] not in UNTRACED_GROUPS,
            not item.nodeid.startswith(UNTRACED_PATHS),
        )
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Let the first worker import all modules before the others do: it compiles them, and shows ours to the tracer.

    The tracer does not see pytest rewrite all assertions, which would take six seconds more.
    """
    if _hands_out(session.config):
        return (yield)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    imported = Path(tempfile.gettempdir(), f"tfgrpo-imported-{os.environ.get('PYTEST_XDIST_TESTRUNUID')}")
    if worker == "gw0":
        try:
            if coverage.Coverage.current() is not None:
                for module in pkgutil.walk_packages(tfgrpo.__path__, "tfgrpo."):
                    if not module.name.endswith("__main__"):
                        importlib.import_module(module.name)
            with untraced():
                return (yield)
        finally:
            imported.touch()
            atexit.register(imported.unlink, missing_ok=True)
    while not imported.exists() and time.monotonic() < _BEGAN + 120:
        time.sleep(0.1)
    with untraced():
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)  # within that of pytest-cov, which saves what was seen
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Do not trace the process that hands out the tests: it runs none of our code."""
    with untraced() if _hands_out(session.config) else nullcontext():
        return (yield)


def _hands_out(config: pytest.Config) -> bool:
    """Whether this process gives the tests to workers and runs none itself."""
    return bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test and its fixtures without the tracer if it is marked so."""
    with untraced() if item.get_closest_marker("untraced") else nullcontext():
        return (yield)


def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays to the end, and rare looks: a tenth of the time went into looking for none."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


@pytest.fixture
def otlp_receiver():
    """A real OTLP/HTTP endpoint in this process; ``mode`` makes it hang or answer 503."""
    with OtlpReceiver() as receiver:
        yield receiver


@pytest.fixture
def at_home(tmp_path, monkeypatch):
    """An empty working directory and an environment without settings."""
    for name in list(os.environ):
        if name.startswith(("TFGRPO_", "FEATURE_TFGRPO", "OPENAI_")):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    return home
