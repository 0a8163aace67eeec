"""By which words is a group filed? Its phase, arm and signal: closed sets that every floor spells alike."""

from __future__ import annotations

from typing import Literal, TypeAlias

Phase: TypeAlias = Literal["train", "eval"]
Arm: TypeAlias = Literal["train", "champion", "candidate"]
"""Whose lessons the attempts were shown; in training there is one library only."""
Signal: TypeAlias = Literal["mixed", "all_pass", "all_fail", "flat", "lost"]
"""``lost``: fewer than two scored rollouts, so there is nothing to compare."""
