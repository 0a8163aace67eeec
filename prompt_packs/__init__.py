"""Prompt packs: stamped instructions of actors and learning roles, and the lessons that are added to them."""

from tfgrpo.prompt_packs.inject import lessons_in, merge_experiences
from tfgrpo.prompt_packs.stamps import StampVerifier, load_prompt_pack

__all__ = [
    "StampVerifier",
    "lessons_in",
    "load_prompt_pack",
    "merge_experiences",
    "models",
    "safety",
    "stamps",
]
