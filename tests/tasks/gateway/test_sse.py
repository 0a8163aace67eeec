"""Events are the same however the stream is cut into chunks, and no byte is lost."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.tasks.gateway.sse import EventReader, data_of

PIECES = st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"data: x", b"event: y", b":", b"\xc3\xa9"]), max_size=24)


@given(pieces=PIECES, cuts=st.lists(st.integers(0, 80), max_size=12))
def test_chunks_make_no_difference(pieces: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(pieces)
    whole = EventReader()
    expected = whole.feed(stream)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    cut_up = EventReader()
    events = [event for start, end in pairwise(places) for event in cut_up.feed(stream[start:end])]
    assert events == expected
    assert cut_up.rest() == whole.rest()
    assert b"".join(events) + cut_up.rest() == stream


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_end_of_the_standard_is_read(end: str) -> None:
    stream = f": ping{end}{end}event: a{end}data: 1{end}data:2{end}{end}data: 3{end}{end}data: cut".encode()
    reader = EventReader()
    assert [data_of(event) for event in reader.feed(stream)] == [b"", b"1\n2", b"3"]
    assert reader.rest() == b"data: cut"


def test_a_long_event_in_many_chunks_takes_time_in_proportion() -> None:
    reader, chunk = EventReader(), b"x" * 4096
    began = time.process_time()
    for _ in range(4096):
        assert reader.feed(chunk) == []
    [event] = reader.feed(b"\n\n")
    assert (len(event), reader.rest()) == (4096 * 4096 + 2, b"")
    assert time.process_time() - began < 1.5
