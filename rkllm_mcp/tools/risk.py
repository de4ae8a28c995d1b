"""Classify the risk of a tool call from the tool's name, hints and arguments: delete, execute, send, change.

* Hints of an untrusted server can only raise the risk: its ``readOnlyHint`` is ignored, its ``destructiveHint`` counts
  unless the same tool is also marked read-only.
* A name is split into words (``delete_file``, ``deleteFile``, ``ファイル削除``). If it begins with a reading verb such
  as ``get`` or ``list``, only deleting verbs count: ``list_commands`` runs nothing, ``find_and_replace`` writes.
* Descriptions are not used: the server writes them.
* An unrecognised name indicates no risk, which is not the same as known to read only: see ``is_known_to_read``.

The words are our choice, after the tool names of some forty public servers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from rkllm_mcp.messages import ToolSpec

Risk: TypeAlias = Literal["delete", "execute", "send", "change"]

_ORDER: tuple[Risk, ...] = ("delete", "execute", "send", "change")
"""Highest risk first."""


# English words and parts of Japanese names, by the risk that they indicate, or ``read``.
_BY_RISK: dict[str, tuple[list[str], tuple[str, ...]]] = {}
for _line in Path(__file__).with_name("risk_words.txt").read_text("utf-8").splitlines()[1:]:
    _risk, _english, _japanese = re.split("[:|]", _line)
    _BY_RISK[_risk] = _english.split(), tuple(_japanese.split())
_WORDS: Mapping[str, Risk] = {word: risk for risk in _ORDER for word in _BY_RISK[risk][0]}
_READING, _JAPANESE_READING = frozenset(_BY_RISK["read"][0]), _BY_RISK["read"][1]
_JOINT = re.compile(r"\b(?:and|or|then)\b")
# For a permission, a reading verb has to be unmistakable: these are also nouns or mean a change ("log_workout").
_AMBIGUOUS_READING = frozenset({"log", "load", "watch", "status", "info"})
# Words that are never nouns: after a reading verb they are a second action ("read_write_file").
_ONLY_VERBS = frozenset(
    {"write", "edit", "send", "create", "insert", "append", "modify", "rename", "replace", "execute", "exec", "pay"}
)
_PARTICLES = frozenset({"in", "out", "off"})  # "check_in", "check_out", "check_off_item"
_JAPANESE_READS = re.compile(
    rf"^(?:{'|'.join(_JAPANESE_READING)})(?:する|します)?(?:$|[_\-./])"
    rf"|(?<!非)(?:{'|'.join(_JAPANESE_READING)})(?:する|します)?$"
)
_JAPANESE_JOINTS = re.compile("して|し、|てから|後に|[と・、]|および|及び|または|又は|かつ")
# "add" alone is arithmetic.
_HARMLESS_ALONE = frozenset({"add"})

# Verbs that are also nouns: "run_id", "order_status" and "last_run" do not run or order anything.
_NOUNS = frozenset({"run", "trigger", "order", "command", "commands", "script", "shell"})
_ABOUT = "time id ids number count name names type types list history log logs status state info details help"
_BEHIND_A_NOUN = frozenset(_ABOUT.split())
_BEFORE_A_NOUN = frozenset({"last", "latest", "next", "previous", "current", "recent"})

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[A-Za-z]+")

# SQL statements that change a database, at any position: after a WITH, a comment or another statement.
_SQL_DELETES = re.compile(
    r"\b(?:delete\s+from|drop\s+(?:table|database|schema|view|index|trigger|user)|truncate\s+table)\b", re.IGNORECASE
)
_SQL_CHANGES = re.compile(
    r"\b(?:insert\s+(?:or\s+\w+\s+)?into|replace\s+into|update\s+\S+\s+set|alter\s+(?:table|user|database)"
    r"|create\s+(?:table|database|schema|view|index|trigger|user)|attach\s+database)\b",
    re.IGNORECASE,
)
_SQL_ARGUMENTS = frozenset({"sql", "query", "statement", "q"})


def risk_of(tool: ToolSpec, arguments: Mapping[str, Any], *, trusted: bool) -> Risk | None:
    """Return the highest risk of a call; None if nothing indicates a change.

    SQL in ``arguments`` is classified by its statements. ``trusted`` also believes hints that lower the risk.
    """
    texts = [value for name, value in arguments.items() if name.lower() in _SQL_ARGUMENTS and isinstance(value, str)]
    by_arguments: Risk | None = "change" if any(_SQL_CHANGES.search(text) for text in texts) else None
    if any(_SQL_DELETES.search(text) for text in texts):
        by_arguments = "delete"
    # Home Assistant sets both hints on read-only tools; MCP defines destructiveHint only without readOnlyHint.
    if tool.destructive and not tool.read_only:
        return "delete"
    if trusted and tool.read_only:
        return by_arguments
    risks = {risk_of_name(tool.original_name), by_arguments, "change" if tool.read_only is False else None}
    return next((risk for risk in _ORDER if risk in risks), None)


def is_known_to_read(tool: ToolSpec, arguments: Mapping[str, Any], *, trusted: bool) -> bool:
    """Return True if a call is known to change nothing.

    Either a trusted server says so, or the name begins with a reading verb (a Japanese name may end with it) and
    contains no connector; in both cases nothing in name, hints and arguments indicates a change.
    """
    if risk_of(tool, arguments, trusted=trusted) is not None:
        return False
    if trusted and tool.read_only is True:
        return True
    name = tool.original_name
    if "&" in name or "+" in name:
        return False
    if _JAPANESE_READS.search(name):
        return _JAPANESE_JOINTS.search(name) is None
    words = _words(name)
    if not words or words[0] not in _READING - _AMBIGUOUS_READING or not _WORD.match(name):
        return False
    return not _JOINT.search(" ".join(words)) and _ONLY_VERBS.isdisjoint(words) and not _PARTICLES & set(words[1:2])


def risk_of_name(name: str) -> Risk | None:
    """Return the highest risk that a tool name indicates."""
    risks: set[Risk | None] = set()
    for part in _JOINT.split(" ".join(_words(name))):
        words = part.split()
        if len(words) == 1 and words[0] in _HARMLESS_ALONE:
            continue
        of_part: set[Risk | None] = set()
        for preceding, word, following in zip(["", *words], words, [*words[1:], ""], strict=False):
            # "run_search" only reads; "run_query" may execute any statement.
            only_reads = word == "run" and following in _READING - {"query"}
            is_noun = word in _NOUNS and (following in _BEHIND_A_NOUN or preceding in _BEFORE_A_NOUN)
            if not only_reads and not is_noun:
                of_part.add(_WORDS.get(word))
        risks |= of_part & {"delete"} if words and words[0] in _READING else of_part
    if not name.endswith(_JAPANESE_READING):
        # Japanese names have no word boundaries.
        risks.update(risk for risk in _ORDER if any(word in name for word in _BY_RISK[risk][1]))
    return next((risk for risk in _ORDER if risk in risks), None)


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(_CAMEL.sub(" ", name))]
