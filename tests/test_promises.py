"""What must always hold, looked for in what a run leaves behind: promises that belong to no single room."""

import ast
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.support.models.faults import broken_calls
from tests.support.rewards.rewarder_examples import EXAMPLES, KEY
from tests.support.runs.settings_probe import TINY, SettingsProbe, lines
from tfgrpo.flows.console.observer import Observers
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.flows.run.execution import execute
from tfgrpo.flows.run.lessons import short_enough
from tfgrpo.prompt_packs.stamps import load_prompt_pack, merge_experiences, pack_stamp
from tfgrpo.stores.clock import utc_now
from tfgrpo.stores.experiences.store import ExperienceStore
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.text import count_words
from tfgrpo.tasks.shapes import Frame, Trajectory

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("flows", "tasks", "stores", "prompt_packs", "rewarders", "pipelines")
KNOWN = {
    "experiences.jsonl", "batches.jsonl", "credit.jsonl", "promotions.jsonl", "state.json",
    "manifest.json", "journal.jsonl",
    "rollouts.jsonl", "groups.jsonl", "prompts.jsonl", "items.jsonl", "metrics.jsonl",
    "per-epoch.json", "report.html", "ledger.jsonl",
}  # fmt: skip


Sources: TypeAlias = list[tuple[Path, list[ast.AST]]]
"""Every module with its nodes, itself first: to walk through all of them takes half a second."""


@pytest.fixture(scope="module")
def sources():
    paths = [path for floor in FLOORS for path in sorted((ROOT / floor).rglob("*.py"))]
    return [(path, [*ast.walk(ast.parse(path.read_text("utf-8")))]) for path in paths]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A run that wrote lessons, and the directory of its task."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        probe = SettingsProbe(tmp_path_factory.mktemp("learned"), monkeypatch)
        run = probe.tiny_run({"tfgrpo.sample_size": "12", "tfgrpo.group_size": "3"})
        yield TaskPaths.of(probe.root / "run-1", "tfgrpo-learning").root, run


@pytest.fixture
def probe(tmp_path, monkeypatch):
    return SettingsProbe(tmp_path, monkeypatch)


def test_a_run_leaves_files_of_known_names_and_nothing_else(learned):
    task, _ = learned
    left = [path for path in task.rglob("*") if path.is_file() and not path.name.endswith(".lock")]
    assert {path.name for path in left if path.stat().st_size} <= KNOWN
    assert {"experiences.jsonl", "promotions.jsonl", "state.json"} <= {path.name for path in task.iterdir()}
    assert {path.stat().st_mode & 0o077 for path in task.rglob("*") if path.is_file()} == {0}


def test_a_lesson_names_the_group_it_was_learned_from_and_its_rank(learned):
    task, run = learned
    records = lines(task / "experiences.jsonl")
    assigned = {spec.group_id for spec in run.specs}
    rollouts = {row["rollout_id"]: row for row in lines(task / "runs" / "run" / "rollouts.jsonl")}
    assert records
    for record in records:
        assert record["group_id"] in assigned
        assert set(record["evidence"]) <= set(rollouts)
        assert record["reward"]["relative_rank"] > 0.5
    assert {row["group_id"] for row in rollouts.values()} == assigned
    assert all(0 < count_words(row["summary"]) <= 32 for row in rollouts.values())
    scores = run.manifest["tfgrpo"]["reward_scores"]
    assert scores["gt"]["count"] == scores["total"]["count"] > 0
    assert scores["relative"]["count"] > 0


def test_all_members_of_a_group_are_given_the_same_stamped_text(learned):
    task, run = learned
    given: dict[str, set[str]] = {}
    for row in lines(task / "runs" / "run" / "rollouts.jsonl"):
        given.setdefault(row["group_id"], set()).add(row["prompt_digest"])
    assert {len(digests) for digests in given.values()} == {1}
    stamps = {row["digest"]: row["stamp"] for row in lines(task / "runs" / "run" / "prompts.jsonl")}
    assert {stamps[digest] for digests in given.values() for digest in digests} == {run.manifest["pack"]["stamp"]}


def test_the_manifest_and_the_rollouts_record_the_group_index(learned):
    task, run = learned
    assigned = run.manifest["cohorts"]["1"]["sampling"]["assignments"]
    assert assigned == {"min_instances": 3, "max_instances": 3, "target": 3, "group_index": [0, 1, 2]}
    indices: dict[tuple[str, str], list[int]] = {}
    for row in lines(task / "runs" / "run" / "rollouts.jsonl"):
        indices.setdefault((row["phase"], row["group_id"]), []).append(row["index"])
    found = {(phase, tuple(sorted(given))) for (phase, _), given in indices.items()}
    assert found == {("train", (0, 1, 2)), ("eval", (0, 1))}
    sweep = run.manifest["cohorts"]["2"]["sampling"]
    assert (sweep["purpose"], sweep["assignments"]["group_index"]) == ("evaluation", [0, 1])


def test_a_refused_group_size_reaches_no_scheduler(probe, caplog):
    def runner(_: str) -> Any:
        raise AssertionError("nothing may be scheduled")

    request = RunRequest(settings={**TINY, "out": str(probe.root / "out"), "tfgrpo.group_size": 1})
    with caplog.at_level(logging.ERROR, "tfgrpo.guardrails"):
        summary = execute(request, {}, Observers(), runner, clock=utc_now)
    assert (summary.status, summary.exit_code) == ("refused", 2)
    assert "refused before scheduling" in caplog.text
    assert not (probe.root / "out").exists()


def test_summaries_of_rollouts_obey_a_lowered_limit_too(probe):
    group = probe.exchange({"tfgrpo.experience_max_words": "5"}).result
    assert {count_words(rollout.summary) <= 5 for rollout in group.rollouts} == {True}


def test_a_lowered_limit_holds_for_lessons_that_were_stored_before_it(learned, probe):
    task, _ = learned
    pack = load_prompt_pack("arithmetic")
    stored = list(ExperienceStore(task / "experiences.jsonl", approved={"arithmetic": pack_stamp(pack)}).records())
    assert merge_experiences(probe.plan({}).pack, stored).experience_ids
    shorter = merge_experiences(probe.plan({"tfgrpo.experience_max_words": "4"}).pack, stored)
    assert not shorter.experience_ids
    assert {reason.partition(" ")[2] for _, reason in shorter.skipped} == {"words; at most 4"}


def leaky(prompt: str) -> str:
    """An agent whose error tells the key."""
    raise ConnectionError(f"401 for https://api.test/?key={KEY} ({prompt[:2]})")


def talkative(prompt: str) -> Trajectory:
    """An agent that tells the key in its answer and in each of its steps."""
    return Trajectory(f"Answer: {KEY}", (Frame("tool", f"t-{KEY}", f"{prompt} {KEY}", 1, None, 1.0, f"no {KEY}"),))


def leaking_tool(number: int) -> str:
    """A tool that fails, and tells the key."""
    raise ConnectionError(f"no {number} for {KEY}")


@pytest.mark.parametrize(
    "options",
    [
        {"actor.kind": "tests.test_promises:leaky"},
        {"actor.kind": "tests.test_promises:talkative"},
        {
            "actor.kind": "tools",
            "actor.tools": '["tests.support.runs.settings_probe:double", "tests.test_promises:leaking_tool"]',
        },
        {"rewarders": f'[{{"name": "{EXAMPLES}:leaking"}}]'},
    ],
    ids=["agent", "answer", "tool", "rewarder"],
)
def test_no_record_shows_the_key_that_foreign_code_tells(probe, monkeypatch, options):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    exchange = probe.exchange(options, tool="leaking_tool" if "actor.tools" in options else None)
    assert all(request.headers["authorization"] == f"Bearer {KEY}" for request, _ in exchange.requests)
    said = repr(exchange.result) + "".join(request.content.decode() for request, _ in exchange.requests)
    written = "".join(path.read_text("utf-8") for path in probe.root.rglob("*") if path.is_file())
    assert KEY not in said + written
    assert "***" in said + written


def test_a_truncated_attempt_is_no_wrong_answer(probe):
    with broken_calls(truncated=1.0):
        run = probe.tiny_run({"tfgrpo.max_lost_share": "1.0", "tfgrpo.allow_zero": "on"})
    assert "brought a reward" in run.manifest["message"]
    assert run.metrics
    assert all(row["reward_mean"] is None for row in run.metrics)
    assert {name for row in run.metrics for name in row["outcomes"]} <= {"ungraded", "failed"}


def test_rewards_beyond_one_are_recorded_and_put_nothing_into_force(probe):
    beyond = {"rewarders": f'[{{"name": "{EXAMPLES}:lengths"}}]', "tfgrpo.allow_zero": "true"}
    run = probe.tiny_run({**beyond, "tfgrpo.sample_size": "4"})
    assert run.manifest["decision"]["decision"] == "not yet"
    assert max(row["reward_mean"] for row in run.metrics) > 1.0


def test_randomness_is_drawn_from_passed_sources_alone(sources):
    """No module-level state of a random generator: ``random.random()`` and its kind are never called on the module."""
    generators = {"random": {"Random"}, "np.random": {"default_rng"}}
    for path, nodes in sources:
        for node in nodes:
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name | ast.Attribute):
                continue
            base = ast.unparse(node.value)
            if base in generators:
                assert node.attr in {*generators[base], "Generator"}, f"{path}:{node.lineno}"


def test_a_broad_handler_raises_or_makes_data_of_what_it_caught(sources):
    """``except Exception`` raises, uses the error that it caught, or returns something in place of a result."""
    for path, nodes in sources:
        for node in nodes:
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = ast.unparse(node.type) if node.type is not None else "everything"
            if "Exception" not in caught.replace("PrefectException", "") and caught != "everything":
                continue
            raises = any(isinstance(part, ast.Raise) for part in ast.walk(node))
            uses = any(isinstance(part, ast.Name) and part.id == node.name for part in ast.walk(node))
            returns = any(isinstance(part, ast.Return) and part.value is not None for part in ast.walk(node))
            assert raises or uses or returns, f"{path}:{node.lineno} swallows {caught}"


def test_no_module_keeps_state_that_changes(sources):
    """Module-level names are constants: lists, sets and dictionaries that code fills are not among them.

    The exceptions belong to the process and say so: its exporters, its open runtimes, and the callables in use by name.
    """
    allowed = {("setup.py", "_CONFIGURED"), ("host.py", "_HOSTS"), ("importing.py", "_HANDED_OVER")}
    for path, nodes in sources:
        names = {
            target.id
            for node in nodes[0].body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        for node in nodes:
            if isinstance(node, ast.Global):
                raise AssertionError(f"{path}:{node.lineno} changes a module-level name")
            for name in _changed_by(node) & names:
                assert (path.name, name) in allowed, f"{path}:{node.lineno} changes {name}"


def _changed_by(node: ast.AST) -> set[str]:
    """Names whose object a statement changes in place."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = [target.value for target in node.targets if isinstance(target, ast.Subscript)]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        changing = {"append", "add", "update", "extend", "setdefault", "pop", "clear", "insert", "remove", "discard"}
        targets = [node.func.value] if node.func.attr in changing else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def test_an_epoch_reports_rewards_of_scored_rollouts_alone(learned):
    task, run = learned
    by_epoch = run.manifest["tfgrpo"]["epochs"]
    for epoch in by_epoch:
        chosen = [row for row in lines(task / "runs" / "run" / "rollouts.jsonl") if row["epoch"] == epoch["epoch"]]
        scored = [row["outcome"]["reward"] for row in chosen if row["outcome"]["name"] == "scored"]
        assert epoch["scored"] == len(scored)
        assert epoch["lost"] == len(chosen) - len(scored)
        arms = {row["arm"] for row in chosen}
        told = "library" if "library" in arms else arms.pop()
        rewards = [row["outcome"]["reward"] for row in chosen if (row["arm"], row["outcome"]["name"]) == (told, "scored")]
        assert epoch["mean_reward"] == pytest.approx(sum(rewards) / len(rewards))


def test_a_stamp_that_does_not_hold_on_writing_is_a_warning_and_the_run_goes_on(probe, monkeypatch):
    """The pack was approved anew between plan and curation: what is learned for it then is of another version."""
    other = replace(pack_stamp(load_prompt_pack("arithmetic")), stamped_at="2001-01-01T00:00:00+00:00")
    monkeypatch.setattr("tfgrpo.tasks.learning.curate.pack_stamp", lambda _: other)
    run = probe.tiny_run({"tfgrpo.sample_size": "8", "tfgrpo.group_size": "3"})
    assert run.status == "finished"
    assert any("not stamped for the pack in force" in warning for warning in run.manifest["warnings"])
    assert run.manifest["tfgrpo"]["experiences_written"] == 0
    assert all(not spec.pack.experience_ids for spec in run.specs)


def test_lessons_too_long_for_a_lowered_limit_take_nobodys_slot(learned, probe):
    task, _ = learned
    pack = load_prompt_pack("arithmetic")
    stored = tuple(ExperienceStore(task / "experiences.jsonl", approved={"arithmetic": pack_stamp(pack)}).records())
    words = sorted({count_words(entry.summary32) for entry in stored})
    assert len(words) > 1
    left = short_enough(stored, replace(pack, words_allowed=words[0]))
    assert {count_words(entry.summary32) for entry in left} == {words[0]}
