"""Is the answer well-formed XML with the right root? Looks at the root's tag only.

Text comes from models, so it is read as hostile: nothing outside the text is ever loaded, no tree and no text is built,
and expat stops entities that multiply (since its release 2.4.1; with an older one, a text that declares entities is no XML).
"""

from __future__ import annotations

import pyexpat
import re
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import ParseError, XMLParser

from rewarders.graders.base import GraderInput, ItemGrader
from rewarders.graders.fenced import fenced_block
from rewarders.graders.json_schema import stated_schema
from rewarders.graders.options import flag, number, refuse
from rewarders.graders.records import answer_or_completion

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
ENTITIES_ARE_LIMITED: Final = pyexpat.version_info >= (2, 4, 1)


@dataclass(frozen=True, slots=True)
class XmlSchema(ItemGrader):
    """1.0 for well-formed XML whose root has the tag asked for; 0.9 of it when it had to be dug out of a fenced block.

    ``metadata.schema`` is a JSON object written as a string, with the tag as ``root_tag``. Another root 0.8; no string
    ``root_tag`` in the schema 0.5; not well-formed 0.0. Case counts, and a namespace is part of the tag.
    A lone surrogate is no character of XML: text that holds one is worth 0.0, whatever stands in a fence.
    """

    reward_if_no_schema: float = 0.0
    """Reward when the record has no usable schema."""
    require_answer: bool = False
    """Whether a completion without a final answer gets 0.0, instead of being read as a whole."""

    def __post_init__(self) -> None:
        refuse(number("reward_if_no_schema", self.reward_if_no_schema), flag("require_answer", self.require_answer))

    def score_one(self, item: GraderInput) -> float:
        """Reward of one item."""
        schema = stated_schema(item)
        if schema is None:
            return float(self.reward_if_no_schema)
        text = answer_or_completion(item, require_answer=self.require_answer)
        if text is None:
            return 0.0
        share, root = 1.0, _root_tag(text)
        if root is None and not _SURROGATE.search(text):
            share, root = 0.9, _root_tag(fenced_block(text) or "")
        if root is None:
            return 0.0
        wanted = schema.get("root_tag")
        return share * (0.5 if not isinstance(wanted, str) else 1.0 if root == wanted else 0.8)


class _Root:
    """What the parser calls for every element; keeps the first tag. Without ``data`` no text is ever put together."""

    def __init__(self) -> None:
        self.tag: str | None = None

    def start(self, tag: str, _attributes: dict[str, str]) -> None:
        if self.tag is None:
            self.tag = tag


def _root_tag(text: str) -> str | None:
    """Tag of the root element; None when the text is not well-formed."""
    text = text.strip()
    if not text or text[0] not in "<\ufeff" or (not ENTITIES_ARE_LIMITED and "<!ENTITY" in text):
        return None
    root = _Root()
    parser = XMLParser(target=root)  # noqa: S314  see the first lines of this file
    try:
        parser.feed(text)
        parser.close()
    except (ParseError, ValueError):
        return None
    return root.tag
