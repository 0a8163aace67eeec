"""The proving ground: the worlds are what they say, policies stay within their budget, and the page has its table."""

from __future__ import annotations

import re
import statistics
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.dials import DialledEngine, Dials
from benchmarks.learning import safety as safety_rows
from benchmarks.worlds import safety, service
from benchmarks.worlds.__main__ import PAGE, cost_lines, credit_lines
from benchmarks.worlds.credit import Credit
from benchmarks.worlds.engine import ROLLOUTS_A_NIGHT, Arena, Course, run
from benchmarks.worlds.figures import figure
from benchmarks.worlds.product import OfProduct
from benchmarks.worlds.service import serve, service_lines
from benchmarks.worlds.table import CREDIT, POLICIES, SHIPPED, SHIPPED_AREAS
from benchmarks.worlds.world import NOTHING, VARIANTS, WORLDS, Items, Truth
from tests.support.models.players import with_lessons
from tfgrpo.pipelines.settings.tree import SimulatedSettings
from tfgrpo.tasks.models.simulated.puzzle import open_world

PLAIN = WORLDS["plain"]
KEEP = "keep everything (the paper)"


def right(truth, count=12):
    """The right lessons about the first rules."""
    return frozenset((rule, bool(truth.signs[rule] > 0)) for rule in range(count))


def arena(world=PLAIN, seed=0, items=200):
    truth, random = Truth(world, seed), np.random.default_rng(seed)
    drawn = Items.drawn(world, items, random)
    return truth, Arena(truth, drawn, drawn, random)


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


def test_attempts_are_counted_and_none_is_given_beyond_the_budget():
    _, ground = arena()
    ground.attempt(ground.train.some(range(100)), NOTHING, 3)
    assert ground.left == ROLLOUTS_A_NIGHT - 300
    with pytest.raises(ValueError, match="100 rollouts more than the 800 of a night"):
        ground.attempt(ground.train.some(range(200)), NOTHING, 3)


def test_a_reflection_names_what_separates_best_from_worst_and_mostly_rightly():
    truth, ground = arena()
    mixed = [group for group in ground.attempt(ground.train, NOTHING, 4) if not group.flat]
    lessons = [lesson for lesson in map(ground.reflect, mixed) if lesson is not None]
    assert ground.learner_calls == len(mixed)
    about_rules = [lesson for lesson in lessons if lesson[0] < PLAIN.rules]
    assert len(about_rules) > len(lessons) / 2
    assert sum(map(truth.right, about_rules)) > 0.6 * len(about_rules)


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


@pytest.mark.parametrize("seed", [6])
def test_a_lesson_under_which_wrong_attempts_are_lost_comes_into_force_without_the_test_of_losses_alone(seed):
    assert safety.lost("idle, lost, without the test of losses", seed, nights=4)[0] > 0.0
    assert safety.lost("idle, lost, as the product decides", seed, nights=4)[0] == 0.0


def test_the_tables_of_what_is_lost_have_a_row_for_every_kind_of_month():
    some = frozenset({(0, True)})
    month = replace(course(*[-1.0, 0.0] * 5), served=(some, NOTHING) * 5)
    results = {
        safety.nothing_to_gain: month,
        safety.little_to_gain: replace(month, gain=month.gain * 2, served=month.served * 2),
        safety.brought_in: (4.0, [8] * 10, month),
        safety.lost: (0.5, 1.0),
        safety.covered: {3: [True], 6: [True, False], 10: [True]},
    }
    executor = SimpleNamespace(map=lambda of, seeds: [results[of.func] for _ in seeds])
    tables = safety.measure_safety(executor, months=2)
    assert tables["nothing to gain"][2] == "| idle lessons that cost nothing | 2 | 100% | 50.0% | -0.50 ± 0.00 | -0.5 |"
    assert tables["little to gain"][2] == (
        "| +3 points | 100% / 100% / 100% / 100% / 100% / 100% | -1.0 / +0.0 / -1.0 / -1.0 / +0.0 / +0.0 |"
    )
    assert tables["brought in"][2].startswith("| eight idle lessons | +4.0 | 8.0 / 8.0 / 8.0 / 8.0 / 8.0 | -1.0 / +0.0 /")
    assert tables["lost attempts"][2] == "| idle, nothing is lost | 50% | +1.0 ± 0.0 |"
    assert tables["coverage"][2] == "| plain | 100.0% | 50.0% | 100.0% | 8 |"
    page = PAGE.read_text(encoding="utf-8")
    for name, rows in tables.items():
        block = page.split(f"<!-- {name} -->")[1].split("<!-- end -->")[0].strip().splitlines()
        assert [row.split("|")[1] for row in block] == [row.split("|")[1] for row in rows]


# --- figures


def course(*gains, calls=10):
    return Course(gains, (NOTHING,) * len(gains), (0,) * len(gains), 800 * len(gains), calls * len(gains), 0)


def test_figures_are_means_with_the_interval_of_students_t():
    values = [float(number) for number in range(30)]
    found = figure(values)
    assert found.mean == 14.5
    assert found.half_width == pytest.approx(2.04523 * 8.803408430829505 / 30**0.5, rel=1e-4)
    assert str(found) == "+14.5 ± 3.3"
    assert figure([2.0, 2.0]).half_width == 0.0
    assert figure([0.0] * 5 + [1.0] * 5).half_width == pytest.approx(2.26216 / 6, rel=0.003)


def test_the_table_of_areas_has_every_policy_and_the_difference_from_the_best_other():
    courses = {policy: [course(*[0.0] * 20)] * 2 for policy in POLICIES}
    courses |= {CREDIT: [course(*[3.0] * 20)] * 2, KEEP: [course(*[1.0] * 20)] * 2}
    heading, _, plain, graded = credit_lines({"plain": courses, "graded": courses})
    others = [one for one in POLICIES if one != CREDIT]
    assert [cell.strip() for cell in heading.split("|")[2:-3]] == [CREDIT, SHIPPED, *others]
    assert plain.startswith(f"| plain | +3.0 ± 0.0 | {SHIPPED_AREAS['plain']} | +1.0 ± 0.0 |")
    assert plain.endswith("| +2.0 ± 0.0 | 3.0 / 3.0 / 3.0 / 3.0 / 3.0 |")
    assert graded.startswith("| graded | +3.0 ± 0.0 | – |")


def test_the_table_of_costs_has_the_price_of_a_point_and_what_was_recorded():
    plain = {policy: [course(*[16.0] * 20)] * 2 for policy in POLICIES}
    found = {"plain": plain, "unlearnable": plain | {KEEP: [course(*[-1.0] * 20)] * 2}}
    heading, _, *rows = cost_lines(found)
    cells = {row.split("|")[1].strip(): [cell.strip() for cell in row.split("|")[2:-1]] for row in rows}
    assert list(cells) == [CREDIT, SHIPPED, *(one for one in POLICIES if one != CREDIT)]
    assert all(len(row) == heading.count("|") - 2 for row in cells.values())
    assert cells[CREDIT][1:3] == ["51", "–"]  # 810 calls a night; a world that was not measured
    assert float(cells[KEEP][-3]) == 10.0  # every night of one world of two


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
    costs = page.split("<!-- costs -->")[1].split("<!-- end -->")[0]
    assert all(f"| {policy} |" in costs for policy in (*POLICIES, SHIPPED))


def test_what_the_product_serves_is_measured_after_every_night():
    served = serve("unlearnable", 1, nights=2, items=10)
    assert (served.gain, served.lessons, served.wrong, served.in_force) == ((0.0, 0.0), (0, 0), (0, 0), 0)
    assert served.calls > 2 * 2 * 2 * 10
    heading, _, row = service_lines({"unlearnable": [served, served]})
    assert [cell.strip() for cell in row.split("|")[1:-1]] == [
        "unlearnable", "+0.0 ± 0.0", "+0.0 ± 0.0", "0.0", "0.0", "0.0", f"{served.calls / 2:.0f}",
    ]  # fmt: skip
    assert heading.count("| night ") == 2


def test_a_served_prompt_with_right_lessons_gains_and_after_the_drift_loses():
    pitfalls = open_world("arithmetic").pitfalls.values()
    right = with_lessons(pitfall.good_advice[0] for pitfall in pitfalls)
    before, after = (DialledEngine(SimulatedSettings(), Dials(drifted=drifted)) for drifted in (False, True))
    assert 30.0 < service._success(right, before) - service._success("", before) < 60.0
    assert service._success(right, after) < service._success(right, before) - 15.0
    helping = [[service._helps("do", p.good_advice[0].text, truth) for p in pitfalls] for truth in (before, after)]
    assert [row.count(False) for row in helping] == [0, len(pitfalls) // 3]


def test_the_page_has_a_row_for_every_world_of_the_product():
    block = PAGE.read_text(encoding="utf-8").split("<!-- service -->")[1].split("<!-- end -->")[0]
    assert re.findall(r"^\| (\w+) \| [+-]", block, re.MULTILINE) == list(service.WORLDS)


def test_first_nights_are_counted_where_nothing_is_due_and_missed_where_something_is(monkeypatch):
    def learn(**options):
        return SimpleNamespace(decision="not yet" if options["pipeline"] == "benchmarks/powl/pipeline.yaml" else "in force")

    monkeypatch.setattr(safety_rows, "ProcessPoolExecutor", lambda _: ThreadPoolExecutor(1))
    monkeypatch.setattr(safety_rows.tfgrpo, "learn", learn)
    months, first_nights = (rows := safety_rows.measure(2, 3, 2))[:2], rows[2:]
    assert [row.bar for row in months] == [0.2, 0.5]
    assert [(row.median, row.held) for row in first_nights] == [
        (100, False), (0, None), (0, True), (0, True), (2, False),
    ]  # fmt: skip
