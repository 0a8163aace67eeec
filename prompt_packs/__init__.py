"""Prompt packs: stamped instructions of actors and learning roles, and the lessons that are added to them."""

from tfgrpo.prompt_packs.stamps import StampVerifier, lessons_in, load_prompt_pack, merge_experiences

__all__ = ["StampVerifier", "lessons_in", "load_prompt_pack", "merge_experiences", "models", "safety", "stamps"]
