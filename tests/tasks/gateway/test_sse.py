"""Events are the same however the stream is cut into chunks, and no byte is lost."""

from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.tasks.gateway.relay import EventReader, data_of, events_in

BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?=[^\n])){2}")
PIECES = st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"data: x", b"event: y", b":", b"\xc3\xa9"]), max_size=24)


@given(pieces=PIECES, cuts=st.lists(st.integers(0, 80), max_size=12))
def test_chunks_make_no_difference(pieces, cuts):
    stream = b"".join(pieces)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    reader = EventReader()
    blocks = [reader.feed(stream[start:end]) for start, end in pairwise(places)]
    assert b"".join(blocks) + reader.rest() == stream
    assert events_in(b"".join(blocks) + reader.rest()) == events_in(stream)
    assert all(BLANK_LINE.search(block + b"-") for block in blocks if block)
    assert BLANK_LINE.search(reader.rest()) is None


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_end_of_the_standard_is_read(end):
    whole = f": ping{end}{end}event: a{end}data: 1{end}data:2{end}{end}data: 3{end}{end}"
    stream = f"{whole}data: cut".encode()
    reader = EventReader()
    assert (reader.feed(stream), reader.rest()) == (whole.encode(), b"data: cut")
    assert [data_of(event) for event in events_in(stream)] == [b"", b"1\n2", b"3", b"cut"]


def test_a_long_event_in_many_chunks_takes_time_in_proportion():
    reader, chunk = EventReader(), b"x" * 4096
    began = time.process_time()
    for _ in range(4096):
        assert reader.feed(chunk) == b""
    assert (len(reader.feed(b"\n\n")), reader.rest()) == (4096 * 4096 + 2, b"")
    assert time.process_time() - began < 1.5
