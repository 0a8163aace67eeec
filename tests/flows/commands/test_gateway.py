"""``tfgrpo gateway``: the lessons in force reach live traffic, also those of a later night, and it ends in peace."""

import asyncio
import itertools
import json
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.agents.endpoint import KEY, Endpoint, message_body, response_body
from tests.support.records.tasks import CENTS, TWICE, UNITS, Task
from tests.support.runs.chat_server import ChatServer
from tests.support.runs.running import LEARNING, TASK, run
from tests.support.runs.serving import serving as serve
from tests.support.waiting import until
from tfgrpo.flows import cli
from tfgrpo.flows.commands import gateway
from tfgrpo.flows.run.lessons import ServedLessons
from tfgrpo.pipelines.datasets.datasets import load_dataset
from tfgrpo.stores.experiences.credit import Row, read_credit
from tfgrpo.stores.experiences.decisions import read_decisions
from tfgrpo.stores.files.layout import TaskPaths

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def serving(*options: str, **environment: str) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    with serve("gateway", "--json", *options, **environment) as server:
        yield server.process, json.loads(server.first)


@pytest.fixture
def task(tmp_path, capsys):
    """The task that was used last."""
    for other in ("another", "z"):
        Task(tmp_path / "out", other, capsys).learn(("do", TWICE), simulated=False)
    made = Task(tmp_path / "out", "t", capsys)
    made.learn(("do", UNITS), ("avoid", CENTS), simulated=False)
    return made


def post(url: str, text: str = "3 + 4?") -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    headers = {"authorization": "Bearer key-of-ann"}
    return httpx.post(f"{url}/chat/completions", json=body, headers=headers, trust_env=False, timeout=30)


@pytest.mark.untraced
def test_lessons_in_force_of_the_task_used_last_and_keys_of_clients_are_read_again_when_they_change(task, tmp_path):
    seen: list[dict[str, Any]] = []

    def answer(number: int, body: dict[str, Any]) -> str:
        seen.append(body)
        if "slow" in str(body):
            time.sleep(1.5)
        return "seven"

    file, keys = tmp_path / "live.jsonl", tmp_path / "keys"
    keys.write_text("# clients\nann key-of-ann\nbob key-of-bob\n")
    where = ("--out", str(tmp_path / "out"), "--keep", str(file), "--keys", str(keys))
    with ChatServer(answer) as server, serving(*where, "--base-url", server.url, OPENAI_API_KEY="x") as (process, facts):
        url = facts["base_url"]

        def status(key: str) -> int:
            return httpx.get(f"{url[:-3]}/meta", headers={"x-api-key": key}, trust_env=False).status_code

        assert (facts["task_id"], len(facts["lessons"])) == ("t", 2)
        assert [status(key) for key in ("key-of-ann", "key-of-bob", "other", "")] == [200, 200, 401, 401]
        keys.write_text("ann key-of-ann\ncleo key-of-cleo\n")
        assert [status(key) for key in ("key-of-ann", "key-of-bob", "key-of-cleo")] == [200, 401, 200]
        assert post(url).headers["x-tfgrpo-arm"] == "lessons"
        assert f"- Do: {UNITS}\n- Avoid: {CENTS}" in seen[0]["messages"][0]["content"]
        task.learn(("do", TWICE), simulated=False)
        post(url)
        assert TWICE in seen[1]["messages"][0]["content"]
        meta = httpx.get(f"{url[:-3]}/meta", headers={"x-api-key": "key-of-ann"}, trust_env=False)
        assert len(meta.json()["lessons"]) == 3
        with ThreadPoolExecutor() as pool:
            slow = pool.submit(post, url, "slow")
            while len(seen) < 3:
                time.sleep(0.02)
            keys.unlink()
            assert status("key-of-ann") == 401
            process.send_signal(signal.SIGHUP)
            assert slow.result(20).json()["choices"][0]["message"]["content"] == "seven"
        _, said = process.communicate(timeout=20)
        assert process.returncode == 0, said
        assert said.decode().splitlines()[-1] == "[gateway] stopped"
    assert [item.prompt for item in load_dataset(file)] == ["3 + 4?", "slow"]


@pytest.mark.parametrize(
    ("options", "source"),
    [
        ((), "--base-url"),
        (("mcp", "--task-id", "../x"), "--task-id"),
        (("mcp", "--task-id", "nope"), "--task-id"),
        (("--base-url", "http://127.0.0.1:9/v1", "--host", "0.0.0.0"), "--host"),
        (("--base-url", "http://127.0.0.1:9/v1", "--token-env", "NOT_SET_ANYWHERE"), "--token-env"),
        (("--base-url", "http://127.0.0.1:9/v1", "--held-out", "1.5"), "--held-out"),
        (("--base-url", "http://127.0.0.1:9/v1", "--task-id", "../x"), "--task-id"),
        (("--base-url", "http://127.0.0.1:9/v1", "--keys", "/dev/null"), "--keys"),
        (("--base-url", "http://127.0.0.1:9/v1", "--max-usd", "1"), "budget.max_usd"),
        (("--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--max-usd", "1"), "budget.max_usd"),
        (("contrast",), "ACTION"),
        (("--base-url", "http://127.0.0.1:9/v1", "--port", "0", "--keep", "/proc/none/live.jsonl"), "--keep"),
        (("--base-url", "http://127.0.0.1:9/v1", "--port", "0", "--keep", "live.csv"), "--keep"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_listens(capsys, options, source):
    command = () if options[:1] == ("mcp",) else ("gateway",)
    assert cli.main([*command, *options, "--json"]) == 2
    assert [problem["source"] for problem in json.loads(capsys.readouterr().out)["problems"]] == [source]


def test_a_signal_after_the_last_moment_is_no_error(monkeypatch, tmp_path):
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr(gateway, "_welcome", lambda *_: signal.raise_signal(signal.SIGTERM))
    where = ["gateway", "--base-url", "http://127.0.0.1:9/v1", "--port", "0", "--task-id", "t", "--out", str(tmp_path)]
    try:
        assert cli.main(where) == 0
        signal.raise_signal(signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_new_version_of_the_pack_ends_its_lessons_at_once(task, tmp_path):
    root = tmp_path / "packs"
    shutil.copytree(ROOT / "prompt_packs" / "arithmetic", root / "arithmetic")
    lessons = ServedLessons(task.paths, root, lambda _: None, simulated=False)
    assert UNITS in lessons.block()
    with (root / "arithmetic" / "house-rules.md").open("a") as file:
        file.write("Be kind.\n")
    assert cli.main(["packs", "stamp", "arithmetic", "--packs-root", str(root)]) == 0
    assert lessons.block() == ""
    assert lessons.facts()["lessons"] == []


def test_lessons_of_the_simulated_model_are_not_served_to_real_ones(tmp_path, capsys):
    task = Task(tmp_path / "out", "t", capsys)
    task.learn(("do", UNITS))
    real = ServedLessons(task.paths, None, lambda _: None, simulated=False)
    assert real.block() == ""
    assert real.why_none().endswith("for --model simulated alone")
    elsewhere = TaskPaths(tmp_path / "out" / "tt")
    why = ServedLessons(elsewhere, None, lambda _: None, simulated=False).why_none()
    assert why == f"none is in force in {elsewhere.root} yet"
    assert UNITS in ServedLessons(task.paths, None, lambda _: None, simulated=True).block()


def test_what_cannot_be_read_is_reported_and_the_lessons_before_stay(task):
    said: list[str] = []
    lessons = ServedLessons(task.paths, None, said.append, simulated=False)
    before = lessons.block()
    with task.paths.promotions.open("a") as file:
        file.write("{broken\n")
    assert lessons.block() == before
    assert "promotions.jsonl" in said[0]
    task.paths.state.unlink()
    task.paths.promotions.rename(task.paths.root / "elsewhere.jsonl")
    assert lessons.block() == before
    assert "is no longer there" in said[1]
    assert ServedLessons(TaskPaths(task.paths.root / "none"), None, said.append, simulated=False).block() == ""


CONTEXT = "<environment_context>\n<cwd>/work</cwd>\n</environment_context>"
TOOLS = [{"type": "function", "name": "calculate", "parameters": {"type": "object"}}]


def as_codex(prompt: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the requests of a session: one for a title, then the agent's own."""
    title = {"model": "m", "input": [{"role": "user", "content": f"A title for: {prompt}"}]}
    turns = [{"role": "user", "content": [{"type": "input_text", "text": text}]} for text in (CONTEXT, prompt)]
    return [("/v1/responses", title), ("/v1/responses", {"model": "m", "input": turns, "tools": TOOLS, "store": False})]


def as_claude(prompt: str) -> list[tuple[str, dict[str, Any]]]:
    content = [{"type": "text", "text": text} for text in (CONTEXT, prompt)]
    turns = {"model": "m", "max_tokens": 9, "system": "You are an agent.", "messages": [{"role": "user", "content": content}]}
    return [("/v1/messages", {**turns, "tools": [{"name": "calculate", "input_schema": {"type": "object"}}]})]


def add_answers(file: Path, known: dict[str, Any]) -> list[str]:
    """Add what is right to kept items, as a person would; return their prompts."""
    until(lambda: len(file.read_text().splitlines()) == len(known))
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    own = [known[item["prompt"]] for item in kept]
    answered = [
        {**item, "answer": each["answer"], "metadata": item["metadata"] | each["metadata"]}
        for item, each in zip(kept, own, strict=True)
    ]
    file.write_text("".join(json.dumps(item) + "\n" for item in answered))
    return [item["prompt"] for item in kept]


def test_gateways_of_a_task_share_a_secret_of_which_others_know_nothing(tmp_path):
    file = tmp_path / "outcome-key.jsonl"
    made = gateway._secret_in(file)
    assert gateway._secret_in(file) == made != gateway._secret_in(tmp_path / "other.jsonl")
    assert (len(made), stat.S_IMODE(file.stat().st_mode)) == (64, 0o600)
    assert gateway._secret_in(Path("/proc/none/key.jsonl")) != made


@pytest.mark.untraced
async def test_traffic_is_learned_from_overnight_and_its_outcomes_are_rows(tmp_path, capsys):
    """Traffic, items, a night, lessons on the wire without a restart, outcomes, rows: with clients as coding agents are."""
    dataset = map(json.loads, (ROOT / "pipelines" / "data" / "arithmetic.jsonl").read_text().splitlines())
    asked, file = {item["prompt"]: item for item in itertools.islice(dataset, 60)}, tmp_path / "live.jsonl"
    where = ("--out", str(tmp_path / "out"), "--task-id", TASK)
    options = ("--model", "simulated", "--held-out", "0.5", "--keep", str(file), "--token-env", "GATEWAY_TOKEN")
    async with Endpoint() as endpoint, AsyncExitStack() as stack:
        endpoint.answer = lambda request, raw: (response_body if "responses" in request.path else message_body)("7")
        environment = {"GATEWAY_TOKEN": "a-token", "OPENAI_API_KEY": KEY}
        options = (*where, *options, "--base-url", endpoint.url)
        _, facts = await asyncio.to_thread(stack.enter_context, serving(*options, **environment))
        root = facts["base_url"].removesuffix("/v1")
        client = await stack.enter_async_context(
            httpx.AsyncClient(base_url=root, headers={"x-api-key": "a-token"}, trust_env=False, timeout=30)
        )

        async def session(name: str, requests: list[tuple[str, dict[str, Any]]]) -> httpx.Headers:
            named = "session-id" if "responses" in requests[0][0] else "x-claude-code-session-id"
            replies = [await client.post(path, json=body, headers={named: name}) for path, body in requests]
            assert {reply.status_code for reply in replies} == {200}
            assert len({reply.headers["x-tfgrpo-arm"] for reply in replies}) == 1
            return replies[-1].headers

        for number, prompt in enumerate(asked):
            await session(f"s{number}", (as_codex if number % 2 else as_claude)(prompt))
        assert add_answers(file, asked) == list(asked)
        assert "<lessons>" not in str([each.body for each in endpoint.asked])
        night = {**LEARNING, "dataset": str(file)}
        await asyncio.to_thread(partial(run, tmp_path / "out", run_id="night-1", seed=1, **night))
        task = Task(tmp_path / "out", TASK, capsys)
        held = [each for each in task.ask("experiences", "review")["lessons"] if each["state"] == "kept out"]
        for lesson in held:  # strangers wrote the items: a person lets the lessons in
            task.tell("experiences", "approve", lesson["experience_id"], "--why", "read", "--by", "Ann")
        assert held
        await asyncio.to_thread(partial(run, tmp_path / "out", run_id="night-2", seed=2, **night))
        *_, decision = read_decisions(TaskPaths.of(tmp_path / "out", TASK).promotions)
        assert decision.decision == "in force"
        endpoint.asked.clear()

        scores = []
        for number, prompt in enumerate(itertools.islice(asked, 20)):
            headers = await session(f"t{number}", as_codex(prompt))
            taught = "<lessons>" in str(endpoint.asked[-1].body)
            assert taught is (headers["x-tfgrpo-arm"] == "lessons")
            scores.append(1.0 if taught else 0.25)
            name = f"t{number}" if number % 2 else headers["x-tfgrpo-conversation"]
            posted = {"conversation": name, "score": scores[-1]}
            path = f"/t/{TASK}/outcome" if number % 3 else "/outcome"
            assert (await client.post(path, json=posted)).json() == {"kept": True}
            assert (await client.post(path, json=posted)).json() == {"kept": False}
        metrics = (await client.get("/metrics")).text
        assert f'tfgrpo_gateway_outcomes_total{{task="{TASK}",arm="lessons"}} {scores.count(1.0)}' in metrics
    result = task.ask("gateway", "compare")
    [gain] = result["libraries"]
    assert (gain["library"], gain["gain"]) == (decision.library_id, 0.75)
    assert (gain["lessons"], gain["held_out"], result["rows"]) == (scores.count(1.0), scores.count(0.25), 1)
    assert task.ask("gateway", "compare")["rows"] == 0
    rows = [line for line in read_credit(TaskPaths.of(tmp_path / "out", TASK).credit) if isinstance(line, Row)]
    assert (rows[-1].source, rows[-1].one, rows[-1].difference) == ("outcome", decision.experience_ids, 0.75)
    assert rows[-1].conditions == rows[0].conditions
