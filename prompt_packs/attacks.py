"""Find prompt injections in a lesson: instructions to the reader, markup, secrets and addresses.

Patterns are matched on a folded copy (compatibility forms, look-alike letters, case, spelled-out letters), so that
disguised text is found too.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal, NamedTuple, TypeAlias

AttackRule: TypeAlias = Literal["markup", "order", "secret", "address", "answer"]


class Attack(NamedTuple):
    """The reason for people and the rule for code."""

    reason: str
    rule: AttackRule


_LOOK_ALIKES = {
    ord(shown): meant
    for meant, group in {
        "a": "\u0430\u03b1", "c": "\u0441", "d": "\u0501", "e": "\u0435\u03b5", "g": "\u0261", "h": "\u04bb",
        "i": "\u0456\u03b9\u0131", "j": "\u0458", "k": "\u03ba", "l": "\u04cf", "n": "\u0578", "o": "\u043e\u03bf",
        "p": "\u0440\u03c1", "q": "\u051b", "s": "\u0455", "t": "\u03c4", "u": "\u03c5\u057d", "v": "\u03bd",
        "w": "\u051d", "x": "\u0445\u03c7", "y": "\u0443", "'": "\u2018\u2019", '"': "\u201c\u201d",
        "-": "\u2010\u2011\u2012\u2013\u2014\u2212", "<": "\u2039\u2329\u3008", ">": "\u203a\u232a\u3009",
    }.items()
    for shown in group
}  # fmt: skip
_LEET = str.maketrans("0134578@$", "oieastbas")
_MIXED_WORD = re.compile(r"(?=\w*[a-z])(?=[\w@$]*[\d@$])[\w@$]{4,}")
_SPELLED_OUT = re.compile(r"(?<![^\W_])(?:[^\W\d_][ .\-_*]){3,}[^\W\d_](?![^\W_])")

_ROLE = r"(?:system|assistant|user|human|developer|tool|function)"
_STRUCTURE = (
    rf"(?:{_ROLE}|lessons?|instructions?|prompts?|messages?|im_start|im_end|inst|sys|think|script|iframe|img|style)"
)
_TEXTS = (
    r"(?:instructions?|prompts?|guidelines?|directions|directives?|commands?|orders|restrictions?|guardrails?|"
    r"safeguards?)"
)
_EARLIER = (
    r"(?:previous|previously|prior|above|earlier|preceding|foregoing|existing|original|initial|former|your|system|"
    r"safety|developer)"
)
_DROP = (
    r"(?:ignor(?:e|es|ing)|disregard(?:ing)?|forget(?:ting)?|overrid(?:e|ing)|bypass(?:ing)?|discard(?:ing)?|"
    r"stop (?:following|obeying)|(?:do not|don't|never) (?:follow|obey))"
)
_QUOTED = r"(?! (?:that )?(?:are |is |you )?(?:found|seen|hidden|embedded|contained|inside|within|in|from)\b)"
_LEAK = r"(?:reveal|print|repeat|output|leak|disclose|show|share|expose|send|post|exfiltrate|tell)"
_READER = r"(?:ai|llm|language model|model|assistant|grader|judge|curator|reader|agent)s?"

_MARKUP = (
    r"tfgrpo-stamp|<!--|-->|sha256:|```|\]\]>|#{2,}",
    r"<\||\w\|>|<</?sys>>|\[/?(?:inst|system)\]|</",
    rf"<\s*/?\s*{_STRUCTURE}\b[^<]*>",
    rf"(?:^|[.;!?]\s+|#\s*|\*\*){_ROLE}(?: (?:message|prompt|note|override))?(?:\*\*)?\s*:",
)
_DROPPED_ORDERS = (
    rf"\b{_DROP}\b(?: \w+){{0,3}}? {_EARLIER}\b(?: \w+){{0,3}}? (?:{_TEXTS}|messages?|context)\b",
    rf"\b{_DROP} (?:(?:all|any|the|these|those|every|each|other|of|your) ){{0,3}}{_TEXTS}\b{_QUOTED}",
    (
        rf"\b{_DROP} (?:(?:all|any|of) ){{0,2}}(?:the|your|previous|prior|system|safety|existing) rules\b"
        r"(?! (?:of|for|about)\b)"
    ),
    rf"\b{_DROP} all rules\b",
    (
        rf"\b{_DROP} (?:everything|anything|all|what(?:ever)?)(?: \w+){{0,3}}? "
        r"(?:above|before|earlier|previously|told|said)\b"
    ),
    r"\bignor\w+ (?:\w+ ){0,4}?(?:instrucciones|instrucoes|istruzioni|anweisungen|regeln|instructions precedentes)\b",
    r"(?:忽略|無視|无视)[^。.]{0,16}(?:指令|指示|规则|規則|命令)",
)
_NEW_ROLES = (
    r"\byou are (?:now|no longer|free from|dan|an? (?:unrestricted|different|new|evil|helpful))\b",
    r"\bpretend (?:to be|you|that you)\b|\brole-?play as\b|\bjailbreak\w*|\bdo anything now\b|\bdeveloper mode\b",
    r"(?:^|[.;:!,]\s*|\byou (?:must|should|will|shall) (?:now )?)(?:now )?act as (?:an?|if you|the)\b",
    r"\bfrom (?:now|this (?:moment|point)) on(?:wards?)?\b",
    r"\bnew (?:system )?(?:instructions?|orders)(?: (?:are|follow)|\s*:)",
    r"\byour (?:new|real|true|actual|secret) (?:task|goal|job|role|mission|objective|purpose|instructions?)\b",
    rf"\b(?:dear|attention|hey|note to|message to) (?:the |all )?{_READER}\b",
)
_MISUSES = (
    (
        rf"(?<!never )(?<!not )(?<!n't )\b{_LEAK}\b(?: \w+){{0,4}}? "
        r"(?:(?:your|hidden|these|above) instructions|prompt|api[ _-]?keys?|passwords?|secrets?|credentials?)\b"
    ),
    r"\b(?:system|hidden) prompt\b|\bdeveloper message\b",
    (
        r"\b(?:give|assign|award|grant|score|grade|rate|mark)\b(?: \w+){0,5}? (?:correct regardless|"
        r"(?:full|maximum|maximal|highest|perfect|top) (?:score|reward|mark|grade|point|credit(?! note))s?)\b"
    ),
    r"\brm -[rf]{1,2}\b|\b(?:curl|wget) \S*[/.]|\bsudo \w|\b(?:eval|exec|os\.system|subprocess\.\w+)\s*\(",
    r";\s*drop table\b",
    (
        r"\b(?:always|only|just|simply) (?:answer|respond|reply|output|say)(?: with)? [\"']?-?\d+(?:\.\d+)?[\"']?\s*"
        r"(?:$|[.,;!])"
    ),
)
_ANSWERS = (
    r"\banswers?(?: (?:is|was|are|equals|will be|should be))?(?: always| exactly)?\s*[:=]?\s*[-+$\u20ac\u00a3]?\d",
)
_SECRETS = (
    r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[opsru]_\w{20,}|\bgithub_pat_\w{20,}",
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\bAIza[\w-]{30,}|\bhf_[A-Za-z0-9]{20,}|\bglpat-[\w-]{16,}|\bnpm_\w{30,}",
    r"(?i:-----BEGIN|\bPRIVATE KEY\b|\beyJ[\w-]{10,}\.[\w-]{6,}|\bBearer\s+[\w.~+/-]{12,})",
    (
        r"(?i:\b(?:password|passwd|passphrase|pwd|secret|token|api[ _-]?key|credential)s?\s*(?:is|are|was|[:=])\s*)"
        r"(?=\S*\d)(?=\S*[A-Za-z])\S{6,}"
    ),
    r"(?<![\w-])(?=[\w+=-]*\d)(?=[\w+=-]*[a-z])(?=[\w+=-]*[A-Z])[A-Za-z0-9+=-]{24,}(?![\w-])",
    r"\b[0-9a-fA-F]{32,}\b",
)
_ADDRESSES = (
    r"\b(?:https?|hxxps?|ftp|file|wss?|ssh|git|data|javascript)\s*:\s*/|\b(?:javascript|mailto):|\bwww\d?\.",
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    r"\b[a-z0-9-]{2,}(?:\.|\[\.\]|\(dot\)| dot )(?:com|org|edu|gov|xyz)\b(?!\()",
    r"\b[a-z0-9-]{2,}(?:\.|\[\.\])(?:net|io|ai|co|dev|app|ru|cn|me|sh|ly|uk|de|fr|eu|tk|to|info|site)/\S",
    r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])|\blocalhost:\d",
)
_FROM_HERE = r"\bfrom (?:now|this (?:moment|point)) on(?:wards?)?"
_COMMAND = (
    r"(?:rm -[rf]{1,2}|sudo(?: \w+)?|(?:eval|exec|os\.system|subprocess\.\w+)\b(?:\s*\()?|(?:curl|wget)(?: \S+)?)"
)
_QUANTITIES = (
    r"(?:ind(?:ex|ices)|sequence|series|function|list|rows?|columns?|balance|sum|total|loop|terms?|digits?|values?|"
    r"variables?|interval|curve|counter|carry|remainder|sign|slope|price|rate|interest|amounts?|entries|numbers?|units?)"
)
_ADVICE = (
    # A step of a derivation, not a change of role.
    rf"{_FROM_HERE}(?=(?:,? in (?:the|this) \w+)?,? (?:let|assume|suppose|denote|write|call|set) [b-z]\d?\b)",
    rf"{_FROM_HERE}(?=,? (?:in (?:the|this) \w+,? )?(?:the|each|every|both|all) {_QUANTITIES}\b)",
    # A command that is advised against, without an exception that would let it in.
    (
        r"(?:\b(?:never|not)|n't|\bavoid) (?:(?:us|writ|execut|propos|includ|typ)(?:e|ing)|(?:run|put)(?:n?ing|ting)?|"
        rf"(?:call|suggest|recommend|offer)(?:ing)?)?(?: ?(?:an?|the|any|commands?|such as|like)){{0,3}} ?['\"]?{_COMMAND}"
        r"(?![^.;]*\b(?:but|except|besides|other than|only)\b)"
    ),
    (
        r"(?:\b(?:never|not)|n't) pretend (?:that you|you|to be) (?:are |have )?"
        r"(?:sure|certain|know|knew|remember|understand|understood|checked|counted|computed|verified|read|seen)\b"
    ),
    r"\b(?:model|net|module|regex|re|pattern|df)\.(?:eval|exec)\(",
    r"\bprompt (?:ask(?:s|ed) for|requires|wants|demands|needs)\b",
    (
        r"\b(?:ignor|disregard|discard)\w*(?: (?:all|any|the|those|every|each|other|of)){0,3} orders "
        r"(?:(?:that|which) (?:are|were|was|have been) )?"
        r"(?:cancell?ed|returned|refunded|voided|void|unpaid|paid|shipped|delivered|placed|dated)\b"
    ),
    (
        r"\byour (?:real|true|actual) (?:task|goal|objective|purpose) (?:is|may be) (?:\w+ly |often )?"
        r"(?:stated |asked |named )?in the (?:last|first|final) (?:sentence|line|paragraph|question)\b"
    ),
    r"\banswers? \d{1,2}(?:-part| (?:parts?|questions?|sub-?questions?))\b",
)
"""Harmless phrases that resemble an order or an answer. They are removed before matching."""


class _Check(NamedTuple):
    patterns: tuple[re.Pattern[str], ...]
    attack: Attack


def _check(reason: str, rule: AttackRule, *groups: tuple[str, ...]) -> _Check:
    return _Check(tuple(re.compile(pattern) for group in groups for pattern in group), Attack(reason, rule))


_HARMLESS = re.compile("|".join(_ADVICE))
_ON_ORIGINAL = _check("looks like a secret", "secret", _SECRETS)
_ON_FOLDED = (
    _check("prompt markup or a stamp header", "markup", _MARKUP),
    _check("an address", "address", _ADDRESSES),
)
_ON_ORDERS = _check("an order to the reader", "order", _DROPPED_ORDERS, _NEW_ROLES, _MISUSES)
_ON_ANSWERS = _check("states an answer", "answer", _ANSWERS)


def fold(text: str) -> str:
    """Return the text as a reader sees it: case, accents and look-alikes folded, s p e l l e d out letters joined."""
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    plain = "".join(character for character in decomposed if not unicodedata.combining(character))
    joined = _SPELLED_OUT.sub(lambda match: re.sub(r"[ .\-_*]", "", match.group()), plain.translate(_LOOK_ALIKES))
    return " ".join(joined.split())


def attack_in(text: str) -> Attack | None:
    """Return the first attack in a lesson, or None."""
    folded = fold(text)
    unleeted = _MIXED_WORD.sub(lambda match: match.group().translate(_LEET), folded)
    remaining = _HARMLESS.sub(" ", folded)
    subjects = (
        (_ON_ORIGINAL, unicodedata.normalize("NFKC", text)),
        *((check, folded) for check in _ON_FOLDED),
        (_ON_ORDERS, remaining),
        (_ON_ANSWERS, remaining),
        (_ON_ORDERS, _HARMLESS.sub(" ", unleeted)),
    )
    for check, subject in subjects:
        if any(pattern.search(subject) for pattern in check.patterns):
            return check.attack
    return None
