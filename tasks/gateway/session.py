"""Turn an agent's request into the one that is forwarded, and keep for each caller what was seen of it."""

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
from tfgrpo.stores.telemetry.setup import Facts, Telemetry
from tfgrpo.tasks.gateway import dialects
from tfgrpo.tasks.gateway.dialects import Dialect, Document
from tfgrpo.tasks.models.base import ChatReply
from tfgrpo.tasks.models.endpoint import Scrub, scrubbed
from tfgrpo.tasks.shapes import Frame, model_frame, tool_frame

if TYPE_CHECKING:
    from tfgrpo.tasks.runtime.runtime import AttemptContext

IMAGE_TOKENS: Final = 1 << 16
"""More than any model makes of one image, however many bytes it has."""
_OF_USAGE: Final = re.compile("stream.options|include_usage", re.IGNORECASE)
# How refusals name what the gateway added.
_OF_SYSTEM: Final = re.compile(r"system|instruction|\broles?\b", re.IGNORECASE)
_IMAGE_FIELDS: Final = frozenset({"url", "image_url", "data"})


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

    @property
    def digest(self) -> str:
        """Which lessons they are, also when there are none."""
        return sha256_hex(self.lessons)[:16]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as it is forwarded."""

    dialect: Dialect
    raw: bytes
    size: int
    """Most tokens of the prompt: its bytes, with images at theirs."""
    model: str
    requested: str
    """The model that the client named, by whose pattern ``model`` is another one."""
    body: Mapping[str, Any]
    """As the client sent it."""
    hides_usage: bool
    """Whether the client must not see the chunk of usage."""
    added: str | None
    """Digest of the lessons that were added; None without any."""
    inserted: bool
    """Whether they are the only system text."""
    content: bytes
    """The lessons of the attempt, and the request without them and its labels, by which equal ones are known."""

    @property
    def max_tokens(self) -> int | None:
        """Most tokens of one completion; None if the request does not say."""
        return next((count for name in self.dialect.limits if (count := count_or_none(self.body.get(name)))), None)

    @property
    def digest(self) -> str:
        """SHA-256 of protocol and content."""
        return sha256_hex(self.dialect.path.encode() + b"\n" + self.content)

    def refused_in(self, words: str) -> str | None:
        """Return which of the gateway's additions a refusal is about, as ``outgoing`` has it; None for none."""
        if self.hides_usage and _OF_USAGE.search(words):
            return "stream_options"
        return "system" if self.inserted and _OF_SYSTEM.search(words) else None


def renamed(model: str, names: Mapping[str, str]) -> str:
    """Return the endpoint's name for a model, by the first pattern that matches."""
    return next((name for pattern, name in names.items() if fnmatchcase(model, pattern)), model)


def outgoing(
    dialect: Dialect,
    document: Document,
    additions: Additions,
    *,
    lessons: bool = True,
    refused: Collection[tuple[str, str]] = (),
) -> Outgoing:
    """Return the request to forward. ``refused``: models with what each does not take, ``stream_options`` or ``system``."""
    request, body = document.copy(), document.value
    requested = body.get("model")
    requested = requested if isinstance(requested, str) else ""
    model = renamed(requested, additions.models)
    if model != requested:
        request.set("model", model)
    for name in dialect.sampling:
        if name in additions.sampling:
            request.set(name, additions.sampling[name])
    unlabelled = request.copy()
    dialects.remove_labels(unlabelled)
    had_system: bool | None = None
    if additions.lessons and lessons and dialect.teach and not additions.auxiliary and not holds_lessons(request.raw):
        in_user = additions.lessons_in == "user" or (model, "system") in refused
        had_system = (dialects.add_to_user if in_user else dialect.teach)(request, additions.lessons)
    asks_usage = dialect.asks_usage and body.get("stream") is True and (model, "stream_options") not in refused
    hides_usage = asks_usage and dialects.ask_for_usage(request)
    raw = request.encode()
    size = len(raw)
    for name, text, media in dialects.texts_within(body) if size > IMAGE_TOKENS else ():
        if name in _IMAGE_FIELDS and (text.startswith("data:image/") or (name == "data" and str(media).startswith("image/"))):
            size -= max(0, len(text) - IMAGE_TOKENS)
    # What the agent switched lessons off for asks another thing than what has none yet.
    taught = additions.digest.encode() if lessons else b""
    return Outgoing(
        dialect,
        raw,
        size,
        model=model,
        requested=requested,
        body=body,
        hides_usage=hides_usage,
        added=None if had_system is None else additions.digest,
        inserted=had_system is False,
        content=taught + unlabelled.encode(),
    )


# How a tool's result starts that is an error, in the two protocols without a field for it: of frameworks, and of Codex.
_SAYS_ERROR: Final = re.compile(r"error|(?:(?:Chunk ID|Wall time): .*\n)+Process exited with code (?!0\n)", re.IGNORECASE)

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
        body, cost = value["body"].encode("utf-8", "surrogateescape"), value["cost_usd"]
        return cls(value["content_type"], body, float(value["latency_s"]), cost if is_cost(cost) else None, value["usage"])


class JournalledAnswers:
    """The journalled answers of one attempt. Equal requests get theirs in turn."""

    def __init__(self, attempt: AttemptContext) -> None:
        self._attempt = attempt
        self._journal = attempt.runtime.journal
        self._under_way: set[AnswerKey] = set()
        self._got: dict[AnswerKey, bool] = {}
        """Whether a request has got each of them."""

    def next(self, digest: str, *, final: bool) -> tuple[AnswerKey, Recorded | None, bool]:
        """Return the next answer's key, the answer if there is one, and whether it was given back; ``final``: raise damage."""
        key = AnswerKey(digest, 0)
        while self._got.get(key):
            key = key._replace(number=key.number + 1)
        answer = None if self._journal is None else self._journal.answer(self._text(key), Recorded.from_json, final=final)
        if isinstance(answer, TfgrpoError):
            raise answer
        if answer is None:
            return key, None, False
        returned = key in self._got  # it did not arrive before, and is no second call
        self._got[key] = True
        return key, answer, returned

    def record(self, key: AnswerKey, answer: Recorded) -> AnswerKey:
        """Journal an answer under this key, or the next that is free; return it."""
        # Numbered now, not when it is asked for: calls that fail leave no gaps.
        while key in self._got:
            key = key._replace(number=key.number + 1)
        if self._journal is not None:
            self._journal.append(self._text(key), answer.to_json())
        self._got[key] = True
        return key

    def give_back(self, key: AnswerKey) -> None:
        """Let the next of equal requests have an answer that did not reach its client."""
        self._got[key] = False

    @contextmanager
    def idempotency_key(self, key: AnswerKey) -> Iterator[str]:
        """Yield the idempotency key of a call; equal requests that are under way at once are separate calls."""
        while key in self._under_way:
            key = key._replace(number=key.number + 1)
        self._under_way.add(key)
        try:
            yield idempotency_key(self._attempt.runtime.context.unique_name, self._text(key))
        finally:
            self._under_way.remove(key)

    def _text(self, key: AnswerKey) -> str:
        return self._attempt.key(GATEWAY, 0, key.number).text(key.digest)


class Caller(ABC):
    """Who makes calls through the gateway."""

    answers: JournalledAnswers | None = None
    """None: nothing is journalled."""

    def __init__(self, telemetry: Telemetry, provider: str, max_tokens: int, carrier: Mapping[str, str], scrub: Scrub) -> None:
        """``scrub`` removes secrets from a text."""
        self.telemetry, self.provider, self.scrub = telemetry, provider, scrub
        self.max_tokens = max_tokens
        """Most tokens of a completion for a request that does not say."""
        self.carrier = carrier
        """Position in the trace: requests arrive in tasks of the server."""
        self.running: set[asyncio.Task[Any]] = set()
        self.facts: Facts = {}
        """What metrics know of the calls: where they are in a run, or in production which lessons they get."""
        self.headers: Mapping[str, str] = {}
        """Added to every answer of the endpoint."""

    @abstractmethod
    def additions_for(self, dialect: Dialect, body: Mapping[str, Any]) -> Additions:
        """Return what is written into a request."""

    @abstractmethod
    def begin(self, request: Outgoing) -> list[Frame]:
        """Note a call; return the list for its frame. Raises the error that ended the attempt."""

    @abstractmethod
    def answered(self, slot: list[Frame], request: Outgoing, reply: ChatReply) -> None:
        """Note an answer."""

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
        super().__init__(
            telemetry, runtime.context.models.provider("actor"), model.max_tokens, telemetry.carrier(), runtime.scrub
        )
        group = attempt.key(GATEWAY, 0).group
        self.facts = {"epoch": group.epoch, "phase": group.phase}
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
        self.answers = JournalledAnswers(attempt)

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

    def additions_for(self, dialect: Dialect, body: Mapping[str, Any]) -> Additions:  # noqa: ARG002
        """Return what is written into a request."""
        has_tools = dialects.offers_tools(body)
        self._has_tools = self._has_tools or has_tools
        return replace(self.additions, auxiliary=self._has_tools and not has_tools)

    def begin(self, request: Outgoing) -> list[Frame]:
        """Record the results of tools that a request brings. Raises ``ActorError`` when the attempt is over, too."""
        if self.attempt.stopped_by is not None:
            raise self.attempt.stopped_by
        self.bypassed = False
        self.runtime.gateway.requested.add(request.requested)
        self.unanswered(ActorError("the agent ended before any of its model calls was answered"))
        now, offered = perf_counter(), {*dialects.tool_names(request.body)}
        # Each request brings all results again: the first that has one ends its call, and the last of several counts.
        for call_id, result in {result.call_id: result for result in dialects.tool_results(request.body)}.items():
            tool, since = self._open_calls.pop(call_id, ("", now))
            # The tools actor measures no call of a tool that does not exist.
            if tool and (tool in offered or not offered):
                text = self.scrub(result.text)
                failed = result.error or _SAYS_ERROR.match(text) is not None
                self.attempt.open_slot().append(tool_frame(tool, text, (now - since) * 1000.0, None, failed=failed))
        return self.attempt.open_slot(turn=True)

    def answered(self, slot: list[Frame], request: Outgoing, reply: ChatReply) -> None:
        """Record an answer."""
        reply = replace(reply, message=scrubbed(reply.message, self.scrub))
        now = perf_counter()
        self._open_calls.update((call.id, (call.name, now)) for call in reply.message.tool_calls)
        self.attempt.calls.append(reply.used)
        slot.append(replace(model_frame(reply), added=request.added))


def agent_environment(session: RolloutSession, base: Mapping[str, str]) -> dict[str, str]:
    """Return ``base`` with addresses and key of the gateway, without our settings, and without other keys by any name."""
    keys = {chosen.api_key.removeprefix("env:") for chosen in session.runtime.context.models.roles.values()}
    kept = {
        name: value
        for name, value in base.items()
        if name not in keys and not _UNSET.fullmatch(name.upper()) and session.runtime.scrub(value) == value
    }
    # Every name of an address: with OPENAI_API_BASE alone the openai SDK calls its vendor. Of Anthropic's credentials one:
    # the key and the token may not be set together. Codex prefers this key to a login of its user's.
    at_v1 = ("OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENROUTER_API_BASE", "OLLAMA_BASE_URL")
    at_root = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE", "AZURE_OPENAI_ENDPOINT")
    key = ("OPENAI_API_KEY", "CODEX_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY", "OPENROUTER_API_KEY")
    # The Agents SDK would send its traces to the vendor, and Claude Code its events and a call for a title.
    switches = ("OPENAI_AGENTS_DISABLE_TRACING", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC")
    without_proxy = ",".join(filter(None, (kept.get("NO_PROXY") or kept.get("no_proxy"), "127.0.0.1,localhost")))
    return {
        **kept,
        **dict.fromkeys(at_v1, session.base_url),
        **dict.fromkeys(at_root, session.root_url),
        **dict.fromkeys(key, session.api_key),
        **dict.fromkeys(switches, "1"),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), without_proxy),
    }
