"""What was answered is on disk before anyone sees it, and is found again by its key; a damaged entry is never an answer."""

import tracemalloc
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.stores.errors import CorruptFile, ModelTimeout
from tfgrpo.stores.files.lines import LineFile, read_objects
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.runs import CallKey, Journal


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "r1" / "journal.jsonl"


ITEM_IDS = st.text(alphabet="ab/#0 ", max_size=6)
ONE = st.integers(0, 1)
ARMS = st.sampled_from(["group", "library"])
GROUPS = st.builds(GroupKey, epoch=ONE, phase=st.just("eval"), arm=ARMS, batch=ONE, item=ITEM_IDS, draw=ONE)
ROLES = st.sampled_from(["rollout", "judge"])
KEYS = st.builds(CallKey, group=GROUPS, rollout=ONE, turn=ONE, role=ROLES, attempt=ONE)


@given(KEYS, KEYS)
def test_different_calls_never_share_a_key_text(one, other):
    assert (one.text("d") == other.text("d")) == (one == other)


LINE = (
    b'{"schema":1,"key":"2/library/3/q/7~1/4/5/rollout/1#0123456789abcdef","kind":"reply",'
    b'"at":"2026-01-02T00:00:00+00:00","payload":{"text":"seven"},"sum":"e58510fe2adfe1c1"}\n'
)


def test_an_answer_is_written_byte_for_byte_like_this_and_read_back(path):
    group = GroupKey(2, "eval", "library", 3, "q/7", draw=1, run="r1")
    key = CallKey(group, rollout=4, turn=5, role="rollout", attempt=1).text("0123456789abcdef99")
    with Journal(path, clock=lambda: datetime(2026, 1, 2, tzinfo=UTC)) as journal:
        assert journal.get(key) is None
        journal.append(key, {"text": "seven"})
        entry = journal.get(key)
    assert path.read_bytes() == LINE
    with Journal(path) as journal:
        assert journal.get(key) == entry
        assert journal.answer(key, lambda payload: payload["text"], final=True) == "seven"


def test_a_failure_is_raised_again_as_what_it_was_until_a_later_reply_counts(path):
    with Journal(path) as journal:
        journal.append_failure("k", "ModelTimeout", "nothing came")
        failure = journal.answer("k", dict, final=False)
        assert isinstance(failure, ModelTimeout)
        assert str(failure) == "nothing came"
        journal.append("k", {"text": "at last"})
    with Journal(path) as journal:
        assert journal.answer("k", dict, final=False) == {"text": "at last"}
        assert (len(journal), len(list(read_objects(journal.path)))) == (1, 2)


@pytest.mark.parametrize("damage", [b"", b'{"half', b"\0" * 40, LINE[:-9]], ids=["none", "half", "zeros", "cut"])
def test_damaged_entries_are_counted_and_asked_again_and_a_replay_leaves_them(path, damage):
    with Journal(path) as journal:
        for key in "abc":
            journal.append(key, {"text": key})
    first, second, third = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(damaged := first + second.replace(b'"b"', b'"x"') + third + damage)
    count = 1 + bool(damage)
    with Journal(path, repair=False) as journal:
        assert len(journal) == 2
    assert path.read_bytes() == damaged
    with Journal(path) as journal:
        assert journal.warning is not None
        assert journal.warning.startswith(f"{count} damaged line")
        assert "of journal.jsonl (2" in journal.warning
        assert journal.warning.endswith("moved to journal.jsonl.torn; those calls are asked again")
        assert [journal.get(key) is not None for key in "abc"] == [True, False, True]
        journal.append("b", {"text": "again"})
    with Journal(path) as journal:
        assert (journal.warning, [entry["key"] for entry in read_objects(journal.path)]) == (None, ["a", "c", "b"])


@pytest.mark.parametrize("entry", [{"key": "k"}, {"key": "k", "kind": "reply", "payload": 7}], ids=str)
def test_an_entry_that_is_no_reply_is_asked_again_or_ends_a_replay(path, entry):
    LineFile(path).append([entry])
    with Journal(path) as journal:
        with pytest.raises(CorruptFile, match="the entry for call k is not a reply"):
            journal.answer("k", lambda payload: payload["text"], final=True)
        assert journal.answer("k", lambda payload: payload["text"], final=False) is None
        assert (str(journal.warning)[:15], journal.get("k")) == ("1 damaged line ", None)


@pytest.mark.untraced
def test_memory_per_entry_is_small_whatever_the_replies(path):
    entry = {"schema": 1, "kind": "reply", "at": "", "payload": {"text": "x" * 200}}
    keys = [f"1/train/0/item-{index}/0/0/rollout/0#0123456789abcdef" for index in range(10_000)]
    LineFile(path).append({"schema": 1, "key": key, **entry} for key in keys)
    tracemalloc.start()
    try:
        journal = Journal(path)
        per_entry = tracemalloc.get_traced_memory()[0] / len(keys)
    finally:
        tracemalloc.stop()
    with journal:
        assert len(journal) == len(keys)
        assert journal.get(keys[-1]) is not None
    assert per_entry <= 170
