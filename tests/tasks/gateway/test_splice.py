"""Single values of a JSON object change and all else stays; events are the same however a stream is cut."""

import json
import re
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.tasks.gateway.call import data_of, events_in, whole_events
from tfgrpo.tasks.gateway.dialects import Document

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
VALUES = st.recursive(
    SCALARS | TEXTS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=5)
SPACES = st.text(" \t\r\n", max_size=3)


FORMS = st.fixed_dictionaries({"ensure_ascii": st.booleans(), "indent": st.sampled_from([None, 0, 3])})


@given(value=OBJECTS, form=FORMS, around=SPACES, name=st.sampled_from(["", "a", "model", "é"]), new=TEXTS | SCALARS)
def test_an_unchanged_document_is_the_bytes_that_came_and_a_set_member_the_only_change(value, form, around, name, new):
    text = f"{around}{json.dumps(value, **form)}{around}"
    document = Document(text.encode())
    assert document.value == value
    assert document.encode() == text.encode()
    known = document.members.get(name)
    document.set(name, new)
    changed = document.encode().decode()
    assert json.loads(changed) == {**value, name: new}
    if known is not None:
        assert changed.startswith(text[: known.start])
        assert changed.endswith(text[known.end :])


def test_spelling_and_order_around_a_change_stay():
    raw = b' {"b":1.50e+0,\t"messages" : [ {"role":"system","content":"\\u00e9\\/x" , "n":1.0} ] ,"a":"\\ud83d\\ude00"}\n'
    document = Document(raw)
    messages = document.members.get("messages")
    assert messages is not None
    [message] = document.elements(messages)
    content = document.member_of(message, "content")
    assert content is not None
    document.extend(content, 'say "so"')
    document.set("stream_options", {"include_usage": True})
    assert document.encode() == (
        b' {"b":1.50e+0,\t"messages" : [ {"role":"system","content":"\\u00e9\\/x\\n\\nsay \\"so\\"" , "n":1.0} ] ,'
        b'"a":"\\ud83d\\ude00","stream_options":{"include_usage":true}}\n'
    )


BROKEN = ['{"a"}', '{"a":}', '{"a":1,}', '{"a":1]', '{"a":1}x', "{a:1}", "{1:2}", "", "{", "[]", "7", '{"a":' + "[" * 100_000]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_what_is_no_json_object_is_refused(text):
    with pytest.raises(ValueError, match=r"JSON|Expecting|double quotes"):
        Document(text.encode())


def test_what_is_no_utf_8_is_refused():
    with pytest.raises(UnicodeDecodeError):
        Document(b'{"a":"\xff"}')


BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?=[^\n])){2}")
PIECES = st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"data: x", b"event: y", b":", b"\xc3\xa9"]), max_size=24)


@given(pieces=PIECES, cuts=st.lists(st.integers(0, 80), max_size=12))
def test_chunks_make_no_difference(pieces, cuts):
    stream = b"".join(pieces)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pending = bytearray()
    blocks = [whole_events(pending, stream[start:end]) for start, end in pairwise(places)]
    assert b"".join(blocks) + pending == stream
    assert events_in(b"".join(blocks) + pending) == events_in(stream)
    assert all(BLANK_LINE.search(block + b"-") for block in blocks if block)
    assert BLANK_LINE.search(pending) is None


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_end_of_the_standard_is_read(end):
    whole = f": ping{end}{end}event: a{end}data: 1{end}data:2{end}{end}data: 3{end}{end}"
    stream = f"{whole}data: cut".encode()
    pending = bytearray()
    assert (whole_events(pending, stream), pending) == (whole.encode(), b"data: cut")
    assert [data_of(event) for event in events_in(stream)] == [b"", b"1\n2", b"3", b"cut"]


def test_a_long_event_in_many_chunks_takes_time_in_proportion():
    pending, chunk = bytearray(), b"x" * 4096
    began = time.process_time()
    for _ in range(4096):
        assert whole_events(pending, chunk) == b""
    assert (len(whole_events(pending, b"\n\n")), pending) == (4096 * 4096 + 2, b"")
    assert time.process_time() - began < 1.5
