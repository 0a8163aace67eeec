"""Grader of well-formed XML with the right root tag.

Text of language models is untrusted: no external entity is loaded, no tree is built, and expat limits the expansion of
entities (since release 2.4.1; with an older one, a text that declares entities counts as no XML).
"""

from __future__ import annotations

import pyexpat
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from xml.etree.ElementTree import ParseError, XMLParser

from tfgrpo.rewarders.graders.builtin.schema_grader import SchemaGrader, fenced_block

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
ENTITIES_ARE_LIMITED: Final = pyexpat.version_info >= (2, 4, 1)


@dataclass(frozen=True, slots=True)
class XmlSchema(SchemaGrader):
    """1.0 for well-formed XML whose root has the schema's ``root_tag``; 0.9 of it from a fenced block.

    Another root 0.8; no string ``root_tag`` in the schema 0.5; not well-formed 0.0. Case counts, and a namespace is part
    of the tag. Text with a lone surrogate, which is no character of XML, scores 0.0.
    """

    def fit(self, text: str, schema: Mapping[str, Any]) -> float:
        """Return the reward of a text."""
        share, root = 1.0, _root_tag(text)
        if root is None and not _SURROGATE.search(text):
            share, root = 0.9, _root_tag(fenced_block(text) or "")
        if root is None:
            return 0.0
        wanted = schema.get("root_tag")
        return share * (0.5 if not isinstance(wanted, str) else 1.0 if root == wanted else 0.8)


class _Root:
    """Parser target that keeps the first tag. Without a ``data`` method the parser builds no text."""

    def __init__(self) -> None:
        self.tag: str | None = None

    def start(self, tag: str, _attributes: dict[str, str]) -> None:
        if self.tag is None:
            self.tag = tag


def _root_tag(text: str) -> str | None:
    """Return the tag of the root element; None when the text is not well-formed."""
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
