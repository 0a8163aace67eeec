"""Does the main job run end to end, in each of its forms? Without Prefect where Prefect makes no difference."""

import json
import os
import shutil
from collections import Counter

import pytest

from examples.agents.bookkeeping import accounts_of, add, exchange_rate
from tests.support.records.otlp_receiver import OtlpReceiver
from tests.support.runs.running import (
    BOOKS,
    LEARNING,
    PACKS,
    RUN,
    SMALL,
    TASK,
    Server,
    finish,
    lines,
    manifest,
    on_server,
    paths,
    run,
    start,
    store,
    words,
)
from tfgrpo.prompt_packs.stamps import stamp_pack
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.experiences.decisions import read_decisions
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.telemetry.setup import all_metrics
from tfgrpo.tasks.learning import ask

MODULES = """
import atexit, sys
from tfgrpo.flows.cli import main
atexit.register(lambda: print("loaded", *sys.modules, file=sys.stderr))
sys.exit(main(["run", *sys.argv[1:]]))
"""
MOST_MODULES = 150
"""Lower the number with the modules; a run imports the kinds of rewarders, actors, sources and worlds it uses."""
FLOORS = ("flows", "pipelines", "prompt_packs", "rewarders", "stores", "tasks")
UNUSED = ("rewarders.graders", "rewarders.powl", "rewarders.composite.composite", "pipelines.mix.items", "pipelines.server")


@pytest.mark.xdist_group("prefect")
def test_the_command_learns_on_prefect_leaves_every_file_and_imports_few_of_our_modules(tmp_path):
    process = start(tmp_path, "--dry-run", "--run-id", RUN, *words(LEARNING), program=("-W", "error", "-c", MODULES))
    code, summary, said = finish(process)
    assert code == 0, said
    loaded = said.splitlines()[-1].split()[1:]
    assert [name for name in loaded if name.partition(".")[0] in FLOORS] == [], "no module is loaded under two names"
    modules = [name for name in loaded if name.startswith("tfgrpo.")]
    assert 50 < len(modules) <= MOST_MODULES, modules
    assert [name for name in modules if name.removeprefix("tfgrpo.").startswith(UNUSED)] == []
    assert summary["decision"]["decision"] == "in force"
    assert summary["simulated"] is True
    assert "SIMULATED" in said
    written = {path.name for path in paths(tmp_path).root.iterdir()}
    assert written >= {
        "manifest.json", "journal.jsonl", "rollouts.jsonl", "groups.jsonl", "prompts.jsonl",
        "metrics.jsonl", "per-epoch.json", "report.html",
    }  # fmt: skip
    assert all(stage.get("ok", True) for stage in manifest(tmp_path)["stages"]), manifest(tmp_path)["stages"]
    # The same run without Prefect: nothing of it depends on who fans the groups out.
    alone = run(tmp_path / "alone", run_id=RUN, **LEARNING)
    assert alone.exit_code == 0
    assert store(tmp_path) == store(tmp_path / "alone")


def test_with_the_feature_flag_off_one_actor_per_item_is_measured_without_learning(tmp_path):
    with Server() as server:
        summary = run(tmp_path, run_id=RUN, env={"FEATURE_TFGRPO_GROUP": "0"}, **on_server(server, sample_size=12))
    assert summary.exit_code == 0, summary.message
    assert "FEATURE_TFGRPO_GROUP is off" in summary.message
    rollouts = lines(paths(tmp_path).rollouts)
    assert len(rollouts) == len(server.bodies) == 12
    assert set(Counter(row["group_id"] for row in rollouts).values()) == {1}
    assert {row["group_size"] for row in lines(paths(tmp_path).metrics)} == {1}
    assert {row["arm"] for row in rollouts} == {"none"}, "nothing is in force, so no prompt has a lesson"
    assert store(tmp_path) == []
    assert summary.details["decision"] is None
    assert [epoch["phase"] for epoch in summary.details["epochs"]] == ["eval"]
    assert not TaskPaths.of(tmp_path, TASK).promotions.exists()


async def cannot_shorten(*_):
    return None


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """Directory and summary of a night with tools, of which all but one say what they cost, and what received its telemetry."""
    out = tmp_path_factory.mktemp("books")
    with OtlpReceiver() as receiver:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ask, "ask", cannot_shorten)  # reflection and curation have it by name
            for tool in (accounts_of, add, exchange_rate):
                patch.setattr(tool, "tfgrpo_cost_usd", 0.002, raising=False)
            for name, value in receiver.environment().items():
                patch.setenv(name, value)
            asked = {**BOOKS, "sample_size": 8, "batch_size": 4, "max_calls": 9_000, "tfgrpo__experience_max_words": 12}
            summary = run(out, run_id=RUN, **asked, env=dict(os.environ))
        assert summary.exit_code == 0, summary.message
        yield out, summary, receiver


@pytest.fixture
def books(watched):
    return paths(watched[0], task="ledger-tools")


def test_the_world_with_tools_measures_every_tool_call(books):
    asked = Counter()
    for row in lines(books.journal):
        asked.update(name for _, name, _ in row["payload"].get("tool_calls", []))
    assert asked, "no tool was called"
    assert Counter(event["tool"] for row in lines(books.rollouts) for event in row["tools"]) == asked
    metrics = Counter()
    for row in lines(books.metrics):
        metrics.update({tool["tool"]: tool["calls"] for tool in row["tools"]})
    assert metrics == asked


def test_the_manifest_has_epochs_and_tools_under_the_names_of_the_specification(books):
    block = json.loads(books.manifest.read_text())["tfgrpo"]
    rollouts = lines(books.rollouts)
    for number, row in enumerate(block["epochs"], start=1):
        size = 4 if row["phase"] == "train" else 2
        assert (row["tfgrpo_epoch"], row["group_size"]) == (row["epoch"], size) == (number, size)
        mine = [rollout for rollout in rollouts if rollout["epoch"] == number]
        assert row["latency_ms"] == pytest.approx(sum(1000.0 * rollout["latency_s"] for rollout in mine))
        assert row["tool_cost_usd"] is None, "nobody said what ledger_entries costs"
    by_tool = {row["tool"]: row for row in block["per_tool_metrics"]}
    assert by_tool["ledger_entries"]["tool_cost_usd"] is None
    assert by_tool["add"]["tool_cost_usd"] == pytest.approx(0.002 * by_tool["add"]["calls"])
    assert all(row["latency_ms"] > 0 for row in by_tool.values())


def night(out, packs, run_id, **asked):
    summary = run(out, run_id=run_id, packs_root=str(packs), **LEARNING, **asked)
    assert summary.exit_code == 0, summary.message
    return summary, json.loads(paths(out, run_id).manifest.read_text())


def test_nights_build_on_what_is_in_force_and_an_edited_pack_puts_it_out_of_use(tmp_path):
    packs = tmp_path / "packs"
    shutil.copytree(PACKS / "arithmetic", packs / "arithmetic")
    first, _ = night(tmp_path, packs, "first", seed=6)
    assert first.details["decision"]["decision"] == "in force"
    served = first.details["decision"]["experience_ids"]
    assert [lesson["id"] for lesson in first.details["lessons"] if lesson["state"] == "in force"] == served

    _, opened = night(tmp_path, packs, "second", seed=6)
    first_stamp = opened["pack"]["stamp"]
    assert opened["in_force"]["experience_ids"] == served
    first_group, *_ = lines(paths(tmp_path, "second").groups)
    texts = {row["digest"]: row for row in lines(paths(tmp_path, "second").prompts)}
    begun = [
        texts[row["prompt_digest"]]
        for row in lines(paths(tmp_path, "second").rollouts)
        if row["group_id"] == first_group["group_id"]
    ]
    assert {name for text in begun for name in text["experience_ids"]} >= {*served}
    assert all(("<lessons>" in text["system"]) is bool(text["experience_ids"]) for text in begun)
    *_, last = read_decisions(TaskPaths.of(tmp_path, TASK).promotions)

    rules = packs / "arithmetic" / "house-rules.md"
    before = rules.read_text()
    rules.write_text(before + "\nShow the steps.\n")
    stamp_pack(packs / "arithmetic", utc_now)
    history = store(tmp_path)
    third, opened = night(tmp_path, packs, "third", seed=6)
    assert opened["in_force"]["experience_ids"] == []
    (warning,) = [text for text in opened["warnings"] if "kept out" in text]
    again = "restore the files of the pack and stamp it to have them back, else the nights learn anew"
    assert warning.startswith(f"{len(last.experience_ids)} lessons kept out, not stamped for the pack in force: {again}: ")
    assert warning in third.details["warnings"]
    assert store(tmp_path)[: len(history)] == history, "history is not rewritten"
    assert third.details["decision"]["decision"] == "in force", "it learns again under the new text"
    rules.write_text(before)
    assert stamp_pack(packs / "arithmetic", utc_now).stamp == first_stamp, "lessons are back with the files"


def test_a_run_with_tools_sends_the_whole_catalogue_and_its_rollouts_bear_their_verdicts(watched, books):
    _, _, receiver = watched
    expected = {metric.name for metric in all_metrics() if metric.event not in {"grades", "samples", "request"}}
    assert {point.metric for point in receiver.points()} == expected
    (violations,) = receiver.points("tfgrpo.guardrail.violations")
    refused = [why for row in lines(books.groups) for _, why in row["rejected"]]
    assert violations.attributes == {"tfgrpo.rule": "lesson-long"}
    assert violations.value >= sum("could not be shortened" in why for why in refused) > 0  # curation screens some, too

    spans = receiver.spans()
    rollouts = {row["rollout_id"]: row for row in lines(books.rollouts)}
    attempts = [span for span in spans if span.name.startswith("invoke_agent")]
    assert len(attempts) == len(rollouts)
    for span in attempts:
        told, row = span.attributes, rollouts[span.attributes["tfgrpo.rollout.id"]]
        assert told["tfgrpo.outcome"] == row["outcome"]["name"] == "scored"
        assert told["tfgrpo.reward"] == row["outcome"]["reward"]
        assert told["tfgrpo.relative_rank"] == row["relative_rank"]
        scores = {event["gen_ai.evaluation.name"]: event for _, event in span.events}
        assert {name: event["gen_ai.evaluation.score.value"] for name, event in scores.items()} == {
            score["rewarder_id"]: score["score"] for score in row["scores"]
        }
        label = {1.0: "pass", 0.0: "fail"}[told["tfgrpo.reward"]]
        assert scores["gt"]["gen_ai.evaluation.score.label"] == label
    groups = {row["group_id"]: row for row in lines(books.groups)}
    for span in (span for span in spans if span.name == "tfgrpo.group"):
        assert span.attributes["tfgrpo.group.reward_spread"] == groups[span.attributes["tfgrpo.group.id"]]["spread"]
        assert span.events == ()
    priced = [span for span in spans if span.name == "execute_tool add"]
    assert {span.attributes["tfgrpo.tool.cost_usd"] for span in priced} == {0.002}


def test_an_environment_made_for_other_programs_is_a_warning_and_spans_say_what_was_sent(tmp_path, otlp_receiver, monkeypatch):
    others = {"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_TRACES_EXPORTER": "otlp,console"}
    for name, value in (otlp_receiver.environment() | others).items():
        monkeypatch.setenv(name, value)
    summary = run(tmp_path, run_id=RUN, model__send_temperature=False, model__send_seed=False, **SMALL)
    assert summary.exit_code == 0, summary.message
    said = [text for text in manifest(tmp_path)["warnings"] if text.startswith("OTEL_")]
    assert [text.partition("=")[0] for text in said] == ["OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"]
    assert otlp_receiver.points() == []
    chats = [span.attributes for span in otlp_receiver.spans() if span.name.startswith("chat")]
    assert chats
    assert not any({"gen_ai.request.temperature", "gen_ai.request.seed"} & set(told) for told in chats)


def test_telemetry_names_run_steps_and_providers(watched):
    _, summary, receiver = watched
    spans, ledger = receiver.spans(), summary.details["ledger"]
    (root,) = [span.attributes for span in spans if span.name.startswith("invoke_workflow")]
    assert (root["tfgrpo.run.id"], root["tfgrpo.task.id"]) == (RUN, "ledger-tools")
    assert (root["tfgrpo.run.status"], root["tfgrpo.run.decision"]) == ("finished", summary.details["decision"]["decision"])
    assert (root["tfgrpo.run.calls"], root["tfgrpo.run.tokens"]) == (ledger["calls"], ledger["tokens"])
    assert root["tfgrpo.run.cost_usd"] == pytest.approx(ledger["nano_usd"] / 1e9)
    steps = [span for span in spans if span.name in ("tfgrpo.summarize", "tfgrpo.extract")]
    assert all({"tfgrpo.epoch", "tfgrpo.group.id", "tfgrpo.item.id"} <= set(span.attributes) for span in steps)
    assert all("tfgrpo.batch" in span.attributes for span in spans if span.name == "tfgrpo.optimize")
    providers = {span.attributes["gen_ai.provider.name"] for span in spans if span.name.startswith("chat")}
    assert providers == {"simulated"}
    inferences = receiver.points("gen_ai.client.inference.duration")
    assert {point.attributes["gen_ai.provider.name"] for point in inferences} == {"simulated"}


def test_telemetry_nests_the_whole_run_and_labels_it_by_epoch(watched):
    out, _, receiver = watched
    spans = receiver.spans()
    by_id = {span.span_id: span for span in spans}

    def ancestry(span):
        names = []
        while span.parent_id:
            span = by_id[span.parent_id]
            names.append(span.name.split()[0])
        return names

    workflow = [span for span in spans if span.name.startswith("invoke_workflow")]
    assert len(workflow) == 1
    assert {span.trace_id for span in spans} == {workflow[0].trace_id}

    rollouts = [span for span in spans if span.name.startswith("invoke_agent")]
    assert len(rollouts) == len(lines(paths(out, task="ledger-tools").rollouts))
    epochs = Counter()
    for span in rollouts:
        assert ancestry(span) == ["tfgrpo.group", "tfgrpo.epoch", "invoke_workflow"]
        group = by_id[span.parent_id]
        assert by_id[group.parent_id].attributes["tfgrpo.epoch"] == span.attributes["tfgrpo.epoch"]
        epochs[span.attributes["tfgrpo.epoch"]] += 1
    assert set(epochs) == {1, 2, 3}
    inside = {tuple(ancestry(span)) for span in spans if span.name.startswith(("chat", "execute_tool"))}
    assert ("invoke_agent", "tfgrpo.group", "tfgrpo.epoch", "invoke_workflow") in inside
    assert ("tfgrpo.extract", "tfgrpo.group", "tfgrpo.epoch", "invoke_workflow") in inside
    assert ("tfgrpo.optimize", "tfgrpo.epoch", "invoke_workflow") in inside
    assert all(names[-1] == "invoke_workflow" and "tfgrpo.epoch" in names for names in inside)
    named = Counter(span.name for span in spans)
    assert named["tfgrpo.summarize"] == named["tfgrpo.group"]
    assert named["tfgrpo.store.write"] == named["tfgrpo.optimize"] > 0

    calls = sum(point.value for point in receiver.points("tfgrpo.tool.calls"))
    recorded = [event for row in lines(paths(out, task="ledger-tools").rollouts) for event in row["tools"]]
    assert calls == len(recorded)
    assert {point.attributes["tfgrpo.epoch"] for point in receiver.points("tfgrpo.tool.calls")} == {1, 2, 3}
    assert {point.attributes["tfgrpo.phase"] for point in receiver.points("tfgrpo.epoch.duration")} == {"train", "eval"}
    stored = Counter(row["operation"] for row in store(out, "ledger-tools"))
    told = {"add": "added", "modify": "changed", "merge": "merged"}
    operations = Counter()
    for point in receiver.points("tfgrpo.experiences"):
        operations[point.attributes["tfgrpo.op"]] += point.value
    assert {name: operations[told[name]] for name in stored} == stored
    assert receiver.points("tfgrpo.experiences.active")
    assert receiver.points("tfgrpo.experiences.injected")
