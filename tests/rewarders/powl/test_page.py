"""What docs/process-models.md shows is what the program does."""

import pytest

from tests.support.runs.pages import blocks, page, table
from tfgrpo.rewarders.powl import Operator, PowlError, footprint, parse_text, validate
from tfgrpo.rewarders.powl.model import MAX_DEPTH, MAX_NODES, OPERATORS, walk

PAGE = "docs/process-models.md"


def only(language, holding=""):
    (block,) = [block for block in blocks(PAGE, language) if holding in block.text]
    return block


def test_the_first_model_has_every_operator_that_orders_steps():
    model = parse_text(only("powl").text)
    kinds = {node.kind for node in walk(model) if isinstance(node, Operator)}
    assert kinds == set(OPERATORS) - {"PARALLEL"}
    assert validate(model).findings == ()


def test_the_python_on_the_page_runs():
    for block in blocks(PAGE, "python"):
        exec(compile(block.text, PAGE, "exec"), {})


def test_the_three_footprints_are_those_of_the_program():
    heading, *rows = only("text", "block").text.splitlines()
    starts = [heading.index(mode) for mode in ("block", "direct", "order")]
    model = parse_text("SEQUENCE(a, PARALLEL(b, c), d)")
    for mode, begin, end in zip(("block", "direct", "order"), starts, [*starts[1:], None], strict=True):
        labels, *lines = [row[begin:end].split() for row in rows]
        signs = {(line[0], label): sign for line in lines for label, sign in zip(labels, line[1:], strict=True)}
        shown = footprint(model, mode)
        assert {pair for pair, sign in signs.items() if sign == "→"} == shown.direct_succession
        assert {pair for pair, sign in signs.items() if sign == "∥"} == shown.concurrency
        assert {pair for pair, sign in signs.items() if sign == "#"} == shown.exclusive
        assert {pair[::-1] for pair, sign in signs.items() if sign == "←"} == shown.direct_succession


def test_the_error_on_the_page_is_the_one_that_is_raised():
    with pytest.raises(PowlError) as caught:
        parse_text("SEQUENCE(a,\n  XOR(b, (c)))")
    assert str(caught.value) == only("text", "parenthesis").text.rstrip("\n")


def test_every_operator_and_limit_is_on_the_page():
    rows = table(page(PAGE), "operator")
    assert [row[0].strip("`").partition("(")[0] for row in rows] == list(OPERATORS)
    assert isinstance(parse_text(rows[-1][0].strip("`")), Operator)
    assert f"more than {MAX_DEPTH} operators inside each other or {MAX_NODES:,} nodes" in page(PAGE)


def test_ways_of_writing_a_label_are_as_documented():
    labels = [parse_text(f"XOR({row[0].strip('`')})").children[0].label for row in table(page(PAGE), "written")]
    assert labels == ["check_credit", "check credit, then ship", "a (b\nc"]
