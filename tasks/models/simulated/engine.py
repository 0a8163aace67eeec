"""Answer one request: a function of the server's seed, the request and, if it has no seed, how often it was seen.

Independent of HTTP.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, fmean
from typing import Any, TypeVar

from pydantic import Field

from tfgrpo.pipelines.datasets.datasets import load_dataset, shipped_dataset
from tfgrpo.pipelines.settings.model import FAULT_KINDS, SimulatedSettings
from tfgrpo.stores.canonical import canonical_json, derive_seed, sha256_hex, stream
from tfgrpo.tasks.models.simulated.protocol import MODEL_NAME, ChatBody, WireMessage
from tfgrpo.tasks.models.simulated.roles import learned_answer, minimal_instance, structured_answer
from tfgrpo.tasks.models.simulated.worlds.lexicon import lessons_in
from tfgrpo.tasks.models.simulated.worlds.puzzle import (
    Dialogue,
    Solver,
    ToolCall,
    ToolResult,
    Turn,
    World,
    WorldName,
    open_world,
)
from tfgrpo.tasks.models.wire import called


class SimulatedOptions(SimulatedSettings, hide_input_in_errors=True):
    """Everything a simulated server depends on apart from its requests."""

    api_key: str | None = Field(default=None, repr=False)
    """The bearer token that requests must carry. None: any, or none."""
    night: int = Field(default=0, ge=0)
    """Nights before this one, for the drift."""


def choose_fault(faults: Mapping[str, float], seed: int, digest: str, seen: int) -> str | None:
    """Return how this call breaks, a kind of fault, or None. ``seen``: earlier arrivals of the same request."""
    point = derive_seed(seed, "fault", digest, seen) / 2.0**53
    for kind in FAULT_KINDS:
        point -= faults.get(kind, 0.0)
        if point < 0.0:
            return kind
    return None


LABEL = "SIMULATED"
_REMEMBERED = 100_000
"""Requests whose count is kept; the oldest are forgotten first."""
_LIMIT = 1024
CHARS_PER_TOKEN = 4


def digest_of(value: Mapping[str, Any]) -> str:
    """Return a digest of a request's content, independent of spacing, order of keys, token limit and streaming.

    A limit cuts a reply; it does not change what the model would answer. The constant keeps seeded figures as they were.
    """
    if value.get("stream"):
        value = {name: part for name, part in value.items() if name not in {"stream", "stream_options"}}
    if "max_tokens" in value:
        value = {**value, "max_tokens": _LIMIT}
    return sha256_hex(canonical_json(value).encode("utf-8", "surrogatepass"))


class Engine:
    """The simulated model without its service."""

    def __init__(self, options: SimulatedOptions) -> None:
        self._options = options
        self._world = open_world(options.world)
        self._faulty = any(options.faults.values())
        self._seen: dict[str, int] = {}

    def arrive(self, body: ChatBody, digest: str) -> int:
        """Count a request and return how often it came before; 0 where the count changes no answer."""
        if body.seed is not None and not self._faulty:
            return 0
        before = self._seen.pop(digest, 0)
        self._seen[digest] = before + 1
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return before

    def answer(self, body: ChatBody, digest: str) -> tuple[str | None, dict[str, Any]]:
        """Return how this call breaks, or None, and its completion."""
        seen, seed = self.arrive(body, digest), self._options.seed
        fault = choose_fault(self._options.faults, seed, digest, seen) if self._faulty else None
        rng = random.Random(derive_seed(seed, "reply", digest, seen if body.seed is None else 0))
        learned = learned_answer(self._world, body, rng, misjudged=self._options.misjudged)
        if learned is not None:
            turn = Turn(json.dumps(learned, ensure_ascii=False))
        else:
            turn = act(self._world, body, self._options, rng)
            if turn.calls or body.demanded is None:
                turn = Turn(body.stopped(structured_answer(body, turn.text)), turn.calls)
            else:  # as frameworks ask for structured output
                arguments = minimal_instance(body.demanded.body, turn.text)
                turn = Turn("", (ToolCall(body.demanded.name, arguments),))
        return fault, _completion(body, digest, turn, cut_off=fault == "truncated")


def _completion(body: ChatBody, digest: str, turn: Turn, *, cut_off: bool) -> dict[str, Any]:
    calls = [
        called(f"call_{digest[:12]}_{index}", call.tool, json.dumps(call.arguments, ensure_ascii=False))
        for index, call in enumerate(turn.calls)
    ]
    arguments = "".join(call["function"]["name"] + call["function"]["arguments"] for call in calls)
    whole = _count_tokens(turn.text + arguments)
    limit = max(1, whole // 2) if cut_off else body.limit
    text, finish = turn.text, "tool_calls" if calls else "stop"
    if limit is not None and (cut_off or whole > limit):
        text, calls, arguments, finish = turn.text[: limit * CHARS_PER_TOKEN], [], "", "length"
    message: dict[str, Any] = {"role": "assistant", "content": text or None if calls else text, "refusal": None}
    if calls:
        message["tool_calls"] = calls
    logprobs = _logprobs(text, digest) if body.logprobs else None
    prompt, completion = prompt_tokens(body), _count_tokens(text + arguments)
    return {
        "id": f"chatcmpl-simulated-{digest[:24]}",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL_NAME,
        "system_fingerprint": LABEL,
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": logprobs}],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def _logprobs(text: str, digest: str) -> dict[str, Any]:
    rng = stream(0, "logprobs", digest)
    tokens = (text[start : start + CHARS_PER_TOKEN] for start in range(0, len(text), CHARS_PER_TOKEN))
    content = [
        {"token": token, "logprob": -rng.expovariate(4.0), "bytes": list(token.encode()), "top_logprobs": []}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _count_tokens(text: str) -> int:
    """Return one token for four characters, rounded up: never more than the UTF-8 bytes of the text."""
    return -(-len(text) // CHARS_PER_TOKEN)


def prompt_tokens(body: ChatBody) -> int:
    """Return the tokens of messages, tools and schema."""
    shown = [message.text for message in body.messages]
    shown += [call.function.name + call.function.arguments for m in body.messages for call in m.tool_calls or ()]
    schemas: list[object] = [tool.model_dump(exclude_unset=True, by_alias=True) for tool in body.tools or ()]
    if body.response_format is not None and body.response_format.json_schema is not None:
        schemas.append(body.response_format.json_schema.body)
    shown += [json.dumps(schema, ensure_ascii=False, separators=(",", ":")) for schema in schemas]
    return max(1, _count_tokens("".join(shown)))


SKILL = 0.2
"""Margin without lessons at temperature 0, in units of the normal draws."""
LESSON_GAIN = 1.0
"""What right advice adds to the margin; wrong advice takes the same away."""
DIFFICULTY_SPREAD = 0.6
"""Standard deviation of the item's share of the margin."""
HEAT_COST = 0.3
HEAT = 1.4

UNKNOWN = "SIMULATED reply: this is no item of a simulated world, so there is nothing to work out.\nAnswer: 0"
_NORMAL = NormalDist()
T = TypeVar("T")


@dataclass(frozen=True)
class AdvisedSolver(Solver):
    """Solver that avoids a pitfall when its margin is above zero: lessons help, heat scatters.

    The margin is ``SKILL + LESSON_GAIN * advice + DIFFICULTY_SPREAD * d - HEAT_COST * T + HEAT * T * z``:
    ``advice`` in [-1, 1] is how the prompt's lessons bear on the pitfall, ``d`` is a normal draw that belongs to the
    item, ``z`` a normal draw of this request, ``T`` the temperature. So heat makes attempts differ from each other and a
    little worse, and at ``T = 0`` every attempt at an item goes the same way.
    """

    seed: int
    prompt: str
    temperature: float
    advice: Mapping[str, float]
    rng: random.Random
    gain: float = LESSON_GAIN
    turned_rules: frozenset[str] = frozenset()
    """Pitfalls on which advice does the opposite of what it did."""

    def avoids(self, pitfall: str) -> bool:
        """Whether the margin is above zero."""
        difficulty = derive_seed(self.seed, "difficulty", self.prompt, pitfall)
        item = DIFFICULTY_SPREAD * _NORMAL.inv_cdf((difficulty + 0.5) / 2.0**53)  # it takes neither 0 nor 1
        advice = self.advice.get(pitfall, 0.0)
        steady = SKILL + self.gain * (-advice if self.turned(pitfall) else advice)
        heat = self.temperature * (HEAT * self.rng.gauss(0.0, 1.0) - HEAT_COST)
        return steady + item + heat > 0.0

    def pick(self, options: Sequence[T]) -> T:
        """Return any of them, with equal chances."""
        return self.rng.choice(options)

    def lucky(self, share: float) -> bool:
        """True with this probability, independent of lessons and temperature."""
        return self.rng.random() < share

    def turned(self, pitfall: str) -> bool:
        """Whether the rule has turned round."""
        return pitfall in self.turned_rules


@cache
def lesson_gain(world: WorldName, effect: float | None) -> float:
    """Return the gain at which right lessons about everything add ``effect`` points over the shipped items.

    An item of ``n`` pitfalls succeeds with probability ``Phi(m / s) ** n``, where ``m`` and ``s`` are the mean and the
    standard deviation of the margin over items and draws. Solved by bisection; beyond 10 nearly everything succeeds.
    """
    path = None if effect is None else shipped_dataset(world)
    met = [] if path is None else [len(item.metadata["pitfalls"]) for item in load_dataset(path)]
    if effect is None or not any(met):
        return LESSON_GAIN
    heat = 0.3  # temperature of the sweep
    mean, spread = SKILL - HEAT_COST * heat, math.hypot(DIFFICULTY_SPREAD, HEAT * heat)

    def success(gain: float) -> float:
        avoided = _NORMAL.cdf((mean + gain) / spread)
        return 100.0 * fmean(avoided**count for count in met)

    low, high = 0.0, 10.0
    for _ in range(40):
        middle = (low + high) / 2.0
        low, high = (low, middle) if success(middle) - success(0.0) > effect else (middle, high)
    return low


@cache
def turned_rules(world: WorldName, seed: int) -> frozenset[str]:
    """Return the third of the pitfalls, at least one, whose rules turn round in the drift."""
    pitfalls = sorted(open_world(world).pitfalls)
    return frozenset(stream(seed, "drift", world).sample(pitfalls, max(len(pitfalls) // 3, 1)))


def act(world: World, body: ChatBody, options: SimulatedOptions, rng: random.Random) -> Turn:
    """Return the actor's next turn at the last item of the user's messages; ``UNKNOWN`` without an item of the world."""
    system = "\n".join(message.text for message in body.messages if message.role in {"system", "developer"})
    # Agents remind, observe and ask again after the item, so that the last message of the user may be none.
    asked = ((i, m.text) for i, m in reversed(list(enumerate(body.messages))) if m.role == "user")
    found = ((i, text, puzzle) for i, text in asked if (puzzle := world.puzzle.recognise(text)) is not None)
    user, prompt, puzzle = next(found, (0, "", None))
    if puzzle is None:
        return Turn(UNKNOWN)
    temperature = 1.0 if body.temperature is None else body.temperature  # 1 is the default of the OpenAI API
    drifted = options.drift is not None and options.night >= options.drift
    turned = turned_rules(world.name, options.seed) if drifted else frozenset[str]()
    gain = lesson_gain(world.name, options.effect)
    solver = AdvisedSolver(options.seed, prompt, temperature, world.lexicon.advice(system), rng, gain, turned)
    offered = {_own_name(name): name for name in body.offered}
    turn = puzzle.attempt(solver, _dialogue(body.messages[user + 1 :], frozenset(offered)))
    turn = turn._replace(calls=tuple(call._replace(tool=offered[call.tool]) for call in turn.calls))
    if turn.calls or not (options.attention or options.label_noise):
        return turn
    spoiled = rng.random() < options.attention * len(lessons_in(system)) and puzzle.agrees(turn.text)
    noisy = rng.random() < options.label_noise
    return turn if spoiled is noisy else Turn(puzzle.turned_round(turn.text))


_TIMED = re.compile(r"\AWall time: .*\nOutput:\n")
"""What Codex puts before the result of a tool."""


def _own_name(tool: str) -> str:
    """Return the name of a tool at its MCP server: agents put that of the server in front, as in ``mcp__books__add``."""
    return tool.rpartition("__")[2]


def _dialogue(messages: Sequence[WireMessage], tools: frozenset[str]) -> Dialogue:
    returned = {message.tool_call_id: message.text for message in messages if message.role == "tool"}
    lines = (line for message in messages if message.role == "assistant" for line in message.text.splitlines())
    results = tuple(
        ToolResult(_own_name(call.function.name), _TIMED.sub("", returned[call.id]))
        for message in messages
        for call in message.tool_calls or ()
    )
    return Dialogue(tuple(line for line in lines if line.startswith("Step ")), results, tools)
