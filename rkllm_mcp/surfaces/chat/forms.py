"""Approvals, elicitation forms and a command's questions at the terminal."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from rkllm_mcp.catalogue import Catalogue
from rkllm_mcp.elicitation import FormField, complete_content, fields_of
from rkllm_mcp.errors import UsageError
from rkllm_mcp.events import Approval, Elicitation
from rkllm_mcp.protocols import Decision, ElicitationAnswer
from rkllm_mcp.surfaces.terminal import YELLOW, Terminal, discard_typed, is_interactive

AnswerT = TypeVar("AnswerT")

# A person must be able to read the text to approve; longer text is cut.
SHOWN_CHARS = 4000
DECLINED = ElicitationAnswer("decline")
NO_ANSWER = ElicitationAnswer("cancel")
# Words people type as well, in either language.
_WORDS: Mapping[Decision, Sequence[str]] = {
    "once": ("yes", "once", "1", "はい"),
    "conversation": ("conversation", "2"),
    "always": ("always", "3"),
    "deny": ("", "no", "deny", "4", "いいえ"),
    "never": ("never", "5"),
}
_SPELLINGS: Mapping[str, Decision] = {word: decision for decision, words in _WORDS.items() for word in words}
_ENDINGS = {"/no": DECLINED, "/skip": NO_ANSWER}
# How a server's wish to ask the model is named; see tools.asked.sampling.
_SAMPLING = "sampling:"


@dataclass(eq=False)
class FormPrompt:
    """Approvals and forms at the terminal, in one language, as an ``Approver``; leaving a question refuses it."""

    terminal: Terminal
    # Returns a line, typed after the prompt was seen; None when the person left with Ctrl-C or Ctrl-D.
    ask: Callable[[str], Awaitable[str | None]]
    phrases: Catalogue
    # Discards what was typed before the question was shown.
    forget_typed: Callable[[], None] = discard_typed
    has_left: bool = False  # the person left the last question

    async def approve(self, question: Approval) -> Decision:
        """Return the person's decision about a call or a sampling request."""
        self.forget_typed()
        is_sampling = question.name.startswith(_SAMPLING)
        self.terminal.error(visible(question.reason), YELLOW)
        self._show_values(question.arguments)
        decisions = self.phrases.table("answer.decisions")
        keys: dict[str, Decision] = {key: decision for decision, (key, _) in decisions.items()}
        for key, meaning in decisions.values():
            self.terminal.error(f"  {key}  {meaning}", "")
        prompt = self.phrases.sentence("answer.asks_model" if is_sampling else "answer.run_it")
        spellings: Mapping[str, Decision] = {**_SPELLINGS, **keys}
        return await self._until(prompt, spellings, "/".join(keys)) or "deny"

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Return the person's answer to a server's request."""
        self.forget_typed()
        heading = self.phrases.sentence("answer.asks", server=question.server, message=visible(question.message))
        self.terminal.error(heading, YELLOW)
        choices = self.phrases.table("answer.send_keys")
        if question.url:
            host = urlsplit(question.url).netloc.rpartition("@")[2]
            self.terminal.error(self.phrases.sentence("answer.open_page", host=visible(host)), "")
            self.terminal.error(f"  {visible(question.url)}", "")
            ends = {"y": ElicitationAnswer("accept"), "n": DECLINED, "s": NO_ANSWER}
            answers = {word: ends[choice] for word, choice in choices.items() if choice in ends}
            sentence = self.phrases.sentence("answer.is_done")
            return await self._until(sentence, {**answers, "": NO_ANSWER}, "y/n") or NO_ANSWER
        self.terminal.error(self.phrases.sentence("answer.how"), "")
        content: dict[str, Any] = {}
        while True:
            filling = await self._fill(question.schema, content)
            if isinstance(filling, ElicitationAnswer):
                return filling
            content = filling
            fields = fields_of(question.schema)
            self._show_values(
                {field.title: _spell(content[field.name], field) for field in fields if field.name in content}
            )
            choice = await self._until(self.phrases.sentence("answer.send"), choices, "y/e/n")
            if choice != "e":
                ends = {"y": ElicitationAnswer("accept", content), "n": DECLINED, "s": NO_ANSWER}
                return ends[choice or "s"]

    async def _fill(self, schema: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any] | ElicitationAnswer:
        """Return the typed fields, or the answer that ends the form; Enter repeats a value of ``before``."""
        content: dict[str, Any] = {}
        for field in fields_of(schema):
            current = before.get(field.name, field.default)
            notes = [visible(field.description), self.phrases.table("answer.kinds")[field.kind]]
            if current is not None:
                notes.append(self.phrases.sentence("answer.default", value=visible(_spell(current, field))))
            elif field.required:
                notes.append(self.phrases.sentence("answer.required"))
            joined = "; ".join(filter(None, notes))
            self.terminal.error(f"  {visible(field.title)}{f' ({joined})' if joined else ''}", "")
            for number, choice in enumerate(field.choices, 1):
                self.terminal.error(f"    {number}  {visible(choice.title)}", "")
            while field.name not in content:
                text = await self.ask(f"{visible(field.title)}> ")
                self.has_left = text is None
                if text is None:
                    return NO_ANSWER
                if text.strip() in _ENDINGS:
                    return _ENDINGS[text.strip()]
                if text.strip():
                    try:
                        content[field.name] = field.read(text, self.phrases.table("form.mistakes"))
                    except ValueError as error:
                        self.terminal.error(f"  {visible(str(error))}", YELLOW)
                elif current is not None:
                    content[field.name] = current
                elif field.required:
                    self.terminal.error(f"  {visible(field.title)}: {self.phrases.sentence('answer.required')}", YELLOW)
                else:
                    break
        return complete_content(schema, content)

    def _show_values(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            text = visible(_spell(value))
            if len(text) > SHOWN_CHARS:
                text = f"{text[:SHOWN_CHARS]}{self.phrases.sentence('answer.more', count=len(text) - SHOWN_CHARS)}"
            lines = text.split("\n")
            head = f"    {visible(name)} = {lines[0]}" if len(lines) == 1 else f"    {visible(name)} ="
            more_lines = [f"      {line}" for line in lines] if len(lines) > 1 else []
            self.terminal.error("\n".join([head, *more_lines]), "")

    async def _until(self, prompt: str, answers: Mapping[str, AnswerT], keys: str) -> AnswerT | None:
        """Ask until one of the words of ``answers`` is typed; return None if the person left."""
        while (text := await self.ask(prompt)) is not None:
            # A Japanese keyboard may write it in wide letters.
            word = unicodedata.normalize("NFKC", text).strip().lower()
            if word in answers:
                self.has_left = False
                return answers[word]
            self.terminal.error(self.phrases.sentence("answer.again", keys=keys), YELLOW)
        self.has_left = True
        return None


def visible(text: str) -> str:
    """The text with every character that cannot be seen as its number: a direction override, a zero width, a tag."""
    return "".join(
        char
        if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co")
        else f"\\u{{{ord(char):x}}}"
        for char in text
    )


def _spell(value: Any, field: FormField | None = None) -> str:
    """A value as a person reads it: text as it is, the turns of a conversation as turns, the rest as JSON.

    One of a form's ``field`` is as the form calls it.
    """
    if field is not None:
        titles = {json.dumps(choice.value): choice.title for choice in field.choices}
        if isinstance(value, (list, tuple)):
            return ", ".join(titles.get(json.dumps(item), str(item)) for item in cast("Sequence[Any]", value))
        value = titles.get(json.dumps(value), value)
    if isinstance(value, str):
        return value
    turns = cast("list[Any]", value) if isinstance(value, list) else []
    if turns and all(isinstance(turn, dict) and set(cast("Any", turn)) == {"role", "text"} for turn in turns):
        return "\n".join(f"{turn['role']}: {turn['text']}" for turn in turns)
    return json.dumps(value, ensure_ascii=False)


# Who answers nonsense this often is a program.
_MOST_TRIES = 5
_ANSWERS = {"": True, "y": True, "yes": True, "n": False, "no": False}


@dataclass(frozen=True)
class TerminalApprover:
    """Questions of a command on standard error; standard output stays the command's.

    A question that no person answers raises a UsageError that names the option.
    """

    terminal: Terminal

    def choose(self, question: str, option: str, choices: Sequence[str] = ()) -> str:
        """An answer; a number is taken for the choice in that place."""
        listing = "".join(f"\n  {number}  {choice}" for number, choice in enumerate(choices, 1))
        allowed = f"{option}: {', '.join(choices)}" if choices else option
        for _ in range(_MOST_TRIES):
            answer = self.line(question, allowed, f"{listing}\n> ")
            if answer.isdecimal() and 0 < int(answer) <= len(choices):
                return choices[int(answer) - 1]
            if answer and (not choices or answer in choices):
                return answer
        raise UsageError(f"no answer to: {question} Say it with {option}")

    def confirm(self, question: str, option: str, *, default: bool = True) -> bool:
        """Yes or no; Enter means ``default``."""
        for _ in range(_MOST_TRIES):
            answer = self.line(question, option, f" [{'Y/n' if default else 'y/N'}] ").lower()
            if answer in _ANSWERS:
                return _ANSWERS[answer] if answer else default
        raise UsageError(f"no answer to: {question} Say it with {option}")

    def line(self, question: str, option: str, prompt: str = "") -> str:
        """A line, which may be empty; ``prompt`` is after the question."""
        if not is_interactive():
            raise UsageError(f"{question} Say it with {option}")
        self.terminal.end_line()
        # What was typed before the question was seen does not answer it.
        discard_typed()
        # Trailing blanks are the room before what is typed.
        text = f"{question}{prompt}"
        shown = text.rstrip()
        sys.stderr.write(self.terminal.break_lines(shown) + text[len(shown) :])
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise UsageError(f"no answer; say it with {option}")
        return line.strip()
