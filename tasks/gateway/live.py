"""Serve the gateway in production: who may call, what its clients share, and which conversation a request belongs to."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Literal, NamedTuple, TypeVar

import httpx
from aiohttp import web

from tfgrpo.pipelines.settings.addresses import names_loopback
from tfgrpo.prompt_packs.safety import without_secrets
from tfgrpo.prompt_packs.stamps import holds_lessons
from tfgrpo.stores.clock import Clock, utc_now
from tfgrpo.stores.errors import ModelReplyMalformed, StoreError, TfgrpoError
from tfgrpo.stores.files.atomic import read_lines
from tfgrpo.stores.files.lines import LineFile, disk
from tfgrpo.stores.json_values import json_of, mapping_of, sha256_hex
from tfgrpo.stores.ledger import Ledger
from tfgrpo.stores.numeric import is_number
from tfgrpo.stores.telemetry.setup import SentArm, Telemetry
from tfgrpo.stores.text import replace_surrogates
from tfgrpo.tasks.gateway.call import MAX_BODY, GatewayRefusal, Upstream, is_key_of, keys_in
from tfgrpo.tasks.gateway.dialects import SYSTEM_ROLES, Dialect, offers_tools, rows, texts_of, texts_within, tool_names
from tfgrpo.tasks.gateway.server import Server, method_path
from tfgrpo.tasks.gateway.session import Additions, Caller, Outgoing
from tfgrpo.tasks.models.base import ChatReply
from tfgrpo.tasks.models.chat import AdaptiveLimiter, ChatClient
from tfgrpo.tasks.models.endpoint import Scrub, scrubbed
from tfgrpo.tasks.models.transport import TRANSPORT_ERRORS, exchange
from tfgrpo.tasks.shapes import Frame

_T = TypeVar("_T")
# Names of conversations and answers whose beginning is remembered, and ids of requests.
_REMEMBERED: Final = 100_000
# Most characters of these beginnings; what several names share counts for each.
_CHARACTERS: Final = 256 << 20
# Headers and members of ``metadata`` by which agents name their conversations, the best first.
_NAMING: Final = [
    re.compile(rf"(?:^|.*[-_])(?:{word})[-_]?id", re.IGNORECASE) for word in ("session", "thread", "conversation")
]
# A text that agents add to the question: one element, such as ``<environment_context>``. Takes linear time.
_CONTEXT: Final = re.compile(r"\s*+<([\w.-]++)[^<>]*+>.*</\1>\s*+", re.DOTALL)
# Seconds in which an agent that names its conversation starts its own work, after calls for a title for example.
_UNDECIDED_S: Final = 30.0
_MOST_UNDECIDED: Final = 1_000
# Of a conversation's digest, in its id, and of the keyed digest by which the id is known as ours.
_NAME_DIGITS: Final = 16
# Most characters of question, instructions and answer that are kept: to mask them takes a quarter of a second.
_LONGEST_ITEM: Final = 1 << 18
# Most items that wait to be kept.
_WAITING: Final = 64
_CONVERSATION: Final = "x-tfgrpo-conversation"
_MIN_SECRET: Final = 6
_CLOSING_S: Final = 30.0
_PROBE_S: Final = 5.0
_PROBED_S: Final = 5.0
_TASK: Final = re.compile(r"/t/([A-Za-z0-9][\w.-]*)(?=/)")


class Conversation(NamedTuple):
    """What all requests of a conversation have in common."""

    name: str
    """Digest of its name, by which its arm is drawn; empty while that is not known."""
    prompt: str
    """The last text of the user before the answer, without what the agent added to it; empty when there is none."""
    media: str = ""
    """Digest of what the user shows next to text, an image for example; empty without any."""
    begun_here: bool = True
    """False when it continues an answer that is not remembered: ``prompt`` is then a later message."""


def opening_of(body: Mapping[str, Any], named: str = "") -> tuple[str, Conversation, list[str]]:
    """Return the system text, how a conversation begins, and digests of its first message of the user, of two and so on."""
    turns = body.get("messages", body.get("input"))
    turns = [{"role": "user", "content": turns}] if isinstance(turns, str) else list(rows(turns))
    system = [texts_of(body.get(name)) for name in ("system", "instructions")]
    system += [texts_of(turn.get("content")) for turn in turns if turn.get("role") in SYSTEM_ROLES]
    contents = [turn.get("content") for turn in turns if turn.get("role") == "user"]
    digest, begun = hashlib.sha256((named and sha256_hex(replace_surrogates(named))).encode()), list[str]()
    for content in contents:
        text = f"{_question(content) or texts_of(content)}\x1f{_shown(content)}\x1e"
        digest.update(replace_surrogates(text).encode())
        begun.append(digest.hexdigest())
    questions = [question for content in contents if (question := _question(content))]
    prompt = (questions or [texts_of(content) for content in contents] or [""])[-1]
    media = next(filter(None, map(_shown, contents)), "")
    return "\n\n".join(filter(None, system)), Conversation("", prompt, media), begun


def _question(content: object) -> str:
    """Return the text of the user in a message; empty for one of context alone."""
    texts = [texts_of([block]) for block in content] if isinstance(content, list) else [texts_of(content)]
    return "".join(text for text in texts if not _CONTEXT.fullmatch(text))


def _shown(content: object) -> str:
    """Return the digest of what a message shows next to its text: no results of tools, which come later."""
    beside = [block for block in rows(content) if "text" not in block and block.get("type") != "tool_result"]
    # The longest is the image itself, not a mark beside it that comes and goes.
    media = max((text for _, text, _ in texts_within(beside)), key=len, default="")
    return media and sha256_hex(replace_surrogates(media))


def name_by_agent(headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
    """Return the name that an agent gives the conversation, in headers or the labels of the request; empty for none."""
    labels = {name: value for name, value in mapping_of(body.get("metadata")).items() if isinstance(value, str)}
    named = [each[name] for each in (headers, labels) for like in _NAMING for name in each if like.fullmatch(name)]
    return next(filter(None, [*named, texts_of(body.get("prompt_cache_key")), labels.get("user_id")]), "")


class Conversations:
    """The conversations of a task that began here, by digests of the names of their answers and of their first messages."""

    def __init__(self, task_id: str) -> None:
        self._task_id = task_id
        self._remembered: OrderedDict[str, Conversation] = OrderedDict()
        self._characters = 0
        self._agents: OrderedDict[str, None] = OrderedDict()

    def digest(self, name: str) -> str:
        """Return what stands for a name that a client or the endpoint gives: of any length, and perhaps no Unicode."""
        return sha256_hex(replace_surrogates(f"{self._task_id}\n{name}"))

    def of(self, body: Mapping[str, Any], opening: Conversation, begun: Sequence[str], named: str) -> Conversation:
        """Return the conversation of a request that begins so, as ``opening_of`` has it."""
        reference, earlier = body.get("conversation"), body.get("previous_response_id")
        own = texts_of(mapping_of(reference).get("id") if isinstance(reference, dict) else reference)
        digests = [*map(self.digest, filter(None, (texts_of(earlier), own))), *begun]
        digest, name = next((each for each in digests if each in self._remembered), None), named or own
        if digest is not None:
            self._remembered.move_to_end(digest)
            conversation = self._remembered[digest]
            # Its start stays as it was: a name that comes later is that of its own request.
            return conversation._replace(name=self.digest(name)) if name else conversation
        drawn_by = self.digest(name or (begun or [""])[-1])
        conversation = opening._replace(name=drawn_by, begun_here=earlier is None)
        if own or (begun and earlier is None):
            self.remember(conversation, self.digest(own) if own else begun[-1])
        return conversation

    def is_auxiliary(self, conversation: Conversation, *, tools: bool) -> bool:
        """Return whether a request is none of an agent's own: it has no tools where others of the conversation have."""
        if tools:
            _keep_newest(self._agents, conversation.name, None)
        return not tools and conversation.name in self._agents

    def remember(self, conversation: Conversation, digest: str) -> None:
        """Remember a conversation by the digest of its own name, or of that of an answer."""
        before = self._remembered.pop(digest, None)
        self._remembered[digest] = conversation
        self._characters += len(conversation.prompt) - (len(before.prompt) if before is not None else 0)
        while len(self._remembered) > _REMEMBERED or self._characters > _CHARACTERS:
            self._characters -= len(self._remembered.popitem(last=False)[1].prompt)


def _keep_newest(table: OrderedDict[str, _T], name: str, value: _T) -> None:
    table[name] = value
    table.move_to_end(name)
    if len(table) > _REMEMBERED:
        table.popitem(last=False)


def kept_item(system: str, of: Conversation, arm: SentArm, tools: Collection[str], reply: ChatReply) -> dict[str, Any] | None:
    """Return a question with the answer that ends its turn; None if that only calls tools, and for what is not of text."""
    text, prompt = reply.message.content or "", of.prompt
    whole = text and prompt.strip() and not reply.message.tool_calls and not of.media
    if not whole or len(system) + len(prompt) + len(text) > _LONGEST_ITEM:
        return None
    name = "live-" + sha256_hex(replace_surrogates(f"{system}\x1f{prompt}"))[:16]
    metadata = {"foreign": True, "arm": arm, "model": reply.model, "tools": sorted(tools), "reply": text}
    return {"id": name, "prompt": prompt, "system_prompt": system, "metadata": metadata}


class KeptItems:
    """The traffic of production as items of a dataset, JSON lines with mode 0600. A question in the file is not kept again."""

    def __init__(self, path: Path, max_bytes: int, say: Callable[[str], None]) -> None:
        """``say`` reports why nothing is kept. Raises ``StoreError`` for a file that cannot be written."""
        self._path, self._max_bytes, self._say = path, max_bytes, say
        with LineFile(path), disk(path):
            path.chmod(0o600)  # one that was there may have another mode
        self._ids: set[str] = set()
        for line in read_lines(path):
            with suppress(ValueError, KeyError, TypeError):  # a line of the user's own, which stays as it is
                self._ids.add(json.loads(line)["id"])
        self._added = 0
        self._problem: str | None = None
        self._worker, self._waiting = ThreadPoolExecutor(1), set[Future[None]]()

    def add(self, item: dict[str, Any], scrub: Scrub) -> None:
        """Keep an item, unless too many wait."""
        # What waits, before the size is read: an item that is written in between is not in it.
        name, size, waits = item["id"], 0, bool(self._waiting)
        with suppress(OSError):
            size = self._path.stat().st_size
        if not size and not waits:
            self._ids.clear()
        if name in self._ids or len(self._waiting) >= _WAITING:
            return
        self._ids.add(name)
        future = self._worker.submit(self._keep, item, lambda text: without_secrets(replace_surrogates(scrub(text))))
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)

    def settle(self) -> None:
        """Wait until what was added is in the file."""
        wait([*self._waiting])

    def _keep(self, item: dict[str, Any], clean: Scrub) -> None:
        item = scrubbed(item, clean)
        # No checksums: people add answers. Opened each time: it may have been moved away, and a full disk have room again.
        data, problem = f"{json.dumps(item, ensure_ascii=False)}\n".encode(), None
        try:
            with LineFile(self._path) as file:
                if file.size() + len(data) > self._max_bytes:
                    problem = f"the file has reached {self._max_bytes >> 20} MiB"
                else:
                    file.cut_incomplete()
                    file.write(data)
        except StoreError as error:  # a full disk must not fail an answer
            problem = str(error)
        if problem is None:
            self._added += 1
        else:
            self._ids.discard(item["id"])
            if problem != self._problem:
                self._say(f"no traffic is kept: {problem}")
        self._problem = problem

    def facts(self) -> dict[str, Any]:
        """Return what was kept, as JSON."""
        return {"file": str(self._path), "items": len(self._ids), "added": self._added, "problem": self._problem}


@dataclass(slots=True)
class Traffic:
    """State of one task's gateway in production. For one event loop."""

    task_id: str
    lessons: Callable[[], str]
    """Returns the block of the lessons in force; empty without any. Does not raise."""
    telemetry: Telemetry
    served: Callable[[], Mapping[str, Any]] = dict
    """Returns what is in force, as ``/meta`` shows it: ``library``, and in ``problem`` why the task is not ready."""
    held_out: float = 0.0
    """Share of conversations without lessons."""
    models: Mapping[str, str] = field(default_factory=dict)
    lessons_in: Literal["system", "user"] = "system"
    max_tokens: int = 1024
    kept: KeptItems | None = None
    outcomes: LineFile | None = None
    secret: str = field(default_factory=token_hex)
    """Key of the ids of conversations; gateways that share it know each other's."""
    conversations: Conversations = field(init=False)
    _counts: dict[SentArm, Counter[str]] = field(default_factory=dict)
    _seconds: defaultdict[SentArm, float] = field(default_factory=lambda: defaultdict(float))
    _ids: OrderedDict[str, str] = field(default_factory=OrderedDict)
    _undecided: list[tuple[Conversation, Callable[[], None]]] = field(default_factory=list)
    _since: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.conversations = Conversations(self.task_id)

    def arm_of(self, conversation: Conversation) -> SentArm:
        """Draw the arm of a conversation, always the same one."""
        return "held-out" if int(conversation.name[:13], 16) / 16**13 < self.held_out else "lessons"

    def id_of(self, conversation: Conversation) -> str:
        """Return the id of a conversation, with its arm and lessons as it began."""
        # Signed, it needs no memory: a client may report what came of it after a restart, and to another gateway.
        name = conversation.name[:_NAME_DIGITS]
        if name not in self._ids:
            claims = f"{name}.{self.arm_of(conversation)}.{self.served().get('library') or 'none'}"
            _keep_newest(self._ids, name, self._signed(claims))
        return self._ids[name]

    def outcome(self, conversation: str, score: float) -> bool | None:
        """Keep what a conversation, by id or name, was worth the first time; None if it is unknown. Raises ``StoreError``."""
        signed = replace_surrogates(self._ids.get(self.conversations.digest(conversation)[:_NAME_DIGITS], conversation))
        claims = signed.rpartition(".")[0]
        if self.outcomes is None or not hmac.compare_digest(signed.encode(), self._signed(claims).encode()):
            return None
        name, arm, library = claims.split(".")
        line = {"line_id": name, "arm": arm, "library": library, "score": score, "at": time.time()}
        if (new := self.outcomes.add([line])) == 1:
            self.count("lessons" if arm == "lessons" else "held-out", outcomes=1)
        return new == 1

    def _signed(self, claims: str) -> str:
        return f"{claims}.{hmac.new(self.secret.encode(), claims.encode(), 'sha256').hexdigest()[:_NAME_DIGITS]}"

    def count(self, arm: SentArm, **more: int) -> None:
        """Add to the counts of an arm."""
        self._counts.setdefault(arm, Counter()).update(more)

    def answered(self, arm: SentArm, reply: ChatReply) -> None:
        """Count an answer, its tokens and its time."""
        usage = reply.usage
        tokens = {} if usage is None else {"input_tokens": usage.prompt, "output_tokens": usage.completion}
        self.count(arm, answered=1, of_unknown_usage=int(usage is None), **tokens)
        self._seconds[arm] += reply.latency_s

    def keep(self, conversation: Conversation, keep: Callable[[], None], *, undecided: bool) -> None:
        """Keep an answer; of an agent's call without tools after a while, in which calls with tools may come."""
        if not undecided:
            keep()
        elif len(self._undecided) < _MOST_UNDECIDED:
            self._undecided.append((conversation, keep))
            asyncio.get_running_loop().call_later(_UNDECIDED_S, self.decide, 1)

    def decide(self, count: int | None = None) -> None:
        """Keep the oldest answers that wait, all without ``count``, unless they are auxiliary by now."""
        waiting, self._undecided = self._undecided[:count], self._undecided[len(self._undecided[:count]) :]
        for conversation, keep in waiting:
            if not self.conversations.is_auxiliary(conversation, tools=False):
                keep()

    def facts(self) -> dict[str, Any]:
        """Return the counts and what is in force, as JSON."""
        arms = {
            arm: {**counts, "mean_s": round(self._seconds[arm] / counts["answered"], 4) if counts["answered"] else None}
            for arm, counts in self._counts.items()
        }
        kept = None if self.kept is None else self.kept.facts()
        up_s = round(time.monotonic() - self._since, 1)
        own = {"task_id": self.task_id, "held_out": self.held_out, "up_s": up_s, "arms": arms, "kept": kept}
        return {**self.served(), **own}

    def samples(self) -> Iterator[str]:
        """Yield the counts in the form of Prometheus."""
        for arm, counts in self._counts.items():
            for name, count in {**counts, "seconds": self._seconds[arm]}.items():
                yield f'tfgrpo_gateway_{name}_total{{task="{self.task_id}",arm="{arm}"}} {count}'


class LiveClient(Caller):
    """The caller of one request, which is not journalled."""

    def __init__(self, traffic: Traffic, request: web.BaseRequest, scrub: Scrub) -> None:
        """``scrub`` removes the endpoint's own secrets; the client's keys are removed with them."""
        carrier = {name: request.headers[name] for name in ("traceparent", "tracestate") if name in request.headers}
        secrets = [key for key in keys_in(request) if len(key) >= _MIN_SECRET]
        # Spans and metrics call the endpoint by its protocol.
        super().__init__(traffic.telemetry, "openai", traffic.max_tokens, carrier, partial(_masked, secrets, scrub))
        self.arm: SentArm = "off"
        self._traffic, self._request = traffic, request
        self._conversation, self._undecided = Conversation("", ""), False
        self._system: str | None = None  # of a question that is kept

    def additions_for(self, dialect: Dialect, body: Mapping[str, Any]) -> Additions:
        """Draw the arm of the conversation, and return its lessons."""
        traffic, headers = self._traffic, self._request.headers
        by_agent = name_by_agent(headers, body)
        named = headers.get(_CONVERSATION) or by_agent
        system, opening, begun = opening_of(body, named)
        self._conversation = of = traffic.conversations.of(body, opening, begun, named)
        tools = offers_tools(body)
        auxiliary = bool(named) and traffic.conversations.is_auxiliary(of, tools=tools)
        self._undecided = bool(by_agent) and not tools
        taught = ""
        if headers.get("x-tfgrpo-lessons", "").lower() != "off" and dialect.teach is not None:
            self.arm = "off" if auxiliary else traffic.arm_of(of)
            taught = traffic.lessons() if self.arm == "lessons" else ""
            # A later answer is none to the question, though a subagent may get all of the conversation.
            if opening.prompt in {"", of.prompt} and of.begun_here and not auxiliary and not holds_lessons(system):
                self._system = system
            self.headers = {_CONVERSATION: traffic.id_of(of)}
        self.headers = {**self.headers, "x-tfgrpo-arm": self.arm}
        self.facts = {"arm": self.arm}
        return Additions(taught, models=traffic.models, lessons_in=traffic.lessons_in)

    def begin(self, request: Outgoing) -> list[Frame]:
        """Count the request."""
        self._traffic.count(self.arm, calls=1, with_lessons=int(request.added is not None))
        return []

    def answered(self, slot: list[Frame], request: Outgoing, reply: ChatReply) -> None:  # noqa: ARG002 - there are no frames
        """Count an answer, remember the conversation, and keep both if traffic is kept."""
        traffic, of = self._traffic, self._conversation
        traffic.answered(self.arm, reply)
        if request.dialect.stateful and reply.response_id:
            traffic.conversations.remember(of, traffic.conversations.digest(reply.response_id))
        if traffic.kept is None or self._system is None:
            return
        if (item := kept_item(self._system, of, self.arm, {*tool_names(request.body)}, reply)) is not None:
            traffic.keep(of, partial(traffic.kept.add, item, self.scrub), undecided=self._undecided)

    def unanswered(self, why: TfgrpoError | None) -> None:
        """Count a failure."""
        if why is not None:
            self._traffic.count(self.arm, failed=1)


def _masked(secrets: Sequence[str], scrub: Scrub, text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return scrub(text)


class _SteadyLimiter(AdaptiveLimiter):
    """Leaves the pace to the clients: what one of them is refused, with its own key, slows down no other."""

    def pushed_back(self, started: int) -> None:
        """Do nothing."""


class LiveServer(Server):
    """Serves clients in production: without ``keys`` those on loopback alone, whose own keys go to the endpoint."""

    def __init__(
        self,
        client: ChatClient,
        served: Callable[[str], Traffic | None],
        keys: Callable[[], Collection[str]] | None,
        now: Clock = utc_now,
    ) -> None:
        """``served`` returns a task by name, the one without its own path for "", and None for one that there is not."""
        super().__init__(Upstream(client, callers_keys=keys is None), _CLOSING_S)
        client.limiter = _SteadyLimiter(client.concurrency)
        self._client, self._served, self._keys, self._now = client, served, keys, now
        self._tasks: dict[str, Traffic] = {}
        self._day = now().date()
        self._probe: asyncio.Task[str] | None = None
        self._probed_at = 0.0

    async def aclose(self) -> None:
        """Stop, and keep what waits to be kept."""
        await super().aclose()
        for task in self._tasks.values():
            task.decide()
            if task.kept is not None:
                await asyncio.to_thread(task.kept.settle)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        name, path = _task_and_path(request.path)
        if request.method == "GET" and path in {"/healthz", "/readyz"}:
            problems = {"endpoint": "", "library": ""}
            if path == "/readyz":
                endpoint = await self._endpoint_problem()
                problems = {"endpoint": endpoint, "library": self._task("").served().get("problem", "")}
            status, text = (503, "not ready") if any(problems.values()) else (200, "ok")
            return web.json_response({"status": text, **problems}, status=status)
        if request.method == "GET" and path in {"/metrics", "/meta"}:
            self._check(request)
            task = self._task(name)
            if path == "/meta":
                return web.json_response(task.facts())
            samples = (sample for each in self._tasks.values() for sample in each.samples())
            return web.Response(text="".join(f"{sample}\n" for sample in samples))
        if request.method == "POST" and path == "/outcome":
            self._check(request)
            return _outcome(self._task(name), await self._read(request))
        return await super()._answer(request)

    def _admitted(self, request: web.BaseRequest) -> tuple[Caller, str]:
        self._check(request)
        if (today := self._now().date()) != self._day:  # caps are of a day
            self._day, self._client.ledger = today, Ledger(self._client.ledger.budget)
        name, path = _task_and_path(request.path)
        return LiveClient(self._task(name), request, self._client.endpoint.scrub), method_path(path)

    def _task(self, name: str) -> Traffic:
        if name not in self._tasks:
            if (task := self._served(name)) is None:
                raise GatewayRefusal(404, "no lessons of a task of this name are in force")
            self._tasks[name] = task
        return self._tasks[name]

    async def _endpoint_problem(self) -> str:
        """Return why the endpoint cannot be reached; empty if it answers, as by a refusal. Asks seldom, once for all."""
        if self._probe is None or (self._probe.done() and time.monotonic() - self._probed_at >= _PROBED_S):
            self._probe, self._probed_at = asyncio.create_task(self._ask_endpoint()), time.monotonic()
        return await asyncio.shield(self._probe)

    async def _ask_endpoint(self) -> str:
        client = self._client
        request = httpx.Request("GET", client.endpoint.url("/models"), headers=client.endpoint.headers())
        try:
            status = (await exchange(client.http, request, _PROBE_S, MAX_BODY)).status
        except (*TRANSPORT_ERRORS, ModelReplyMalformed) as error:
            return type(error).__name__
        return f"status {status}" if status >= 500 else ""

    def _check(self, request: web.BaseRequest) -> None:
        if self._keys is not None:
            if not any(is_key_of(request, key) for key in self._keys()):
                raise GatewayRefusal(401, "the API key is none of the gateway's")
        elif not names_loopback(request.headers.get("host", "")):
            # A web page may reach loopback under its own name (DNS rebinding).
            raise GatewayRefusal(403, "the Host header names another machine; see --token-env")


def _task_and_path(path: str) -> tuple[str, str]:
    match = _TASK.match(path)
    return ("", path) if match is None else (match[1], path[match.end() :])


def _outcome(traffic: Traffic, raw: bytes) -> web.Response:
    body = mapping_of(json_of(raw))
    conversation, score = body.get("conversation"), body.get("score")
    worth = float(score) if score is not None and is_number(score, allow_nan=False) else -1.0
    if not isinstance(conversation, str) or not 0 <= worth <= 1:
        accepted = '{"conversation": the id of x-tfgrpo-conversation, or its name, "score": 0 to 1}'
        raise GatewayRefusal(400, f"an outcome is {accepted}")
    if (new := traffic.outcome(conversation, worth)) is None:
        raise GatewayRefusal(404, "no such conversation; its id is in the header x-tfgrpo-conversation")
    return web.json_response({"kept": new})
