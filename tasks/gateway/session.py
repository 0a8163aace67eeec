"""Turn an agent's request into the one that is forwarded, and keep for each caller what was seen of it.

An agent during one rollout has an environment, a key and a journal.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from tfgrpo.prompt_packs.stamps import holds_lessons, lessons_block
from tfgrpo.stores.errors import ActorError, TfgrpoError
from tfgrpo.stores.json_values import sha256_hex
from tfgrpo.stores.numeric import count_or_none, is_cost
from tfgrpo.stores.runs import GATEWAY, idempotency_key
from tfgrpo.stores.telemetry.setup import Facts, SentArm, Telemetry
from tfgrpo.tasks.gateway.dialects import Dialect, Document, ToolResultText, offers_tools, texts_within, tool_names
from tfgrpo.tasks.models.base import ChatReply
from tfgrpo.tasks.models.chat import count_call
from tfgrpo.tasks.models.endpoint import Scrub, scrubbed
from tfgrpo.tasks.shapes import model_frame, tool_frame

if TYPE_CHECKING:
    from tfgrpo.tasks.runtime.runtime import AttemptContext

IMAGE_TOKENS = 1 << 16
"""More than any model makes of one image, however many bytes it has."""
_NAMES = {
    "stream_options": re.compile("stream.options|include_usage", re.IGNORECASE),
    "system": re.compile(r"system|instruction|\broles?\b", re.IGNORECASE),
}
"""How refusals name what the gateway added."""
_IMAGE_FIELDS = frozenset({"url", "image_url", "data"})


@dataclass(frozen=True, slots=True)
class Additions:
    """What the gateway writes into requests; nothing else of them changes."""

    lessons: str = ""
    models: Mapping[str, str] = field(default_factory=dict)
    """Names for the endpoint by patterns of the names that agents ask for; the first that matches."""
    lessons_in: Literal["system", "user"] = "system"
    auxiliary: bool = False
    """Whether the request is about the conversation, not a part of it, and gets no lessons."""
    sampling: Mapping[str, float | int] = field(default_factory=dict)
    """Temperature and seed to write in; what is absent stays the agent's own."""
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", sha256_hex(self.lessons)[:16])


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as it is forwarded."""

    dialect: Dialect
    raw: bytes
    size: int
    """Most tokens of the prompt: its bytes, with images at theirs."""
    model: str
    asked: str
    """The model that the client named, by whose pattern ``model`` is another one."""
    hides_usage: bool
    """Whether the client must not see the chunk of usage."""
    max_tokens: int | None
    """Most tokens of one completion; None if the request does not say."""
    completions: int
    temperature: float | None
    added: str | None
    """Digest of the lessons that were added; None without any."""
    inserted: bool
    """Whether they are the only system text."""
    results: tuple[ToolResultText, ...]
    tools: frozenset[str]
    content: bytes
    """The lessons of the attempt, and the request without them and its labels, by which equal ones are known."""

    @property
    def digest(self) -> str:
        """SHA-256 of protocol and content."""
        return sha256_hex(self.dialect.path.encode() + b"\n" + self.content)

    def refused_in(self, words: str) -> str | None:
        """Return which of the gateway's additions a refusal is about, a key of ``_NAMES``; None for none."""
        added = {"stream_options": self.hides_usage, "system": self.inserted}
        return next((name for name, pattern in _NAMES.items() if added[name] and pattern.search(words)), None)


def renamed(model: str, names: Mapping[str, str]) -> str:
    """Return the endpoint's name for a model, by the first pattern that matches."""
    return next((name for pattern, name in names.items() if fnmatchcase(model, pattern)), model)


def outgoing(
    dialect: Dialect, request: Document, additions: Additions, *, lessons: bool = True, refused: Collection[str] = ()
) -> Outgoing:
    """Return the request to forward. ``refused``: additions that the endpoint does not take."""
    body = request.value
    wanted = body.get("model")
    wanted = wanted if isinstance(wanted, str) else ""
    model = renamed(wanted, additions.models)
    if model != wanted:
        request.set("model", model)
    for name in dialect.sampling:
        if name in additions.sampling:
            request.set(name, additions.sampling[name])
    unlabelled = request.copy()
    dialect.remove_labels(unlabelled)
    there: bool | None = None
    if additions.lessons and lessons and not additions.auxiliary and not holds_lessons(request.raw):
        in_user = additions.lessons_in == "user" or "system" in refused
        there = (dialect.add_to_user if in_user else dialect.add_lessons)(request, additions.lessons)
    asks = body.get("stream") is True and "stream_options" not in refused
    hides_usage = asks and dialect.ask_for_usage(request)
    raw = request.encode()
    size = len(raw)
    for name, text, media in texts_within(body) if size > IMAGE_TOKENS else ():
        if name in _IMAGE_FIELDS and (text.startswith("data:image/") or (name == "data" and str(media).startswith("image/"))):
            size -= max(0, len(text) - IMAGE_TOKENS)
    kept = additions.digest.encode() if lessons else b""
    return Outgoing(
        dialect,
        raw,
        size,
        model,
        wanted,
        hides_usage,
        dialect.max_tokens(body),
        count_or_none(body.get("n")) or 1,
        temperature if isinstance(temperature := body.get("temperature"), int | float) else None,
        None if there is None else additions.digest,
        there is False,
        tuple(dialect.results(body)),
        frozenset(tool_names(body)),
        kept + unlabelled.encode(),
    )


_SAYS_ERROR = re.compile(r"error|(?:(?:Chunk ID|Wall time): .*\n)+Process exited with code (?!0\n)", re.IGNORECASE)
"""How a tool's result starts that is an error, in the two protocols without a field for it: of frameworks, and of Codex."""

_VENDORS: Final = (
    "AI21|ALEPH_ALPHA|ANTHROPIC|ANYSCALE|AZURE|AZURE_AI|AZURE_OPENAI|BASETEN|CEREBRAS|CLAUDE|CLAUDE_CODE|CODEX|CODESTRAL|CO|"
    "COHERE|CURSOR|DASHSCOPE|DATABRICKS|DEEPINFRA|DEEPSEEK|FIREWORKS|FIREWORKS_AI|FRIENDLI|GEMINI|GITHUB_MODELS|GOOGLE|"
    "GOOGLE_GENERATIVE_AI|GROQ|HF|HUGGINGFACE|HUGGINGFACEHUB|HYPERBOLIC|LAMBDA|LITELLM|MINIMAX|MISTRAL|MOONSHOT|NEBIUS|"
    "NOVITA|NVIDIA|NVIDIA_NIM|OLLAMA|OPENAI|OPENROUTER|PALM|PERPLEXITY|PERPLEXITYAI|REPLICATE|SAMBANOVA|TOGETHER|"
    "TOGETHERAI|TOGETHER_AI|VERTEX|VERTEXAI|VOLCENGINE|VOYAGE|WATSONX|XAI|ZAI|ZHIPUAI"
)
_UNSET: Final = re.compile(
    rf"(?:{_VENDORS})_(?:API_)?(?:KEY|TOKEN|AUTH_TOKEN|OAUTH_TOKEN|AD_TOKEN|API_BASE|BASE_URL|ENDPOINT|HUB_TOKEN|"
    r"API_TOKEN|CUSTOM_HEADERS|HOST|ORG_ID|ORGANIZATION|PROJECT_ID|USE_BEDROCK|USE_VERTEX|USE_FOUNDRY)"
    r"|AWS_BEARER_TOKEN_BEDROCK|GOOGLE_APPLICATION_CREDENTIALS|TFGRPO_.*|OTEL_.*"
)


class AnswerKey(NamedTuple):
    """Which answer of an attempt: by the digest of the request, and the number among those to equal requests."""

    digest: str
    number: int


class Recorded(NamedTuple):
    """An answer as journalled."""

    content_type: str
    body: bytes
    latency_s: float
    cost_usd: float | None
    usage: Sequence[int] | None
    """Tokens as ``usage_of`` takes them, for reports; None when unknown."""

    def to_json(self) -> dict[str, Any]:
        """Return the payload of a journal entry."""
        return {**self._asdict(), "body": self.body.decode("utf-8", "surrogateescape")}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Recorded:
        """Return what ``to_json`` wrote."""
        cost, body = value["cost_usd"], value["body"].encode("utf-8", "surrogateescape")
        known = cost if is_cost(cost) else None
        return cls(value["content_type"], body, float(value["latency_s"]), known, value["usage"])


class Caller(ABC):
    """Who makes calls through the gateway. Only subclasses journal."""

    def __init__(self, telemetry: Telemetry, provider: str, max_tokens: int, carrier: Mapping[str, str], scrub: Scrub) -> None:
        """``scrub`` removes secrets from a text."""
        self.telemetry, self.provider, self.scrub = telemetry, provider, scrub
        self.max_tokens = max_tokens
        """Most tokens of a completion for a request that does not say."""
        self.carrier = carrier
        """Position in the trace: requests arrive in tasks of the server."""
        self.running: set[asyncio.Task[Any]] = set()
        self.arm: SentArm | None = None
        """Which lessons the calls get, in production."""
        self.headers: Mapping[str, str] = {}
        """Added to every answer of the endpoint."""

    @abstractmethod
    def additions_for(self, dialect: Dialect, body: Mapping[str, Any]) -> Additions:
        """Return what is written into a request."""

    @abstractmethod
    def begin(self, request: Outgoing) -> int:
        """Note a call; return its place among all. Raises the error that ended the attempt."""

    @abstractmethod
    def answered(self, place: int, request: Outgoing, reply: ChatReply) -> None:
        """Note an answer."""

    @abstractmethod
    def count(self, model: str, result: ChatReply | str, took_s: float) -> None:
        """Count a call in the metrics; ``result``: the reply, or the kind of a failure, which took ``took_s``."""

    def recorded(self, request: Outgoing, *, final: bool) -> tuple[AnswerKey, Recorded | None, bool]:  # noqa: ARG002
        """Return the key of the next answer to equal requests, the answer if the journal holds it, and whether it is noted.

        ``final``: there is no endpoint to ask, so that a damaged entry raises ``CorruptFile``.
        """
        return AnswerKey("", 0), None, False

    def record(self, key: AnswerKey, answer: Recorded) -> AnswerKey:  # noqa: ARG002
        """Journal an answer under this key, or the next that is free; return it."""
        return key

    @contextmanager
    def idempotency_key(self, key: AnswerKey) -> Iterator[str]:  # noqa: ARG002
        """Yield the idempotency key of a call while it is under way. What is not journalled is another call each time."""
        yield secrets.token_hex(16)

    def give_back(self, key: AnswerKey) -> None:  # noqa: B027
        """Let the next of equal requests have an answer that did not reach its client."""

    def unanswered(self, why: TfgrpoError | None) -> None:  # noqa: B027
        """Take note of a call that failed; None: its answer has begun."""

    def stop(self, error: TfgrpoError) -> None:  # noqa: B027
        """Take note of a failure after which no further call makes sense."""


class RolloutSession(Caller):
    """What an agent gets for one rollout. It ends with the attempt: later calls are refused."""

    def __init__(self, attempt: AttemptContext, origin: str) -> None:
        self.attempt = attempt
        self.runtime = runtime = attempt.runtime
        model, telemetry = runtime.context.models.roles["actor"], runtime.telemetry
        super().__init__(telemetry, runtime.context.provider, model.max_tokens, telemetry.carrier(), runtime.scrub)
        self.token = secrets.token_urlsafe(16)
        self.api_key = f"sk-tfgrpo-{secrets.token_urlsafe(24)}"
        """Random per rollout; never the real key."""
        self.root_url = f"{origin}/r/{self.token}"
        """For clients that add ``/v1`` (Anthropic)."""
        self.base_url = f"{self.root_url}/v1"
        """For OpenAI clients."""
        settings = runtime.context.settings.actor.gateway
        sampling: dict[str, float | int] = {}
        if settings.sampling and model.send_temperature:
            sampling["temperature"] = attempt.temperature
        if settings.sampling and model.send_seed:
            sampling["seed"] = attempt.seed
        # The simulated service has one model, whatever an agent asks for.
        models = {"*": runtime.context.models.name} if runtime.context.models.in_process else settings.models
        self.additions = Additions(lessons_block(attempt.system), models, settings.lessons_in, sampling=sampling)
        self._has_tools = False
        self.bypassed = True
        """Whether no call has arrived."""
        self._open_calls: dict[str, tuple[str, float]] = {}
        """Tool calls of the model whose result has not come, with the tool and since when."""
        self._asked: set[AnswerKey] = set()
        self._answers: dict[AnswerKey, bool] = {}
        """Journalled ones of this attempt, and whether a request has got them."""

    def end(self) -> None:
        """Cancel the calls in flight."""
        for task in self.running:
            task.cancel()

    def unanswered(self, why: TfgrpoError | None) -> None:
        """Keep the failure: an attempt without an answered call fails by it."""
        self.attempt.unanswered = why

    def stop(self, error: TfgrpoError) -> None:
        """End the attempt."""
        self.attempt.stopped_by = self.attempt.stopped_by or error

    def additions_for(self, dialect: Dialect, body: Mapping[str, Any]) -> Additions:
        """Return what is written into a request."""
        self._has_tools = self._has_tools or offers_tools(dialect, body)
        return replace(self.additions, auxiliary=self._has_tools and not offers_tools(dialect, body))

    def begin(self, request: Outgoing) -> int:
        """Record the results of tools that a request brings; return the place of its own frame.

        Raises ``ActorError`` when the attempt is over, and the error that stopped it.
        """
        if self.attempt.stopped_by is not None:
            raise self.attempt.stopped_by
        self.bypassed = False
        self.runtime.gateway.asked.add(request.asked)
        self.unanswered(ActorError("the agent ended before any of its model calls was answered"))
        now = perf_counter()
        results = {result.call_id: result for result in request.results} if self._open_calls else {}
        for call_id, result in results.items():
            tool, since = self._open_calls.pop(call_id, ("", now))
            # The tools actor measures no call of a tool that does not exist.
            if tool and (tool in request.tools or not request.tools):
                text = self.scrub(result.text)
                failed = result.error or _SAYS_ERROR.match(text) is not None
                frame = tool_frame(tool, text, (now - since) * 1000.0, None, failed=failed)
                self.attempt.fill_frame(self.attempt.open_frame(), frame)
        return self.attempt.open_frame(turn=True)

    def answered(self, place: int, request: Outgoing, reply: ChatReply) -> None:
        """Record an answer."""
        reply = replace(reply, message=scrubbed(reply.message, self.scrub))
        now = perf_counter()
        for call in reply.message.tool_calls:
            self._open_calls[call.id] = (call.name, now)
        self.attempt.calls.append(reply.used)
        self.attempt.fill_frame(place, replace(model_frame(reply), added=request.added))

    def count(self, model: str, result: ChatReply | str, took_s: float) -> None:
        """Count a call in the metrics."""
        group, provider = self.attempt.key(GATEWAY, 0).group, self.provider
        where: Facts = {"epoch": group.epoch, "phase": group.phase, "role": GATEWAY, "model": model, "provider": provider}
        count_call(self.telemetry, result, took_s, **where)

    def recorded(self, request: Outgoing, *, final: bool) -> tuple[AnswerKey, Recorded | None, bool]:
        """Return the key of the next answer that no other request got, the answer, and whether it was given back."""
        key = AnswerKey(request.digest, 0)
        while self._answers.get(key):
            key = key._replace(number=key.number + 1)
        journal = self.runtime.journal
        known = None if journal is None else journal.answer(self._text(key), Recorded.from_json, final=final)
        if isinstance(known, TfgrpoError):
            raise known
        noted = known is not None and key in self._answers  # it did not arrive before, and is no second call
        if known is not None:
            self._answers[key] = True
        return key, known, noted

    def record(self, key: AnswerKey, answer: Recorded) -> AnswerKey:
        """Journal an answer. It is numbered now, not when it is asked for: calls that fail leave no gaps."""
        while key in self._answers:
            key = key._replace(number=key.number + 1)
        if (journal := self.runtime.journal) is not None:
            journal.append(self._text(key), answer.to_json())
        self._answers[key] = True
        return key

    @contextmanager
    def idempotency_key(self, key: AnswerKey) -> Iterator[str]:
        """Yield the idempotency key of a call; equal requests that are under way at once are separate calls."""
        while key in self._asked:
            key = key._replace(number=key.number + 1)
        self._asked.add(key)
        try:
            yield idempotency_key(self.runtime.context.unique_name, self._text(key))
        finally:
            self._asked.remove(key)

    def give_back(self, key: AnswerKey) -> None:
        """Let the client's next attempt have the answer."""
        self._answers[key] = False

    def _text(self, key: AnswerKey) -> str:
        return self.attempt.key(GATEWAY, 0, key.number).text(key.digest)


def agent_environment(session: RolloutSession, base: Mapping[str, str]) -> dict[str, str]:
    """Return ``base`` for an agent: with the gateway's addresses and key, without keys of vendors and settings of ours.

    Variables that hold the run's own key are omitted under any name.
    """
    left_out = {chosen.api_key.removeprefix("env:") for chosen in session.runtime.context.models.roles.values()}
    kept = {
        name: value
        for name, value in base.items()
        if name not in left_out and not _UNSET.fullmatch(name.upper()) and session.runtime.scrub(value) == value
    }
    # Every name of an address: with OPENAI_API_BASE alone the openai SDK calls its vendor. Of Anthropic's credentials one:
    # the key and the token may not be set together. The Agents SDK would send its traces to the vendor, and Claude Code
    # its events; the same variable saves it the call for a title. Codex prefers this key to a login of its user's.
    v1, root, key = session.base_url, session.root_url, session.api_key
    without_proxy = ",".join(filter(None, (kept.get("NO_PROXY") or kept.get("no_proxy"), "127.0.0.1,localhost")))
    return {
        **kept,
        "OPENAI_BASE_URL": v1,
        "OPENAI_API_BASE": v1,
        "OPENAI_API_KEY": key,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "CODEX_API_KEY": key,
        "ANTHROPIC_BASE_URL": root,
        "ANTHROPIC_API_BASE": root,
        "ANTHROPIC_API_KEY": key,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "AZURE_OPENAI_ENDPOINT": root,
        "AZURE_OPENAI_API_KEY": key,
        "OPENROUTER_API_BASE": v1,
        "OPENROUTER_API_KEY": key,
        "OLLAMA_BASE_URL": v1,
        "NO_PROXY": without_proxy,
        "no_proxy": without_proxy,
    }
