"""The repair loop: every refused answer is passed on, a bounded number of times."""

from __future__ import annotations

import pytest

from tfgrpo.rewarders.judge.model import corrected
from tfgrpo.stores.errors import ModelTimeout, RepairExhausted


class Asked:
    """Gives these texts, and keeps what was refused before each of them."""

    def __init__(self, *texts):
        self.texts = list(texts)
        self.told = []

    async def __call__(self, refused):
        self.told.append(refused)
        return self.texts.pop(0)


def whole(text):
    if not text.isdecimal():
        raise ValueError(f"{text} is no number")
    return int(text)


async def test_what_was_refused_is_told_with_the_reasons_until_an_answer_holds():
    ask = Asked("a", "b", "7", "8")
    assert await corrected(whole, ask, 4) == 7
    first, second = ("a", "a is no number"), ("b", "b is no number")
    assert ask.told == [(), (first,), (first, second)]


@pytest.mark.parametrize(("most", "said"), [(1, "after 1 attempt: a is"), (2, "after 2 attempts: b is")])
async def test_an_answer_that_never_holds_is_given_up_with_everything_that_was_said(most, said):
    ask = Asked("a", "b", "7")
    with pytest.raises(RepairExhausted, match=f"no valid number {said} no number") as caught:
        await corrected(whole, ask, most, "number")
    assert [text for text, _ in caught.value.attempts] == ["a", "b"][:most]
    assert len(ask.told) == most


async def test_a_call_that_breaks_is_not_an_answer():
    async def ask(_):
        raise ModelTimeout("late")

    with pytest.raises(ModelTimeout):
        await corrected(whole, ask, 3)
