"""A selection asks K times at once, repairs what is flawed, grades what is usable and hands out the best, as a value."""

import asyncio
import json
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents.steps import Says, ScriptedModel, item, reply, runtime, weighted
from tests.support.vectors import read_vectors
from tfgrpo.pipelines.settings.tree import SelectionSettings
from tfgrpo.rewarders.scorer import Abstained
from tfgrpo.stores.errors import ActorError, BudgetRefused, ModelRateLimited, ModelServerFault, ModelTimeout, SelectionFailed
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.tasks.models.chat import JournaledModel
from tfgrpo.tasks.selection.round import (
    CandidateOutcome,
    PowlFormat,
    Selection,
    SelectionChoice,
    SelectionSpec,
    lost_and_flawed,
    select_best,
)
from tfgrpo.tasks.shapes import PackText

PACK = PackText("Be careful.", "d", "arithmetic", "ab" * 32, ())
GT = (weighted("gt"),)
FOOTPRINT = (weighted("powl_footprint"),)
GOOD = "SEQUENCE(ACTIVITY(a), ACTIVITY(b))"


def spec(**more: Any) -> SelectionSpec:
    """Return a specification of four candidates; ``more`` are its fields, and settings of selections."""
    names = {"k", "min_success", "max_validations", "none_valid", "temperatures"} & set(more)
    settings = SelectionSettings(**{name: more.pop(name) for name in names})
    values: dict[str, Any] = {"selection_id": "s", "item": item(), "pack": PACK, "settings": settings}
    return SelectionSpec(**{**values, **more})


def by_index(*answers: Any) -> ScriptedModel:
    """Return a model that answers each candidate by its index; exceptions are raised."""
    return ScriptedModel(lambda request, key: answers[key.rollout])


def run(
    tmp_path: Path, model: ScriptedModel, asked: SelectionSpec | None = None, *, changed: Any = None, **more: Any
) -> Selection:
    """Run one selection in a runtime with ``changed`` fields; close its threads afterwards."""

    async def main() -> Selection:
        built = replace(runtime(model, tmp_path, **{"rewarders": GT, **more}), **(changed or {}))
        try:
            return await select_best(asked or spec(), built)
        finally:
            built.threads.shutdown()

    return asyncio.run(main())


# Choosing.


def test_the_highest_reward_is_chosen_with_the_reason(tmp_path):
    selection = run(tmp_path, by_index("Answer: 8", "Answer: 7", "Answer: 9", "Answer: 1"))
    assert selection.choice == SelectionChoice(1, "highest reward of 4 graded candidates, 1")
    assert selection.best.text == "Answer: 7"
    assert [selection.candidates[index].reward for index in range(4)] == [0.0, 1.0, 0.0, 0.0]
    assert selection.candidates[1].advantage == pytest.approx(1.7320508, rel=1e-6)
    assert (selection.mean_reward, selection.spread) == (0.25, pytest.approx(0.4330127))
    assert selection.outcomes == {"ok": 4}
    assert lost_and_flawed(selection.candidates) == ""


def test_ties_go_to_the_first(tmp_path):
    selection = run(tmp_path, by_index("Answer: 8", "Answer: 7", "Answer: 7", "Answer: 7"))
    assert selection.choice == SelectionChoice(1, "highest reward of 4 graded candidates, 1, the first of 3 that have it")
    model = by_index("Answer: 7")
    alone = run(tmp_path, model, spec(k=1), changed={"journal": None, "model": JournaledModel(model, None)})
    assert (alone.choice, alone.best.advantage) == (SelectionChoice(0, "highest reward of 1 graded candidate, 1"), 0.0)


# Temperatures, seeds and what is said.


def test_temperatures_go_round_and_seeds_differ(tmp_path):
    model = ScriptedModel(lambda request, key: "Answer: 7")
    selection = run(tmp_path, model, spec(k=10))
    asked = {key.rollout: request.temperature for request, key in model.requests}
    assert [asked[index] for index in range(10)] == [0.5, 0.7, 0.9, 1.0, 0.6, 0.8, 0.95, 0.75, 0.5, 0.7]
    assert [candidate.temperature for candidate in selection.candidates] == [asked[index] for index in range(10)]
    assert len({request.seed for request, _ in model.requests}) == 10


def test_form_and_hint_stand_behind_the_pack_and_the_answer_is_never_shown(tmp_path):
    model = ScriptedModel(lambda request, key: GOOD)
    asked = spec(k=1, format=PowlFormat(), hint="Tried: XOR(a, b)", item=item(answer="SEQUENCE(secret, b)"))
    run(tmp_path, model, asked, rewarders=FOOTPRINT)
    system, user = (message.content for message in model.requests[0][0].messages)
    assert system == f"Be careful.\n\n{PowlFormat().instructions}\n\nTried: XOR(a, b)"
    assert user == "3 + 4?"
    assert "secret" not in system + user


# Repair.


def repairing(flawed, repaired):
    """A model that answers first so, and then, when its answer came back, otherwise."""
    return ScriptedModel(lambda request, _: repaired if "earlier_answer" in request.messages[-1].content else flawed)


def test_a_flawed_answer_goes_back_with_the_reason_and_comes_back_right(tmp_path):
    model = repairing("SEQUENCE(a,,", GOOD)
    asked = spec(k=2, format=PowlFormat(), item=item(answer=GOOD))
    selection = run(tmp_path, model, asked, rewarders=FOOTPRINT)
    assert [candidate.valid for candidate in selection.candidates] == [True, True]
    ((text, reason),) = selection.candidates[0].refused
    assert (text, "two commas" in reason) == ("SEQUENCE(a,,", True)
    again = [request for request, _ in model.requests if "earlier_answer" in request.messages[-1].content]
    quoted = json.loads(again[0].messages[-1].content.splitlines()[-1])
    assert quoted["earlier_answer"] == "SEQUENCE(a,,"
    assert "two commas" in quoted["reason"]
    assert again[0].messages[-1].content.startswith("3 + 4?\n\n")
    assert {request.temperature for request in again} == {0.5, 0.7}
    assert len({request.seed for request, _ in model.requests}) == 4
    assert (selection.candidates[0].usage.calls, selection.candidates[0].usage.prompt_tokens) == (2, 20)


def test_a_cut_off_answer_is_asked_for_again_also_as_text(tmp_path):
    selection = run(tmp_path, repairing(reply("Step 1", finish="length"), "Answer: 7"), spec(k=1))
    assert selection.best.refused == (("Step 1", "the answer was cut off at the token limit: give a shorter one"),)


def test_repairs_end_and_the_last_flaw_is_the_reason(tmp_path):
    model = ScriptedModel(lambda request, key: "SEQUENCE()")
    selection = run(tmp_path, model, spec(k=2, max_validations=2, format=PowlFormat()), rewarders=FOOTPRINT)
    assert len(model.requests) == 6
    outcome = selection.candidates[0].outcome
    assert (outcome.name, "has no children" in outcome.reason) == ("parse_error", True)
    assert len(selection.candidates[0].refused) == 2
    with pytest.raises(SelectionFailed, match="none of 2 candidates valid: 2 parse_error"):
        _ = selection.best


def test_a_call_that_breaks_in_a_repair_leaves_the_earlier_answer(tmp_path):
    asked = spec(k=1, format=PowlFormat(), none_valid="best_effort", item=item(answer=GOOD))
    selection = run(tmp_path, repairing("SEQUENCE(", ModelServerFault("503")), asked, rewarders=FOOTPRINT)
    assert selection.candidates[0].outcome == CandidateOutcome("transport_error", "503", error_type="ModelServerFault")
    assert selection.best.text == "SEQUENCE("
    assert len(selection.best.refused) == 1


# Failures.


@pytest.mark.parametrize(("raised", "name"), [
    (ModelServerFault("503 from x"), "transport_error"), (ModelRateLimited("429"), "transport_error"),
    (ModelTimeout("late"), "timeout"), (ActorError("broke"), "actor_error"), (RuntimeError("odd"), "actor_error"),
    (BudgetRefused("no"), "refused"),
])  # fmt: skip
def test_a_lost_candidate_costs_no_other(tmp_path, raised, name):
    selection = run(tmp_path, by_index(raised, "Answer: 8", "Answer: 7", raised))
    assert selection.choice.index == 2
    assert selection.outcomes == {name: 2, "ok": 2}
    assert lost_and_flawed(selection.candidates).startswith(f"2 {name} (")
    assert [each.reward for each in selection.candidates] == [None, 0.0, 1.0, None]


def test_enough_have_to_succeed(tmp_path):
    model = by_index("Answer: 7", ModelServerFault("503"), ModelTimeout("late"), "Answer: 7")
    assert run(tmp_path, model, spec(min_success=2)).choice.index == 0
    few = run(tmp_path, model, spec(min_success=3))
    assert few.choice == SelectionChoice(None, "2 of 4 candidates valid, 3 needed: 1 transport_error (503); 1 timeout (late)")
    best = run(tmp_path, model, spec(min_success=3, none_valid="best_effort"))
    assert (best.choice.index, best.choice.why.startswith("best effort, 2 of 4 candidates valid")) == (0, True)


def test_best_effort_chooses_the_best_of_the_flawed(tmp_path):
    of = item(answer="SEQUENCE(SILENT(), a)")
    asked = spec(k=3, max_validations=1, format=PowlFormat(), none_valid="best_effort", item=of)
    model = by_index("prose", "SEQUENCE(SILENT(), SILENT())", ModelTimeout("late"))
    selection = run(tmp_path, model, asked, rewarders=(weighted("operator:gt"),))
    assert selection.choice.why.startswith("best effort, 0 of 3 candidates valid")
    assert [bool(each.scores or each.ungraded) for each in selection.candidates] == [True, True, False]


def broken(_):
    raise RuntimeError("sk-key-123456 leaked")


BROKEN = (*GT, weighted(Says("broken", broken), 0.0))


def test_ungraded_candidates_are_not_chosen_by_default(tmp_path):
    mute = (weighted(Says("mute", lambda context: [Abstained("mute", "cannot tell")] * len(context.outputs))),)
    selection = run(tmp_path, by_index(*["x"] * 4), rewarders=mute)
    assert selection.choice == SelectionChoice(None, "none of the 4 usable candidates could be graded: mute: cannot tell")
    best = run(tmp_path, by_index(*["x"] * 4), spec(none_valid="best_effort"), rewarders=mute)
    assert (best.choice.index, best.choice.why.startswith("best effort, the first that can be used")) == (0, True)
    assert (best.mean_reward, best.candidates[0].advantage) == (None, None)


def test_a_failing_rewarder_is_a_fault_and_loses_only_its_own_scores(tmp_path):
    selection = run(tmp_path, by_index(*["Answer: 7"] * 4), rewarders=BROKEN)
    assert selection.choice.index == 0
    assert "RuntimeError" in selection.faults["broken"]


class Judging:
    rewarder_id = "judging"
    asks_model = True

    async def score(self, context):
        from tfgrpo.rewarders.judge.model import JudgeQuestion  # noqa: PLC0415

        question = JudgeQuestion((("user", "?"),), "j", {"type": "number"}, rollout=0, turn=0)
        reply_ = await context.judge.ask(question)
        return [RewardScore("judging", float(reply_.text), "said so") for _ in context.outputs]


def test_the_cost_of_judges_is_counted_and_their_refused_budget_reported(tmp_path):
    def answer(request, key):
        return BudgetRefused("max_calls") if key.role == "judge" else "0.5"

    refused = run(tmp_path, ScriptedModel(answer), rewarders=(weighted(Judging()),))
    assert refused.choice.over_budget
    answered = run(tmp_path, ScriptedModel(lambda *_: "0.5"), rewarders=(weighted(Judging()),))
    assert answered.choice.index == 0


def test_api_keys_in_an_actor_s_answer_and_a_rewarder_s_words_are_removed(tmp_path):
    scrubbing = {"scrub": lambda text: text.replace("sk-key", "***")}
    selection = run(tmp_path, by_index("Answer: sk-key", "Answer: 7"), spec(k=2), rewarders=BROKEN, changed=scrubbing)
    assert selection.candidates[0].text == "Answer: ***"
    assert "***-123456 leaked" in selection.faults["broken"]
    assert "sk-key" not in repr(selection)


# The policy of earlier systems.


@pytest.mark.parametrize("case", [case for case in read_vectors("candidate_sampler") if case["k"] > 0], ids=lambda c: c["name"])
def test_calls_and_candidates_are_those_of_earlier_systems_when_only_syntax_is_repaired(tmp_path, case):
    seen = defaultdict(int)

    def answer(request, key):
        name = str(request.temperature)
        replies = case["replies_by_temperature"].get(name, case["replies_by_temperature"]["*"])
        seen[name] += 1
        return replies[min(seen[name], len(replies)) - 1]

    model = ScriptedModel(answer)
    asked = spec(k=case["k"], format=PowlFormat("syntax"), item=item(answer=GOOD))
    selection = run(tmp_path, model, asked, rewarders=FOOTPRINT)
    assert Counter(str(request.temperature) for request, _ in model.requests) == case["calls_by_temperature"]
    assert len(model.requests) == case["total_calls"]
    valid = [candidate.index for candidate in selection.candidates if candidate.valid]
    assert valid == case.get("returned_candidate_indices", [])
    if "error_type" in case:
        with pytest.raises(SelectionFailed, match="parse_error"):
            _ = selection.best


@pytest.mark.parametrize("case", read_vectors("best_of_k"), ids=lambda case: case["name"])
def test_scored_candidates_and_choice_are_those_of_earlier_systems(tmp_path, case):
    texts = [json.dumps(each["model_json"]) for each in case["candidates"]]
    rewards = dict(zip(texts, (each["reward"] for each in case["candidates"]), strict=True))

    def score(context):
        found = [rewards[attempt.output] for attempt in context.outputs]
        assert "!raise" not in found
        return [RewardScore("table", float(reward), "") for reward in found]

    asked = spec(k=len(texts), format=PowlFormat("syntax"), none_valid="best_effort")
    selection = run(tmp_path, by_index(*texts), asked, rewarders=(weighted(Says("table", score)),))
    assert [each.index for each in selection.candidates if each.scores or each.ungraded] == case["scored_indices"]
    assert selection.choice.index == case["best_index"]
