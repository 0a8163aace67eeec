"""Every difference is kept once, and read as it was written."""

from __future__ import annotations

import pytest

from tests.support.records.records import NOW
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.experiences.credit import CreditFile, Row, Word, count_credit, read_credit, share_of_range
from tfgrpo.stores.files.lines import LineFile


def row(line_id="run-1/g1", **changes):
    fields = {
        "line_id": line_id,
        "run_id": "run-1",
        "night": 0,
        "source": "learning",
        "item_id": "q-1",
        "one": ("exp-1",),
        "other": (),
        "rewards_one": (1.0, 0.5),
        "rewards_other": (0.25,),
        "conditions": "c",
        "simulated": False,
        "created_at": NOW,
    }
    return Row(**{**fields, **changes})


def word(**changes):
    fields = {
        "run_id": "run-1",
        "night": 0,
        "experience_id": "exp-1",
        "said": "taught",
        "amount": 1.0,
        "epoch": 1,
        "group_id": "g1",
        "simulated": False,
        "created_at": NOW,
    }
    return Word(**{**fields, **changes}).named()


def test_lines_are_read_as_they_were_written_and_written_once(tmp_path):
    path, lines = tmp_path / "task" / "credit.jsonl", [row(), word(), row("run-1/g2", lost_one=1)]
    assert CreditFile(path).append(lines) == 3
    assert CreditFile(path).append([*lines, word(group_id="g2")]) == 1
    assert read_credit(path)[:3] == lines
    assert read_credit(path, 2) == lines[:2]
    assert path.stat().st_mode & 0o777 == 0o600


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


def test_a_difference_is_of_means_and_there_is_none_without_a_reward_on_both_sides():
    assert row().difference == 0.5
    assert row(rewards_other=()).difference is None


def test_a_word_is_known_by_what_is_said_and_where_not_by_when_a_run_says_it_again():
    later = NOW.replace(year=2027)
    assert word(created_at=later).line_id == word().line_id
    assert word(epoch=0, created_at=later).line_id != word(epoch=0).line_id  # a person who says it again means it again
    different = [word(amount=-1.0), word(group_id="g2"), word(contrast=1), word(experience_id="exp-2"), word(run_id="run-2")]
    assert len({word().line_id, *(each.line_id for each in different)}) == 6


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
