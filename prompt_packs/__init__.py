"""Prompt packs: stamped instructions of actors and learning roles, and the lessons that are added to them."""

from tfgrpo.prompt_packs.inject import MergedPrompt, merge_experiences, render_pack
from tfgrpo.prompt_packs.loader import (
    SHIPPED_ROOT,
    InstructionSet,
    known_packs,
    load_instruction_set,
    load_pack,
    load_prompt_pack,
)
from tfgrpo.prompt_packs.models import LoadedPack, PromptPackManifest
from tfgrpo.prompt_packs.safety import Rejection, ScreenedLesson, screen_lesson
from tfgrpo.prompt_packs.stamping import stamp_pack
from tfgrpo.prompt_packs.stamps import StampVerifier, approved_stamps, compute_stamp, in_force, pack_stamp, verify_pack
from tfgrpo.prompt_packs.templating import TEMPLATE_FIELDS, render_template

__all__ = [
    "SHIPPED_ROOT",
    "TEMPLATE_FIELDS",
    "InstructionSet",
    "LoadedPack",
    "MergedPrompt",
    "PromptPackManifest",
    "Rejection",
    "ScreenedLesson",
    "StampVerifier",
    "approved_stamps",
    "attacks",
    "compute_stamp",
    "in_force",
    "known_packs",
    "load_instruction_set",
    "load_pack",
    "load_prompt_pack",
    "merge_experiences",
    "pack_stamp",
    "render_pack",
    "render_template",
    "screen_lesson",
    "stamp_pack",
    "verify_pack",
]
