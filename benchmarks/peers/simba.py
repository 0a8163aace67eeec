"""Run DSPy's SIMBA itself (``dspy.SIMBA``) on an order, and print the prompt it ends with.

The program is one predictor. An adapter of DSPy writes its requests as this project writes them, and the request for
advice as a question to the service's reflecting role; sampling, buckets, candidates and the final choice are SIMBA's.
Demonstrations are off, since they would show answers of items rather than lessons.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import dspy

from benchmarks.peers.service import Attempt, Item, Service, as_served, lesson_of, read_order, reflection_question

BATCH, CANDIDATES, TRAINING = 16, 4, 48


class Solve(dspy.Signature):
    """Replaced by the prompt to begin with."""

    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


class Solver(dspy.Module):
    """One predictor."""

    def __init__(self, system: str) -> None:
        super().__init__()
        self.solve = dspy.Predict(Solve.with_instructions(system))

    def forward(self, question: str) -> Any:
        """Answer a question."""
        return self.solve(question=question)


class PlainAdapter(dspy.Adapter):
    """Requests as this project sends them: the instructions as system prompt, the question as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def format(self, signature: Any, demos: Any, inputs: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the messages of a request, which is counted."""
        del demos
        self.calls += 1
        if "module_advice" in signature.output_fields:
            return [{"role": "user", "content": reflection_question([self._shown(inputs, how) for how in ("better", "worse")])}]
        return [
            {"role": "system", "content": as_served(signature.instructions)},
            {"role": "user", "content": inputs["question"]},
        ]

    def parse(self, signature: Any, completion: str) -> dict[str, Any]:
        """Return the answer, or the advice of a reflection."""
        if "module_advice" not in signature.output_fields:
            return {"answer": completion}
        lesson = lesson_of(completion)
        return {"discussion": "", "module_advice": {"solve": lesson} if lesson else {}}

    def _shown(self, inputs: dict[str, Any], how: str) -> Attempt:
        item = {"prompt": json.loads(inputs["program_inputs"])["question"]}
        output = json.loads(inputs[f"{how}_program_outputs"]).get("answer", "")
        return Attempt(item, output, float(inputs[f"{how}_reward_value"]))


def main() -> None:
    """Optimize, and print the prompt and the number of calls as one JSON object."""
    logging.disable(logging.ERROR)
    order = read_order()
    service, adapter = Service(order.url), PlainAdapter()
    model = dspy.LM("openai/simulated", api_base=order.url, api_key="unused", temperature=0.7, cache=False)
    dspy.configure(lm=model, adapter=adapter)
    examples = [dspy.Example(question=item["prompt"]).with_inputs("question") for item in order.items[:TRAINING]]

    def reward(example: Any, prediction: Any, trace: Any = None) -> float:
        del trace
        item: Item = {"prompt": example.question}
        return service.reward(item, prediction.answer)

    last_look = (CANDIDATES + 1) * TRAINING
    step = BATCH * (2 * CANDIDATES + 1) + CANDIDATES + 1
    optimizer = dspy.SIMBA(
        metric=reward,
        bsize=BATCH,
        num_candidates=CANDIDATES,
        max_steps=(order.calls - last_look) // step,
        max_demos=0,
        num_threads=8,
    )
    best = optimizer.compile(Solver(order.system), trainset=examples, seed=order.seed)
    print(json.dumps({"system": best.solve.signature.instructions, "calls": adapter.calls}))


if __name__ == "__main__":
    main()
