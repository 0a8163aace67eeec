"""Credit of lessons from rows and words: what is known, what is on trial, what would follow, and what counts for nothing."""

from dataclasses import replace
from itertools import count
from random import Random

import pytest

from tests.support.records.records import NOW, make_record
from tfgrpo.pipelines.settings.tree import MOST_KNOWN
from tfgrpo.rewarders.statistics.credit import RULES, HeldOut
from tfgrpo.rewarders.statistics.summary import Capital
from tfgrpo.stores.experiences.credit import Row, Word
from tfgrpo.tasks.learning.credit import HELD, MEMORY_NIGHTS, OTHER_CONDITIONS, Memory, credit_of, random_halves
from tfgrpo.tasks.learning.tally import Tally

NUMBERS = count()
A, B, C, D = (make_record(name) for name in ("a", "b", "c", "d"))


def row(one=(), other=(), difference=0.1, *, night=0, source="learning", conditions="m", rewards=None, **fields):
    """A row of a group of four, whose first side was better by the difference."""
    first, second = rewards or ((0.5 + difference, 0.5 + difference), (0.5, 0.5))
    known = {"run_id": f"run-{night}", "night": night, "source": source, "conditions": conditions, "simulated": True}
    sides = {"one": tuple(one), "other": tuple(other), "rewards_one": first, "rewards_other": second}
    line, of = f"line-{next(NUMBERS)}", f"q{next(NUMBERS)}"
    return Row(line_id=line, item_id=of, created_at=NOW, **known, **sides, **fields)


def word(name, amount=1.0, *, night=0, said="taught", **fields):
    """A word for a lesson, or against it."""
    known = {"run_id": f"run-{night}", "night": night, "group_id": f"g{next(NUMBERS)}", "simulated": True}
    return Word(experience_id=name, said=said, amount=amount, created_at=NOW, **known, **fields)


def memory(*lines, records=(A, B, C, D), night=0, **fields):
    return Memory(records=tuple(records), tally=Tally().plus(lines), night=night, conditions="m", **{"slots": 40, **fields})


def quiet(*nights):
    """A row without rewards for each of these nights."""
    return [row(["d"], rewards=((), ()), night=night) for night in nights]


def ids(records):
    return [record.experience_id for record in records]


# --- what is known


def test_a_lesson_without_rows_or_words_is_not_known_and_one_in_force_is():
    credit = credit_of(memory(word("a"), row(["b"]), in_force=("d",)))
    assert list(credit.known) == ["d", "a", "b"]
    assert credit_of(memory()).known == {}


def test_lessons_have_the_groups_for_and_against_them_their_attempts_and_their_nights():
    lines = [word("a"), word("a"), word("a", -0.5, said="misled", night=1), row(["a"], ["b"], night=1), row(["a"], night=2)]
    lesson = credit_of(memory(*lines, night=2)).known["a"]
    assert (lesson.groups_for, lesson.groups_against, lesson.attempts, lesson.nights) == (2, 1, 8, 2)
    assert lesson.net == pytest.approx((2.0 * 0.8 - 0.5) * 0.8)


def test_at_most_so_many_lessons_are_known_those_in_force_first_then_those_heard_of_last():
    records = [make_record(f"e{number:03d}") for number in range(MOST_KNOWN + 30)]
    lines = [word(one.experience_id, night=int(number >= 30)) for number, one in enumerate(records)]
    known = credit_of(memory(*lines, records=records, night=1, in_force=("e000",))).known
    assert len(known) == MOST_KNOWN
    assert "e000" in known
    assert not {f"e{number:03d}" for number in range(1, 30)} & known.keys()


def test_of_equal_texts_the_first_is_known():
    twin = make_record("twin", summary32=A.summary32)
    credit = credit_of(memory(word("a"), word("twin"), records=(A, twin)))
    assert list(credit.known) == ["a"]
    other_way = make_record("other-way", summary32=A.summary32, polarity="avoid")
    assert list(credit_of(memory(word("a"), word("other-way"), records=(A, other_way))).known) == ["a", "other-way"]


def test_words_and_rows_are_forgotten():
    lines = [word("a", 4.0), *[row(["b"], difference=0.3) for _ in range(50)]]
    between = quiet(*range(1, MEMORY_NIGHTS + 1))
    tonight, tomorrow, later = (credit_of(memory(*lines, *between, night=night)) for night in (0, 1, MEMORY_NIGHTS))
    assert tomorrow.known["a"].net == pytest.approx(4.0 * RULES.net_memory)
    assert tonight.known["b"].effect.mean > tomorrow.known["b"].effect.mean > later.known["b"].effect.mean
    assert tonight.known["b"].effect.sd < tomorrow.known["b"].effect.sd < later.known["b"].effect.sd
    assert list(later.known) == ["b"]
    assert credit_of(memory(*lines, *between, night=MEMORY_NIGHTS + 1)).known == {}


def test_nights_that_left_no_line_forget_nothing():
    lines = [word("a", 4.0), *[row(["a"], (), 0.3, source="sweep") for _ in range(50)]]
    tomorrow, later = (credit_of(memory(*lines, night=night)) for night in (1, 2 * MEMORY_NIGHTS))
    assert (tomorrow.known, tomorrow.held_out, tomorrow.total) == (later.known, later.held_out, later.total)
    again = credit_of(memory(*lines, *quiet(7), word("b", night=7), night=9))
    assert again.known["a"].net == pytest.approx(4.0 * RULES.net_memory**2), "one night between, and tonight"


def test_lines_of_later_nights_count_for_nothing():
    lines = [word("a"), row(["a"])]
    later = [word("a", 9.0, night=1), row(["a"], difference=-0.9, night=1), row(["a"], source="sweep", night=1)]
    assert credit_of(memory(*lines, *later)) == credit_of(memory(*lines))


def test_rows_under_other_conditions_are_passed_over_and_words_are_not():
    lines = [word("a", 3.0), *[row(["a"], difference=-0.5, conditions="another model") for _ in range(50)]]
    credit = credit_of(memory(*lines))
    assert credit.known["a"].effect == credit_of(memory(word("a", 3.0))).known["a"].effect
    assert credit.known["a"].attempts == 0
    assert credit.held_out == credit_of(memory(row(["a"], source="sweep", conditions="another model"))).held_out


def test_the_first_night_under_other_conditions_says_that_earlier_nights_count_for_nothing():
    before, tonight = row(["a"], conditions="another model"), row(["a"], night=1)
    assert credit_of(memory(before, tonight, night=1)).left_out == (OTHER_CONDITIONS,)
    assert credit_of(memory(before, tonight, night=2)).left_out == ()
    assert credit_of(memory(tonight, night=1)).left_out == ()


# --- rewordings


def test_a_rewording_carries_rows_and_words_on():
    better = make_record("better", operation="modify", supersedes=("a",))
    lines = [word("a", 2.0), *[row(["a"], ["b"], difference=0.2) for _ in range(40)]]
    before = credit_of(memory(*lines, word("b")))
    after = credit_of(memory(*lines, word("b"), word("better", 0.0), records=(A, B, better)))
    assert list(after.known) == ["b", "better"]
    lesson = after.known["better"]
    assert lesson.ids == {"a", "better"}
    assert lesson.effect == pytest.approx(before.known["a"].effect)
    assert (lesson.net, lesson.attempts, lesson.groups_for) == (2.0, 160, 1)
    twice = make_record("twice", operation="modify", supersedes=("better",))
    again = credit_of(memory(*lines, word("b"), word("twice", 0.0), records=(A, B, better, twice)))
    assert again.known["twice"].ids == {"a", "better", "twice"}


def test_what_is_known_of_a_lesson_is_known_of_its_new_wording_too():
    better = make_record("better", operation="modify", supersedes=("a",))
    lines, records = [word("b", 3.0, opposite="a"), word("better", 5.0)], (A, B, better)
    credit = credit_of(memory(*lines, records=records))
    assert (credit.known["better"].opposites, ids(credit.on_trial)) == (("b",), ["better"])
    kept_out = credit_of(memory(*lines, records=records, kept_out={"a": "it is wrong"}))
    assert (kept_out.known["better"].kept_out, ids(kept_out.on_trial)) == ("it is wrong", ["b"])


def test_a_change_of_direction_begins_anew():
    turned = make_record("turned", operation="modify", supersedes=("a",), polarity="avoid")
    lines = [word("a", 2.0), *[row(["a"], difference=0.2) for _ in range(40)], word("turned")]
    known = credit_of(memory(*lines, records=(A, turned))).known
    assert known["turned"].ids == {"turned"}
    assert (known["turned"].attempts, known["turned"].net) == (0, 1.0)
    assert known["a"].attempts == 160


def test_merged_lessons_count_once_where_one_side_carried_both_and_not_at_all_where_each_side_had_one():
    both = make_record("both", operation="merge", supersedes=("a", "b"))
    records = (A, B, C, both)
    same_side = credit_of(memory(*[row(["a", "b"], difference=0.2) for _ in range(20)], records=records))
    alone = credit_of(memory(*[row(["both"], difference=0.2) for _ in range(20)], records=records))
    assert same_side.known["both"].effect == alone.known["both"].effect
    against = [*[row(["a"], ["b", "c"], difference=0.2) for _ in range(20)]]
    credit = credit_of(memory(*against, word("both"), records=records))
    assert credit.known["both"].attempts == 0
    assert credit.known["c"].effect.mean < RULES.own_mean


# --- what is on trial, what follows


def test_lessons_that_helped_follow_and_those_that_did_not_are_only_known():
    lines = [
        *[row(["a", "b"], ["c"], difference=0.2) for _ in range(60)],
        *[row(["a"], ["b", "c"], difference=0.2) for _ in range(60)],
        *(word(name) for name in "abc"),
    ]
    credit = credit_of(memory(*lines))
    assert "a" in ids(credit.follows)
    assert "c" not in ids(credit.follows)
    assert credit.total.mean > 1.0
    assert credit.attempts == 480


def test_a_lesson_that_the_sweep_did_not_carry_does_not_follow_however_good_it_is():
    lines = [row(["a", "b"], ["c"], difference=0.2) for _ in range(60)]
    before, after = (credit_of(memory(*lines, swept=swept)) for swept in (None, ("a", "c")))
    assert (ids(before.follows), ids(after.follows)) == (["a", "b"], ["a"])
    assert after.total == after.known["a"].effect
    assert (after.on_trial, after.known) == (before.on_trial, before.known)


def test_what_the_sweep_carried_follows_though_another_lesson_is_better_after_it():
    """Slots are of the next batch: else one that is proven leaves for one that cannot come into force tonight."""
    lines = [word("a", 9.0), word("b", 8.9), *[row(["a"], difference=0.002, source="sweep") for _ in range(40)]]
    before, after = (credit_of(memory(*told, swept=("a",), slots=1)) for told in (lines[:2], lines))
    assert (ids(before.on_trial), ids(after.on_trial)) == (["a"], ["b"])
    assert ids(before.follows) == ids(after.follows) == ["a"]
    assert after.total == after.known["a"].effect


def test_two_opposites_are_never_on_trial_together_even_by_way_of_a_third():
    lines = [word("a", 5.0), word("b", 3.0, opposite="a"), word("c", 4.0, opposite="b"), word("d", 1.0)]
    credit = credit_of(memory(*lines))
    assert ids(credit.on_trial) == ["a", "d"]
    assert credit.known["b"].opposites == ("a", "c")


def test_no_more_lessons_are_on_trial_than_a_prompt_has_room_for_and_the_best_are():
    lines = [word(name, amount) for name, amount in zip("abcd", (1.0, 4.0, 2.0, 3.0), strict=True)]
    assert ids(credit_of(memory(*lines, slots=2)).on_trial) == ["b", "d"]


def test_lessons_come_in_the_order_of_the_prompt_what_is_in_force_first():
    credit = credit_of(memory(*(word(name, 5.0) for name in "abcd"), in_force=("d", "b")))
    assert list(credit.known) == ids(credit.on_trial) == ["d", "b", "a", "c"]


def test_the_order_of_lines_changes_nothing():
    coin = Random(3)
    lines = []
    for night in range(3):
        for _ in range(40):
            one, other = random_halves([A, B, C, D], coin)
            lines.append(row(ids(one), ids(other), coin.choice([-0.5, 0.0, 0.5]), night=night))
            lines.append(word(coin.choice("abcd"), coin.choice([-1.0, 0.5, 1.0]), night=night))
        lines += [row(["a", "b"], (), coin.choice([-0.5, 0.0, 0.5]), night=night, source="sweep") for _ in range(20)]
    first = credit_of(memory(*lines, night=2))
    coin.shuffle(lines)
    again = credit_of(memory(*lines, night=2))
    assert [each.effect for each in again.known.values()] == [pytest.approx(each.effect) for each in first.known.values()]
    assert (ids(again.on_trial), ids(again.follows)) == (ids(first.on_trial), ids(first.follows))
    assert (again.total, again.word) == (pytest.approx(first.total), pytest.approx(first.word))
    assert again.held_out.mean == pytest.approx(first.held_out.mean)
    assert again.evidence.log_value == pytest.approx(first.evidence.log_value)


def test_a_lesson_that_is_worth_nothing_but_for_rounding_does_not_follow_in_any_order():
    # Two contrasts for a lesson pay, before any row, exactly for carrying it.
    lines = [word(name, 2.0) for name in "abcd"]
    for records in ((A, B, C, D), (D, B, A, C), (C, A)):
        credit = credit_of(memory(*lines, records=records))
        assert len(credit.on_trial) == len(records)
        assert credit.follows == ()


def test_each_half_is_random_and_both_keep_the_order_of_the_prompt():
    coin, lessons = Random(1), [A, B, C, D]
    halves = [random_halves(lessons, coin) for _ in range(400)]
    assert all(sorted(ids([*one, *other])) == ["a", "b", "c", "d"] for one, other in halves)
    assert all(ids(side) == sorted(ids(side)) for pair in halves for side in pair)
    assert {len(one) for one, _ in halves} == {0, 1, 2, 3, 4}
    assert 0.4 < sum(A in one for one, _ in halves) / 400 < 0.6


# --- sweeps and lost attempts


def test_the_gain_on_held_out_items_and_its_evidence_are_a_fold_over_the_nights():
    nights = {1: [0.5, -0.5, 0.5, 0.0], 3: [0.5, 0.5]}
    lines = [row(["a"], (), one, night=night, source="sweep") for night, of_night in nights.items() for one in of_night]
    lines += quiet(2)
    credit = credit_of(memory(*lines, row(["a"], difference=-0.5, night=3), night=4))
    held_out = HeldOut.before().after(nights[1]).after([]).after(nights[3]).after([])
    capital = Capital().after(nights[1]).after([]).after(nights[3]).after([])
    assert (credit.held_out.mean, credit.held_out.variance) == pytest.approx((held_out.mean, held_out.variance))
    assert credit.evidence.log_value == pytest.approx(capital.log_value)
    assert credit.swept == 0
    assert credit_of(memory(*lines, night=3)).swept == 2
    assert credit_of(memory()).evidence.log_value == Capital().log_value


def test_the_evidence_of_the_sweeps_is_never_started_anew_while_their_rows_are_forgotten():
    swept = [row(("a",), (), 0.5, night=night, source="sweep") for night in range(2 * MEMORY_NIGHTS)]
    capital = Capital()
    for _ in swept:
        capital = capital.after([0.5])
    last = 2 * MEMORY_NIGHTS - 1
    credit = credit_of(memory(*swept, word("a", 9.0, night=last), night=last))
    assert credit.evidence.log_value == pytest.approx(capital.log_value)
    assert credit.attempts == sum(len(each.rewards_one) + len(each.rewards_other) for each in swept[-MEMORY_NIGHTS - 1 :])


def test_an_item_without_a_reward_on_one_side_is_no_difference():
    lines = [row(["a"], rewards=((1.0, 1.0), ()), source="sweep", lost_other=2), row(["a"], difference=0.5, source="sweep")]
    credit = credit_of(memory(*lines))
    assert credit.swept == 1
    assert credit.held_out == HeldOut.before().after([0.5])
    one_side = credit_of(memory(row(["a"], rewards=((1.0, 1.0), ()))))
    assert (one_side.known["a"].effect.mean, one_side.known["a"].effect.sd) == pytest.approx((RULES.own_mean, RULES.own_sd))


def test_rows_of_a_lesson_under_which_more_attempts_are_lost_are_left_out_with_a_sentence():
    halves = [("d", "ab"), ("da", "b"), ("db", "a"), ("dab", "")] * 10
    losing = [row(one, other, rewards=((1.0,), (0.5, 0.5)), lost_one=1) for one, other in halves]
    sound = [row(["a"], ["b"], difference=0.2, night=1) for _ in range(60)]
    tonight, tomorrow = (credit_of(memory(*losing, *sound, word("d"), night=night)) for night in (0, 1))
    assert tonight.left_out == (
        "the rows of the learning with 1 lesson are left out: 40 of 80 attempts were lost with such a lesson, 0 of 80 without",
    )
    assert tonight.known["d"].attempts == 0
    assert (tonight.known["d"].effect, list(tonight.known)) == (credit_of(memory(word("d"))).known["d"].effect, ["d"])
    assert (tomorrow.left_out, tomorrow.known["a"].attempts) == ((), 240)


def test_equal_losses_and_losses_of_other_nights_leave_nothing_out_tonight():
    lost_alike = [row(["a"], ["b"], rewards=((1.0,), (0.5,)), lost_one=1, lost_other=1) for _ in range(20)]
    assert credit_of(memory(*lost_alike)).left_out == ()
    yesterday = [row(["a"], ["b"], rewards=((1.0,), (0.5, 0.5)), lost_one=1) for _ in range(20)]
    credit = credit_of(memory(*yesterday, row(["a"], ["b"], night=1), night=1))
    assert credit.left_out == ()
    assert credit.known["a"].attempts == 4  # of tonight alone


def test_a_sweep_with_unequal_losses_says_nothing_of_held_out_items_and_its_learning_rows_count():
    swept = [row(["a"], rewards=((1.0,), (0.5, 0.5)), lost_one=1, source="sweep") for _ in range(20)]
    learned = [row(["a"], ["b"], difference=0.2) for _ in range(20)]
    credit = credit_of(memory(*swept, *learned))
    assert (credit.swept, credit.held_out) == (0, HeldOut.before().after([]))
    assert credit.known["a"].attempts == 80
    assert "the rows of the sweep" in credit.left_out[0]
    spared = [row(["a"], rewards=((1.0, 1.0), (0.5,)), lost_other=1, source="sweep") for _ in range(20)]
    credit = credit_of(memory(*spared))  # fewer are lost with it
    assert (credit.left_out, credit.swept, credit.known["a"].attempts) == ((), 20, 60)


@pytest.mark.parametrize("swapped", [False, True])
def test_attempts_that_repeat_each_other_are_no_more_evidence_than_their_differences_are(swapped):
    coin = Random(0)
    noise = [(coin.choice([0.0, 1.0]), coin.choice([0.0, 1.0])) for _ in range(40)]
    rows = [row(["a"], ["b"], rewards=((one,) * 2, (other,) * 2)) for one, other in noise]
    if swapped:  # whichever side came first
        rows[::2] = [row(["b"], ["a"], rewards=((other,) * 2, (one,) * 2)) for one, other in noise[::2]]
    known = credit_of(memory(*rows, word("a"))).known
    alone = credit_of(memory(*[row(["a"], ["b"], rewards=((one,), (other,))) for one, other in noise], word("a"))).known
    assert known["a"].effect == pytest.approx(alone["a"].effect, abs=0.05)


def test_rows_of_tonight_and_last_night_alone_say_how_unequal_attempts_are():
    measured = [*quiet(0, 1), *(row(["a"], ["b"], difference=0.2, night=2) for _ in range(20))]
    means = []
    for then in (0, 1, 2):
        unequal = [row(["c"], difference=at % 2 - 0.5, night=then) for at in range(50)]
        means.append(credit_of(memory(*measured, *unequal, night=2)).known["a"].effect.mean)
    assert means[0] == credit_of(memory(*measured, night=2)).known["a"].effect.mean > means[1] == means[2]


@pytest.mark.parametrize(("words", "held"), [
    ([word("a", foreign=True), word("a", said="confirmed", foreign=True)], True),
    ([word("a", foreign=True), word("a", said="confirmed")], False), ([word("a")], False),
    ([word("a", foreign=True), word("a", -0.2, said="contradicted")], True),
    ([word("a", foreign=True), word("a", said="brought in")], False),
])  # fmt: skip
def test_a_lesson_that_only_strangers_speak_for_is_held_and_not_on_trial(words, held):
    for in_force in ((), ("a",)):
        credit = credit_of(memory(*words, in_force=in_force))
        kept = held and not in_force
        assert (credit.known["a"].kept_out == HELD) is kept
        assert (A in credit.on_trial) is not kept


def test_the_tally_of_a_night_is_the_same_by_batches_and_whichever_side_a_row_names_first():
    kinds = [(("a",), ("b",), "learning"), (("a", "c"), (), "sweep"), (("b",), ("a",), "learning")]
    lines = [
        row(one, other, draw / 70, night=draw % 3, source=source, lost_one=draw % 2)
        for draw, (one, other, source) in enumerate(7 * kinds)
    ]
    lines += [word("a", night=1), word("b", -1.0), word("a", 0.5, night=1, foreign=True)]
    whole, by_batch = Tally().plus(lines), Tally()
    for at in range(0, len(lines), 5):
        by_batch = by_batch.plus(lines[at : at + 5])
    assert by_batch == whole
    learned = [line for line in lines if isinstance(line, Row) and line.source == "learning"]
    kinds = [(f"{name}one", f"{name}other") for name in ("", "rewards_", "lost_")]
    swaps = [kind for one, other in kinds for kind in ((one, other), (other, one))]
    turned = Tally().plus(replace(each, **{name: getattr(each, by) for name, by in swaps}) for each in learned)
    assert turned.rows == Tally().plus(learned).rows
