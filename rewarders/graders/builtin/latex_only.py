"""Is the final answer one piece of LaTeX? Looks at its two ends; never at the formula between them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tfgrpo.rewarders.graders.base import GraderInput, ItemGrader
from tfgrpo.rewarders.graders.records import final_answer

_ENDS: Final = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), (r"\boxed{", "}"))
_ENVIRONMENT: Final = re.compile(r"\\begin\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class LatexOnly(ItemGrader):
    r"""1.0 when the final answer begins and ends as a formula, with something between, else 0.0.

    A formula is ``$…$``, ``$$…$$``, ``\(…\)``, ``\[…\]``, ``\boxed{…}`` or ``\begin{e}…\end{e}``. Only the outermost ends
    count, so that ``$5$ and $6$`` passes.
    """

    def score_one(self, item: GraderInput) -> float:
        """Reward of one item; the record does not count."""
        answer = final_answer(item)
        return 1.0 if answer is not None and _is_formula(answer.strip()) else 0.0


def _is_formula(text: str) -> bool:
    if any(_between(text, left, right) for left, right in _ENDS):
        return True
    environment = _ENVIRONMENT.match(text)
    return environment is not None and _between(text, environment[0], f"\\end{{{environment[1]}}}")


def _between(text: str, left: str, right: str) -> bool:
    return text.startswith(left) and text.endswith(right) and len(text) > len(left) + len(right)
