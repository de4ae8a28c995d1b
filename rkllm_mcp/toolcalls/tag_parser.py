"""Parser of call bodies in tags: names and text between elements, whose types only a schema defines.

One line break on each side of a value is its frame; the rest stays as written, including entities. CDATA is read where
the format has it. A call with unclosed arguments is read loosely if its own closing tag is in place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from rkllm_mcp.toolcalls.lenient_json import ParsedCall, UnreadableError, read_value
from rkllm_mcp.toolcalls.markers import Markers
from rkllm_mcp.toolcalls.scanners import ScanState, Tags, TagScanner

_ATTRIBUTE = re.compile(r"""([A-Za-z_][\w-]{0,63})\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_CDATA = re.compile(r"<!\[CDATA\[(.*?)(?:\]\]>|\Z)", re.DOTALL)
# Longer than any closing tags with white space between them; only this much of a value's end is searched.
_END_CHARACTERS = 256
# Before an argument: a line, the head of the call or the end of another argument.
_LINE_BEGINS = re.compile(r"(?:\A|[\n>])[ \t]*\Z")
_CLOSING_TAG = re.compile(r"</\w+>\s*\Z")
_ENTITY = re.compile(r"&(lt|gt|amp|quot|apos);")
_ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}


@dataclass(frozen=True)
class _Patterns:
    """The regular expressions of one format in tags."""

    opener: re.Pattern[str]  # the beginning of an argument
    argument: re.Pattern[str]  # one whose closing tag may be missing or misspelled: it ends where the next begins
    closer: re.Pattern[str]  # a closing tag of an argument at the end of its value, which may be misspelled
    closing_line: re.Pattern[str]  # a closing tag of an argument with its line at the end of a value
    element: re.Pattern[str]  # a tag of an argument, in the spelling of any format; a closing one has the group
    end: re.Pattern[str]  # the call's closing tags at the end of the text
    debris: re.Pattern[str]  # remains of heads and closing tags once names and values are removed


@dataclass(frozen=True)
class TagReader:
    """Parser of one call in tags."""

    tags: Tags  # its elements
    repeats: bool = False  # the last value of an argument given twice counts; otherwise a call like that is unreadable

    def __call__(self, body: str) -> tuple[ParsedCall, ...]:
        """Parse ``body``, from ``Tags.begins`` to the end of the call.

        The project's own style, Qwen3-Coder's, MiniCPM5's, MiniMax's, GLM's.
        """
        scanner = TagScanner(self.tags, Markers(()))
        verdict, _ = scanner.scan(body, 0)
        if verdict is not ScanState.COMPLETE:
            return (self._loose(body),)
        # The text of the call that is in no argument.
        begin = scanner.head[1]
        outside = body[begin:]
        for head, value in reversed(scanner.arguments):
            outside = outside[: head[0] - begin] + outside[value[1] - begin :]
        ended = self._strip_end(outside)
        outside = self._patterns.debris.sub("", outside if ended is None else ended).strip()
        name, outside = (self._name(body[slice(*scanner.head)]), outside) if self.tags.begins else (outside, "")
        if not name or (not self.tags.begins and len(name.split()) > 1):
            return (self._loose(body),)
        pairs = ((body[slice(*head)], body[slice(*value)]) for head, value in scanner.arguments)
        values = self._values(pairs, repeats=self.repeats)
        if not outside:
            return (ParsedCall(name, values, as_text=True, mentions=self._mentions(values)),)
        if not values and outside.startswith("{"):
            return (ParsedCall(name, read_value(outside).value, repaired=True),)
        raise UnreadableError(f"there is text outside {self.tags.arguments[0].opens}…>")

    def _values(self, pairs: Iterable[tuple[str, str]], *, repeats: bool) -> dict[str, str]:
        """Return the arguments, given as heads and texts between the tags, without the frames of their values."""
        arguments = [(self._name_of(head), text, self._closed_once(text)) for head, text in pairs]
        if not all(key for key, _, _ in arguments):
            raise UnreadableError("an argument has no name")
        # A model that writes closing tags twice does so after every argument.
        is_habit = len(arguments) > 1 and all(text != once for _, text, once in arguments)
        values: dict[str, str] = {}
        for key, text, once in arguments:
            if key in values and not repeats:
                raise UnreadableError("an argument is given twice")
            if text != once and not is_habit and len(once.strip().splitlines()) != 1:
                # It may be the last line of a file, or all of it.
                raise UnreadableError(
                    f"'{key}' has {self.tags.arguments[0].closes}> twice at its end; if one of them is a part of "
                    "the value, write an empty line behind that one"
                )
            # The frame is the first line break, and then the last.
            begin = 2 if once.startswith("\r\n") else once.startswith("\n")
            end = len(once) - (0 if not begin else 2 if once.endswith("\r\n") else once.endswith("\n"))
            values[key] = once[begin : max(begin, end)]
            if self.tags.cdata and "<![CDATA[" in once:
                bare = once.strip()
                # White space around a CDATA section is its frame.
                is_cdata = bare.startswith("<![CDATA[") and bare.endswith("]]>")
                values[key] = _CDATA.sub(r"\1", bare if is_cdata else values[key])
        return values

    def _closed_once(self, value: str) -> str:
        """Return a value without the closing tags at its end to which it has no opening tag."""
        frame = "\n" if value.startswith(("\n", "\r\n")) else ""
        while (shorter := self._patterns.closing_line.sub(frame, value)) != value:
            tags = [match[1] for match in self._patterns.element.finditer(value)]
            if tags.count("") >= tags.count("/"):
                break
            value = shorter
        return value

    def _strip_end(self, text: str) -> str | None:
        """Return ``text`` without the call's closing tag; None if it has none."""
        start = max(0, len(text) - _END_CHARACTERS)
        match = self._patterns.end.search(text, start)
        return None if match is None else text[: match.start()]

    @cached_property
    def _patterns(self) -> _Patterns:
        tags = self.tags
        any_opens = "|".join(re.escape(argument.opens) for argument in tags.arguments)
        any_closes = "|".join(re.escape(argument.closes) for argument in tags.arguments)
        names = "|".join(re.escape(argument.closes.removeprefix("</")) for argument in tags.arguments)
        opens = "|".join(
            f"{re.escape(argument.opens)}{f'(?={argument.behind})' if argument.behind else ''}"
            for argument in tags.arguments
        )
        # If the head ends with its own tag (GLM's <arg_value>), that may be missing; the end of the key is required.
        head = r"([^<]*</\w+>)\s*(?:" + tags.head_ends + ")?" if tags.has_long_heads else r"([^<>]*)>"
        # In the middle of a line a value mentions an argument, unless a closing tag is before it.
        begins = rf"(?:{opens})" if tags.has_long_heads else rf"(?:(?<=\n)|(?<=>))[ \t]*(?:{opens})"
        head_debris = r"\A\s*/?>|" if tags.begins else ""
        closed = "|".join(rf"{re.escape(argument.closes)}\s*>" for argument in tags.arguments)
        return _Patterns(
            opener=re.compile(rf"(?:{opens}){head}"),
            argument=re.compile(rf"(?:{opens}){head}(.*?)(?={begins}|\Z)", re.DOTALL),
            closer=re.compile(rf"(?:{any_closes})\w*\s*>?\s*\Z"),
            closing_line=re.compile(rf"\n?[ \t]*(?:{any_closes})\s*>?[ \t]*\r?(?:\n[ \t]*)?\Z"),
            element=re.compile(rf"<(/?)(?:{names})(?=[\s=/>])"),
            end=re.compile("(?:" + "|".join(rf"{re.escape(end)}\s*>?\s*" for end in tags.ends) + r")+\Z"),
            debris=re.compile(rf"{head_debris}{closed}|{any_opens}(?:\s*>)?"),
        )

    def _loose(self, body: str) -> ParsedCall:
        """Parse a body whose arguments are not closed properly but which has its own closing tag."""
        ended, begins = self._strip_end(body), self.tags.begins
        if ended is None:
            raise UnreadableError("the call is not closed")
        start = body.find(begins) + len(begins)
        first = self._patterns.argument.search(ended, start)
        if first is None or (begins and begins in body[start:]):
            raise UnreadableError("an argument is not closed")
        head = ended[start : first.start()].strip()
        arguments = list(self._patterns.argument.finditer(ended, start))
        fresh = (
            _LINE_BEGINS.search(ended, max(0, match.start() - _END_CHARACTERS), match.start()) for match in arguments
        )
        inline = [
            self._name_of(match[1]) for match, begins_line in zip(arguments, fresh, strict=True) if not begins_line
        ]
        values = self._values(
            ((match[1], self._patterns.closer.sub("", match[2])) for match in arguments), repeats=False
        )
        name = self._name(head) if begins else head
        return ParsedCall(
            name, values, repaired=True, as_text=True, mentions=(*values, *self._mentions(values)), inline=tuple(inline)
        )

    def _mentions(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """Return the keys of a call whose values have openers of arguments, and the names in those; usually none."""
        names: list[str] = []
        for text in values.values():
            # A value that has whole arguments of its own is what it seems to be.
            if not any(argument.closes in text for argument in self.tags.arguments):
                names += filter(None, (self._name_of(match[1]) for match in self._patterns.opener.finditer(text)))
        return (*values, *names) if names else ()

    def _name(self, head: str) -> str:
        bare = head.removesuffix(self.tags.arguments[0].opens).strip().removesuffix(">").strip()
        name = _attribute(head) if self.tags.quoted else bare
        if not name:
            raise UnreadableError("the call has no name")
        return name

    def _name_of(self, head: str) -> str:
        """Return the name in the head of an argument, or nothing."""
        bare = _CLOSING_TAG.sub("", head.removesuffix(self.tags.head_ends)).strip()
        return _attribute(head) if self.tags.quoted else bare


def _attribute(head: str) -> str:
    """Return the ``name`` in a head, or nothing. A quote in it can only be written as an entity."""
    for match in _ATTRIBUTE.finditer(head):
        if match.group(1) == "name":
            value = next(group for group in match.groups()[1:] if group is not None)
            return _ENTITY.sub(lambda entity: _ENTITIES[entity.group(1)], value).strip()
    return ""
