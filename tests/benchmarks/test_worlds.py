"""Worlds and dials are what they say, policies stay within their budget, and the page has its table."""

import json
import re
import statistics

import pytest

from benchmarks.dials import DialledEngine, Dials, lesson_gain, turned_rules
from benchmarks.generated_items import generate_items
from benchmarks.worlds import safety, service
from benchmarks.worlds.__main__ import PAGE
from benchmarks.worlds.credit import Credit
from benchmarks.worlds.engine import ROLLOUTS_A_NIGHT, run
from benchmarks.worlds.figures import figure
from benchmarks.worlds.product import OfProduct
from benchmarks.worlds.service import serve
from benchmarks.worlds.table import POLICIES, SHIPPED
from benchmarks.worlds.world import NOTHING, VARIANTS, WORLDS, Truth
from tests.support.models.players import with_lessons
from tests.support.models.simulated_calls import request
from tfgrpo.pipelines.settings.tree import SimulatedSettings
from tfgrpo.tasks.models.simulated.engine import Engine, digest_of
from tfgrpo.tasks.models.simulated.protocol import ChatBody
from tfgrpo.tasks.models.simulated.puzzle import answer_of, open_world

PLAIN = WORLDS["plain"]


def right(truth, count=12):
    """The right lessons about the first rules."""
    return frozenset((rule, bool(truth.signs[rule] > 0)) for rule in range(count))


# --- worlds


@pytest.mark.parametrize("world", [w for w in (*WORLDS.values(), *VARIANTS.values()) if w.effect], ids=lambda w: w.name)
def test_right_lessons_help_and_their_opposites_harm(world):
    gains, losses = [], []
    for seed in range(5):
        truth = Truth(world, seed)
        pack, nothing = right(truth), truth.success(NOTHING)
        gains.append(truth.success(pack) - nothing)
        losses.append(truth.success(frozenset((rule, not show) for rule, show in pack)) - nothing)
        assert truth.wrong(pack) == 0
    assert statistics.mean(gains) > 3.0
    assert statistics.mean(losses) < -10.0


def test_where_nothing_can_be_learned_no_library_helps():
    truth = Truth(WORLDS["unlearnable"], 0)
    packs = [frozenset({(habit, show)}) for habit in range(truth.world.habits) for show in (True, False)]
    assert all(truth.success(pack) < truth.success(NOTHING) for pack in packs)
    assert all(truth.wrong(pack) == 1 for pack in packs)


@pytest.mark.parametrize("name", safety.LITTLE_TO_GAIN)
def test_where_there_is_little_to_gain_right_lessons_gain_as_much_as_the_row_says(name):
    truths = [Truth(safety.LITTLE_TO_GAIN[name], seed) for seed in range(4)]
    gained = statistics.mean(truth.success(right(truth)) - truth.success(NOTHING) for truth in truths)
    assert gained == pytest.approx(float(name.split()[0]), abs=0.7)
    assert statistics.mean(truth.success(NOTHING) for truth in truths) == pytest.approx(73.0, abs=1.5)


# --- the engine


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_stays_within_its_budget_and_is_the_same_for_a_seed(policy):
    made = POLICIES[policy]
    first, again = (run(PLAIN, made, 1, nights=3) for _ in range(2))
    assert first == again
    assert 0.8 * 3 * ROLLOUTS_A_NIGHT <= first.rollouts <= 3 * ROLLOUTS_A_NIGHT
    assert first.learner_calls > 0
    assert first != run(PLAIN, made, 2, nights=3)


@pytest.mark.parametrize(
    ("world", "seed"), [("plain", 0), *(pytest.param(*case, marks=pytest.mark.slow) for case in (("tempting", 2), ("many", 3)))]
)
def test_the_policy_decides_as_the_product_does_from_the_same_rows_and_words(world, seed):
    compared = []

    class Both(Credit):
        """Feeds the product the same rows and words, and compares what follows before each batch, sweep and decision."""

        def __init__(self):
            super().__init__()
            self.product = OfProduct()

        def _age(self):
            super()._age()
            self.product._nights, self.product.serving = self._nights, self.serving
            self.product._age()

        def _credit(self, *sides, sweep=False):
            super()._credit(*sides, sweep=sweep)
            self.product._credit(*sides, sweep=sweep)

        def _count(self, lesson, weight):
            super()._count(lesson, weight)
            self.product._count(lesson, weight)

        def standing(self, swept=None):
            ours, theirs = super().standing(swept), self.product.standing(swept)
            assert (ours.on_trial, ours.follows) == (theirs.on_trial, theirs.follows)
            assert (*ours.total, *ours.held_out) == pytest.approx((*theirs.total, *theirs.held_out), abs=1e-6)
            compared.append(len(ours.follows))
            return ours

    week = run({**WORLDS, **VARIANTS}[world], Both, seed, nights=7)
    assert len(compared) == 7 * (6 + 2)
    assert max(compared) > 3
    assert week == run({**WORLDS, **VARIANTS}[world], Credit, seed, nights=7)


# --- what credit loses


def test_a_lesson_under_which_wrong_attempts_are_lost_comes_into_force_without_the_test_of_losses_alone():
    assert safety.lost("idle, lost, without the test of losses", 6, nights=4)[0] > 0.0
    assert safety.lost("idle, lost, as the product decides", 6, nights=4)[0] == 0.0


# --- figures


def test_figures_are_means_with_the_interval_of_students_t():
    values = [float(number) for number in range(30)]
    found = figure(values)
    assert found.mean == 14.5
    assert found.half_width == pytest.approx(2.04523 * 8.803408430829505 / 30**0.5, rel=1e-4)
    assert str(found) == "+14.5 ± 3.3"
    assert figure([2.0, 2.0]).half_width == 0.0
    assert figure([0.0] * 5 + [1.0] * 5).half_width == pytest.approx(2.26216 / 6, rel=0.003)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_what_the_product_learns_in_the_arithmetic_world_is_in_force_after_the_first_night(seed):
    served = serve("plain", seed, nights=1)
    assert served.in_force == 1
    assert served.gain[0] > 25.0


def test_the_page_has_a_row_of_credit_for_every_world():
    page = PAGE.read_text(encoding="utf-8")
    block = page.split("<!-- credit -->")[1].split("<!-- end -->")[0]
    assert re.findall(r"^\| ([a-z ]+) \| [+-]\d", block, re.MULTILINE) == [*WORLDS, *VARIANTS]
    for world in (*WORLDS.values(), *VARIANTS.values()):
        assert f"**{world.name}**: {world.description}" in page
    block = page.split("<!-- service -->")[1].split("<!-- end -->")[0]
    assert re.findall(r"^\| (\w+) \| [+-]", block, re.MULTILINE) == list(service.WORLDS)
    costs = page.split("<!-- costs -->")[1].split("<!-- end -->")[0]
    assert all(f"| {policy} |" in costs for policy in (*POLICIES, SHIPPED))


PITFALLS = open_world("arithmetic").pitfalls
OPTIONS = SimulatedSettings(seed=3)
BARE = "Solve it."
RIGHT, WRONG = (with_lessons(getattr(p, kind)[0] for p in PITFALLS.values()) for kind in ("good_advice", "bad_advice"))


def said(bodies, **dials):
    engine = DialledEngine(OPTIONS, Dials(**dials))
    answers = [engine.answer(ChatBody.model_validate(body), digest_of(body)) for body in bodies]
    return [answer["choices"][0]["message"]["content"] for answer in answers]


def asked(system, items, seeds=1):
    return [request(i["prompt"], system, temperature=0.3, seed=seed) for seed in range(seeds) for i in items]


def gained(before, after, **dials):
    """Points by which the second system prompt succeeds more often than the first at temperature 0.3."""
    items = generate_items("arithmetic", 300, seed=5)
    shares = []
    for system in (before, after):
        texts = said(asked(system, items, 4), **dials)
        shares.append(sum(answer_of(text) == item["answer"] for text, item in zip(texts, items * 4, strict=True)))
    return 100.0 * (shares[1] - shares[0]) / (len(items) * 4)


def test_without_a_dial_the_answers_are_those_of_the_product():
    bodies, engine = asked(RIGHT, generate_items("arithmetic", 30)), Engine(OPTIONS)
    plain = [engine.answer(ChatBody.model_validate(body), digest_of(body)) for body in bodies]
    assert said(bodies) == [answer["choices"][0]["message"]["content"] for answer in plain]


@pytest.mark.parametrize("effect", [0.0, 20.0])
def test_right_lessons_together_gain_the_effect_that_was_set(effect):
    assert gained(BARE, RIGHT, effect=effect) == pytest.approx(effect, abs=4.0)
    assert lesson_gain("arithmetic", 5.0) < lesson_gain("arithmetic", 20.0)


def test_noise_turns_answers_round_and_leaves_the_work_shown_as_it_is():
    items = generate_items("arithmetic", 40)
    for item, plain, noisy in zip(items, *(said(asked(BARE, items), label_noise=n) for n in (0.0, 1.0)), strict=True):
        assert (answer_of(plain) == item["answer"]) is not (answer_of(noisy) == item["answer"])
        assert plain.rpartition("Answer:")[0] == noisy.rpartition("Answer:")[0]


def test_after_the_drift_a_third_of_the_rules_help_the_other_way_round_and_look_so():
    turned = turned_rules("arithmetic", 3)
    assert len(turned) == len(PITFALLS) // 3
    adapted = with_lessons((p.bad_advice if name in turned else p.good_advice)[0] for name, p in PITFALLS.items())
    assert gained(RIGHT, adapted, drifted=True) > 15.0
    assert gained(RIGHT, adapted) < -15.0
    items = generate_items("arithmetic", 25)
    before, after = (said(asked(BARE, items), drifted=drifted) for drifted in (False, True))
    assert before != after
    assert list(map(answer_of, before)) == list(map(answer_of, after))


@pytest.mark.parametrize(("share", "wrong"), [(0.0, 0.05), (0.2, 0.21), (1.0, 0.85)])
def test_a_misjudging_reflection_names_the_wrong_direction_in_its_share_of_cases(share, wrong):
    name, pitfall = next(iter(PITFALLS.items()))
    shown = [{"reward": 1.0, "transcript": pitfall.shown_avoided[0]}, {"reward": 0.0, "transcript": pitfall.shown_hit[0]}]
    ask = json.dumps({"attempts": shown, "max_lessons": 1})
    answers = said([request(ask, seed=seed) for seed in range(300)], misjudged=share)
    lessons = [lesson for answer in answers for lesson in json.loads(answer)["lessons"]]
    found = [open_world("arithmetic").stances(each["polarity"], each["text"]).get(name) for each in lessons]
    assert found.count(-1) / len(found) == pytest.approx(wrong, abs=0.06)
