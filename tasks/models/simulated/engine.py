"""Answer one request: a function of the model's seed, the request and, if it has no seed, how often it was seen."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from statistics import NormalDist
from typing import Any, Final

from tfgrpo.pipelines.settings.tree import SimulatedSettings
from tfgrpo.stores.json_values import canonical_json, compact_json, derive_seed, mapping_of, sha256_hex, stream
from tfgrpo.tasks.models.simulated.protocol import CHARS_PER_TOKEN, MODEL_NAME, ChatBody, Object
from tfgrpo.tasks.models.simulated.puzzle import Pitfall, Solver, Turn, open_world
from tfgrpo.tasks.models.simulated.roles import learned_answer
from tfgrpo.tasks.models.wire import called

LABEL: Final = "SIMULATED"
# Terms of the margin of ``AdvisedSolver``, in units of the normal draws.
SKILL = 0.2
LESSON_GAIN = 1.0
DIFFICULTY_SPREAD = 0.6
HEAT_COST = 0.3
HEAT = 1.4
UNKNOWN: Final = "SIMULATED reply: this is no item of a simulated world, so there is nothing to work out.\nAnswer: 0"


@dataclass(frozen=True)
class AdvisedSolver(Solver):
    """Solver that avoids a pitfall when its margin is above zero: lessons help, heat scatters.

    The margin is ``SKILL + LESSON_GAIN * advice + DIFFICULTY_SPREAD * d - HEAT_COST * T + HEAT * T * z``:
    ``advice`` in [-1, 1] is how the prompt's lessons bear on the pitfall, ``d`` is a normal draw that belongs to the item,
    ``z`` one of this request, ``T`` the temperature. At ``T = 0`` every attempt at an item goes the same way.
    """

    seed: int
    prompt: str
    temperature: float
    advice: Mapping[str, float]
    rng: random.Random
    gain: float = LESSON_GAIN

    def avoids(self, pitfall: str) -> bool:
        """Whether the margin is above zero."""
        difficulty = derive_seed(self.seed, "difficulty", self.prompt, pitfall)
        # Half a step more than the integer: ``inv_cdf`` takes neither 0 nor 1.
        item = DIFFICULTY_SPREAD * NormalDist().inv_cdf((difficulty + 0.5) / 2.0**53)
        steady = SKILL + self.gain * self.advice.get(pitfall, 0.0)
        heat = self.temperature * (HEAT * self.rng.gauss(0.0, 1.0) - HEAT_COST)
        return steady + item + heat > 0.0

    def shown(self, pitfall: Pitfall, *, avoided: bool) -> str:
        """Return any of its wordings, with equal chances."""
        return self.rng.choice(pitfall.shown_avoided if avoided else pitfall.shown_hit)

    def lucky(self, share: float) -> bool:
        """True with this probability, independent of lessons and temperature."""
        return self.rng.random() < share


class Engine:
    """The simulated model without its service."""

    def __init__(self, settings: SimulatedSettings) -> None:
        self.settings, self.world = settings, open_world(settings.world)
        self._seen = Counter[str]()

    def answer(self, body: ChatBody, digest: str) -> dict[str, Any]:
        """Return the completion of a request; ``digest`` is that of its content."""
        repeats = 0
        # A seeded request has one answer; without a seed every repetition is another draw.
        if body.seed is None:
            repeats = self._seen[digest]
            self._seen[digest] += 1
        turn = self.turn(body, random.Random(derive_seed(self.settings.seed, "reply", digest, repeats)))
        calls = [(tool, json.dumps(arguments, ensure_ascii=False)) for tool, arguments in turn.calls]
        text, finish = turn.text, "tool_calls" if calls else "stop"
        limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
        if limit is not None and _count_tokens(text, *chain(*calls)) > limit:
            text, calls, finish = text[: limit * CHARS_PER_TOKEN], [], "length"
        message: dict[str, Any] = {"role": "assistant", "content": text or None if calls else text, "refusal": None}
        if calls:
            message["tool_calls"] = [called(f"call_{digest[:12]}_{index}", *call) for index, call in enumerate(calls)]
        texts = [each.text for each in body.messages]
        earlier = (each["function"] for message in body.messages for each in message.tool_calls or ())
        texts += (each["name"] + each["arguments"] for each in earlier)
        texts += map(compact_json, [*(body.tools or ()), *([] if body.schema_body is None else [body.schema_body])])
        prompt, completion = max(1, _count_tokens(*texts)), _count_tokens(text, *chain(*calls))
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        logprobs = _logprobs(text, digest) if body.logprobs else None
        about = {"object": "chat.completion", "created": 0, "model": MODEL_NAME, "system_fingerprint": LABEL}
        return about | {
            "id": f"chatcmpl-simulated-{digest[:24]}",
            "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": logprobs}],
            "usage": {**usage, "prompt_tokens_details": {"cached_tokens": 0}},
        }

    def turn(self, body: ChatBody, rng: random.Random) -> Turn:
        """Return the answer of the role that the request addresses."""
        learned = learned_answer(self.world, body, rng)
        return _in_form(body, self.act(body, rng)) if learned is None else Turn(json.dumps(learned, ensure_ascii=False))

    def act(self, body: ChatBody, rng: random.Random) -> Turn:
        """Return the actor's next turn at the last item in the user's messages; ``UNKNOWN`` without an item of the world."""
        # Agents remind, observe and ask again after the item, so that the last message of the user may be none.
        for index, message in reversed(list(enumerate(body.messages))):
            puzzle = self.world.recognise(message.text) if message.role == "user" else None
            if puzzle is not None:
                temperature = 1.0 if body.temperature is None else body.temperature  # 1 is the default of OpenAI
                solver = self.solver(message.text, temperature, self.world.advice(body.system), rng)
                tools = () if body.tool_choice == "none" else body.tools or ()
                return puzzle.turn(solver, body.messages[index + 1 :], [tool["function"]["name"] for tool in tools])
        return Turn(UNKNOWN)

    def solver(self, prompt: str, temperature: float, advice: Mapping[str, float], rng: random.Random) -> Solver:
        """Return what decides how an attempt goes."""
        return AdvisedSolver(self.settings.seed, prompt, temperature, advice, rng)


def _in_form(body: ChatBody, turn: Turn) -> Turn:
    """Return a turn in the form that the request asks for: a call, a schema's instance, a JSON object, or as it is."""
    if turn.calls:
        return turn
    if body.tool_choice not in (None, "auto", "none"):
        chosen = mapping_of(mapping_of(body.tool_choice).get("function")).get("name")
        functions = [tool["function"] for tool in body.tools or ()]
        function = [each for each in functions if chosen in (None, each["name"])][-1]
        return Turn("", ((function["name"], minimal_instance(function.get("parameters", {}), turn.text)),))
    if mapping_of(body.response_format).get("type", "text") == "text":
        return turn
    schema = body.schema_body
    value = {"answer": turn.text} if schema is None else minimal_instance(schema, turn.text)
    return Turn(json.dumps(value, ensure_ascii=False))


def minimal_instance(root: Object, text: str) -> Any:
    """Return a smallest value that follows a JSON schema, with ``text`` for free strings; of several types the first."""

    def instance(schema: Object) -> Any:
        if "$ref" in schema:
            return instance(root.get("$defs", {}).get(schema["$ref"].rpartition("/")[2], {}))
        for key in ("const", "default"):
            if key in schema:
                return schema[key]
        for key in ("enum", "anyOf", "oneOf", "allOf"):
            if schema.get(key):
                return schema[key][0] if key == "enum" else instance(schema[key][0])
        kind = schema.get("type", "object")
        kind = kind[0] if isinstance(kind, list) else kind
        if kind == "object":
            return {name: instance(schema.get("properties", {}).get(name, {})) for name in schema.get("required", ())}
        if kind == "array":
            return [instance(schema.get("items", {}))] * schema.get("minItems", 0)
        ordinary = {"string": text[: schema.get("maxLength", len(text))], "boolean": False, "null": None}
        return ordinary.get(kind, schema.get("minimum", 0))

    return instance(root)


def digest_of(request: Mapping[str, Any]) -> str:
    """Return a digest of a request's content, independent of spacing, order of keys, token limit and streaming."""
    content = {name: part for name, part in request.items() if name != "stream_options" and (name, part) != ("stream", True)}
    if "max_tokens" in content:
        # A limit cuts a reply and does not change it. Which number is here decides every seeded figure.
        content["max_tokens"] = 1024
    return sha256_hex(canonical_json(content).encode("utf-8", "surrogatepass"))


def _logprobs(text: str, digest: str) -> dict[str, Any]:
    rng = stream(0, "logprobs", digest)
    tokens = (text[start : start + CHARS_PER_TOKEN] for start in range(0, len(text), CHARS_PER_TOKEN))
    rows = ({"token": token, "logprob": -rng.expovariate(4.0), "bytes": list(token.encode())} for token in tokens)
    return {"content": [{**row, "top_logprobs": []} for row in rows], "refusal": None}


def _count_tokens(*texts: str) -> int:
    # One for four characters, rounded up: never more than the UTF-8 bytes of the texts.
    return -(-sum(map(len, texts)) // CHARS_PER_TOKEN)
