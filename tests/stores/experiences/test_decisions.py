"""What is in force is what the last decision says, and what it rests on is on record line by line."""

import errno
import os

import pytest

from tests.support.records.records import NOW
from tfgrpo.stores.errors import CorruptFile, StoreError
from tfgrpo.stores.experiences.credit import CreditFile, Row, Word, count_credit, read_credit, share_of_range
from tfgrpo.stores.experiences.decisions import (
    Decision,
    Gain,
    chain_problems,
    in_force,
    kept_out,
    nights_unchanged,
    read_decisions,
    record_decided,
)
from tfgrpo.stores.files.lines import LineFile


def decision(kind="in force", ids=("exp-1",), **changes):
    lessons = {"experience_ids": tuple(ids), "library_id": "-".join(ids), "considered": tuple(ids)}
    found = {"total": Gain(mean=6.2, sd=1.7, low=2.9, high=9.5, likely=0.99), "pairs": 20}
    return Decision(
        **{"run_id": "run-1", "decided_at": NOW, "decision": kind, "simulated": False, **lessons, **found, **changes}
    )


def record(path, *decisions):
    for one in decisions:
        record_decided(path, lambda _, one=one: one)
    return path


def ids_in_force(path, **which):
    found = in_force(read_decisions(path), **which)
    return () if found is None else found.experience_ids


def test_every_line_says_what_is_in_force_from_then_on(tmp_path):
    path = record(tmp_path / "promotions.jsonl", decision(ids=("a", "b")), decision(ids=("b", "d")))
    assert ids_in_force(path) == ("b", "d")
    record(path, decision("taken back", ids=(), considered=("b",)))
    assert ids_in_force(path) == ()


def test_simulated_lessons_are_in_force_for_no_real_model_and_otherwise_only_while_no_real_one_ever_was(tmp_path):
    path = record(tmp_path / "both.jsonl", decision(ids=("real",)), decision(ids=("pretended",), simulated=True))
    assert ids_in_force(path, simulated=False) == ids_in_force(path) == ("real",)
    assert ids_in_force(path, simulated=True) == ("pretended",)
    path = record(tmp_path / "promotions.jsonl", decision(ids=("pretended",), simulated=True), decision("not yet", ids=()))
    assert ids_in_force(path) == ("pretended",)
    record(path, decision(ids=("real",)), decision("taken back", ids=()))
    assert ids_in_force(path) == ()


def test_a_lesson_stays_out_until_a_person_brings_a_library_with_it_back():
    lines = [decision(), decision("retire", ids=(), reasons={"exp-1": "wrong"}), decision("in force", ids=("exp-2",))]
    assert kept_out(lines, simulated=False) == {"exp-1": "wrong"}
    assert kept_out(lines, simulated=True) == {}
    assert kept_out([*lines, decision("rollback", ids=("exp-1",))], simulated=False) == {}
    reworded = decision("retire", ids=(), reasons={"old": "wrong", "new": "wrong"})
    assert kept_out([reworded, decision("rollback", ids=("old",))], simulated=False) == {}, "with any of its wordings"


def test_a_night_without_a_change_leaves_what_is_in_force_and_would_put_nothing_else():
    nights = [decision(), decision("retire", ids=()), decision("not yet", ids=()), decision("import", ids=("a",))]
    assert sum(one.ends_night for one in nights) == 2, "nights are what runs decided"
    same = decision(ids=("a",))
    assert nights_unchanged([same]) == 0
    assert nights_unchanged([same, same, same]) == 2
    assert nights_unchanged([same, same, decision(ids=("a",), considered=("a", "b"))]) == 0
    assert nights_unchanged([same, same, decision("retire", ids=())]) == 0
    nothing = decision("not yet", ids=(), considered=())
    assert nights_unchanged([nothing, nothing]) == 2


DAMAGES = {
    "edited": lambda raw: raw.replace(b'"experience_ids":["a"]', b'"experience_ids":["b"]'),
    "nonsense": lambda raw: raw + b"nonsense\n",
    "zeros": lambda raw: b"\0" * len(raw),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_line_never_silently_changes_what_is_in_force(tmp_path, damage):
    path = record(tmp_path / "promotions.jsonl", decision(ids=("a",)))
    path.write_bytes(damaged := damage(path.read_bytes()))
    for use in (ids_in_force, lambda path: record(path, decision(ids=("c",)))):
        with pytest.raises(CorruptFile, match=r"promotions\.jsonl: .*is damaged"):
            use(path)
    assert path.read_bytes() == damaged


def test_a_decision_that_the_disk_does_not_confirm_is_not_recorded(tmp_path, monkeypatch):
    path = tmp_path / "promotions.jsonl"

    def full(_fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match="No space left"):
            record(path, decision())
    assert list(read_decisions(path)) == []


def three(path):
    """Lines of a file with three decisions."""
    record(path, *(decision(run_id=run_id) for run_id in ("one", "two", "three")))
    return path.read_text().splitlines(keepends=True)


def test_removing_the_last_lines_leaves_a_valid_chain(tmp_path):
    path = tmp_path / "promotions.jsonl"
    first, *_ = three(path)
    assert chain_problems(path) == []
    path.write_text(first)
    assert chain_problems(path) == []
    record(path, decision(run_id="four"))
    assert chain_problems(path) == []
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert chain_problems(path) == []
    path.write_bytes(path.read_bytes()[:-5])
    assert chain_problems(path) == ["promotions.jsonl: the last line is incomplete and does not count"]
    assert len(list(read_decisions(path))) == 1
    path.unlink()
    assert chain_problems(path) == []


@pytest.mark.parametrize("gone", [0, 1])
def test_a_line_that_was_removed_breaks_the_chain_and_one_that_was_changed_is_damaged(tmp_path, gone):
    path = tmp_path / "promotions.jsonl"
    lines = three(path)
    path.write_text("".join(line for place, line in enumerate(lines) if place != gone))
    expected = f"promotions.jsonl: line {gone + 1} does not continue the chain: a line before it was removed or changed"
    assert chain_problems(path) == [expected]
    path.write_text("".join(lines).replace('"pairs":20', '"pairs":21', 1))
    assert chain_problems(path) == ["promotions.jsonl: line 1 is damaged", expected.replace(f"line {gone + 1}", "line 2")]


def test_a_person_who_accepts_damage_has_it_moved_away_and_decides_on_what_is_left(tmp_path):
    path = record(tmp_path / "promotions.jsonl", decision(ids=("a",)), decision(ids=("b",)))
    sound, other = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(sound + other[:-40] + b"\n")
    with pytest.raises(CorruptFile):
        record_decided(path, lambda _: decision(ids=("c",)))
    record_decided(path, lambda earlier: decision(ids=("c", *earlier[-1].experience_ids)), accepts=True)
    assert ids_in_force(path) == ("c", "a")
    assert path.read_bytes().startswith(sound)
    assert other[:-40] not in path.read_bytes()
    assert other[:-40] in path.with_name(f"{path.name}.torn").read_bytes()


IN_RUN = {"run_id": "run-1", "night": 0, "simulated": False, "created_at": NOW}


def row(line_id="run-1/g1", **changes):
    sides = {"one": ("exp-1",), "other": (), "rewards_one": (1.0, 0.5), "rewards_other": (0.25,)}
    fields = {"line_id": line_id, "source": "learning", "item_id": "q-1", "conditions": "c"}
    return Row(**{**IN_RUN, **fields, **sides, **changes})


def word(**changes):
    fields = {"experience_id": "exp-1", "said": "taught", "amount": 1.0, "epoch": 1, "group_id": "g1"}
    return Word(**{**IN_RUN, **fields, **changes}).named()


def test_of_all_nights_of_a_kind_the_sweeps_are_read_of_its_last_ones_all_lines_and_of_the_others_one(tmp_path):
    path, lines = tmp_path / "credit.jsonl", [row(), word(), row("s", source="sweep"), row("n1", night=1)]
    CreditFile(path).append(lines)
    assert read_credit(path, nights=(1, False)) == [lines[0], *lines[2:]]
    misleading = ',"night":99,"simulated":true'
    later = [word(group_id="g9", night=60, why=misleading), row("n60", night=60)]  # nights between left no line
    rehearsed = [row(f"d{night}", night=night // 2, simulated=True) for night in (0, 1, 140, 160)]  # with numbers of their own
    CreditFile(path).append([*later, *rehearsed])
    assert read_credit(path, nights=(2, False)) == [lines[0], *lines[2:], *later]
    assert read_credit(path, nights=(2, True)) == [rehearsed[0], *rehearsed[2:]]


def test_a_line_that_is_none_is_named(tmp_path):
    path = tmp_path / "credit.jsonl"
    CreditFile(path).append([row()])
    LineFile(path).append([{"kind": "row"}])
    with pytest.raises(CorruptFile, match="line 2 is not a line of credit"):
        read_credit(path)
    path.write_bytes(path.read_bytes().replace(b"0.25", b"0.75"))  # a reward that was edited
    for read in (read_credit, count_credit):
        with pytest.raises(CorruptFile, match="line 1 is damaged"):
            read(path)


def test_rewards_are_shares_of_their_declared_range_and_one_outside_counts_as_its_end():
    assert share_of_range([1.0, 3.0, 5.0, 6.0, 0.0], (1.0, 5.0)) == (0.0, 0.5, 1.0, 1.0, 0.0)


def test_a_word_is_known_by_what_is_said_and_where_not_by_when_a_run_says_it_again():
    later = NOW.replace(year=2027)
    assert word(created_at=later).line_id == word().line_id
    assert word(epoch=0, created_at=later).line_id != word(epoch=0).line_id  # a person who says it again means it again
    different = [word(amount=-1.0), word(group_id="g2"), word(contrast=1), word(experience_id="exp-2"), word(run_id="run-2")]
    assert len({word().line_id, *(each.line_id for each in different)}) == 6
