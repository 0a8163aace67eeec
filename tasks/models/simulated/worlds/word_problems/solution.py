"""How is a worked solution written down? Numbered steps that show which way each pitfall went, then the answer."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

from tfgrpo.tasks.models.simulated.roles.success import Mind
from tfgrpo.tasks.models.simulated.worlds.pitfalls.pitfall import Pitfall

_CENT = Decimal("0.01")


def money(value: Decimal) -> Decimal:
    """Rounded to cents, halves away from zero."""
    return value.quantize(_CENT, rounding=ROUND_HALF_UP)


def plain(value: Decimal) -> str:
    """A number without exponent and without needless zeros, to six decimals at most."""
    rounded = value.quantize(Decimal("0.000001"), rounding=ROUND_HALF_UP)
    text = f"{rounded:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


class Sheet:
    """The paper of one attempt. A pitfall that was faced is shown at the next step."""

    def __init__(self, mind: Mind, written: tuple[str, ...] = ()) -> None:
        self._mind = mind
        self._steps = list(written)
        self._written = len(written)
        self._shown: list[str] = []

    def faces(self, pitfall: Pitfall) -> bool:
        """Whether the attempt avoids the pitfall; what it did will be shown."""
        avoided = self._mind.avoids(pitfall)
        self._shown.append(self._mind.pick(pitfall.shown_avoided if avoided else pitfall.shown_hit))
        return avoided

    def step(self, working: str) -> None:
        """Write one step, with what was done about the pitfalls faced since the last one."""
        shown = "; ".join(self._shown)
        self._shown.clear()
        self._steps.append(f"Step {len(self._steps) + 1}: {shown + ': ' if shown else ''}{working}")

    def fresh(self) -> str:
        """The steps written by this sheet, without those it was begun with."""
        return "\n".join(self._steps[self._written :])

    def answered(self, answer: str) -> str:
        """The steps and the answer."""
        return "\n".join([*self._steps, f"Answer: {answer}"])
