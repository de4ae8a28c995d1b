"""The commands of a conversation: ``/help`` and its relatives, one table of them.

A command prints and returns; only ``/prompt``, ``/retry`` and ``/edit`` have the model answer. What fails is a
sentence, and the conversation goes on.
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio

from rkllm_mcp.app.assistant import PromptQuestion
from rkllm_mcp.app.stored import find_conversation, forget_approvals, matching_tools
from rkllm_mcp.conversations.recorder import ask_again, restored_turns, take_back
from rkllm_mcp.errors import RkllmMcpError, UsageError, did_you_mean
from rkllm_mcp.memory.person import find_rows, keep_row
from rkllm_mcp.records import Schedule, StoredConversation
from rkllm_mcp.schedules.rules import describe_moment, read_zone
from rkllm_mcp.schedules.runner import find_schedule, schedule_of_sentence, zone_here
from rkllm_mcp.schedules.runner import resume as resume_schedule
from rkllm_mcp.surfaces.chat.files import named_files
from rkllm_mcp.surfaces.chat.picker import Choice, pick
from rkllm_mcp.surfaces.chat.render import transcript
from rkllm_mcp.surfaces.chat.state import SETTINGS, Attachments, ChatState, Stats
from rkllm_mcp.surfaces.running_service import service_for
from rkllm_mcp.surfaces.tables import (
    call_table,
    conversation_table,
    grant_table,
    memory_table,
    prompt_table,
    read_pairs,
    resource_table,
    schedule_lines,
    schedule_table,
    switched_line,
    tool_table,
    tool_text,
)
from rkllm_mcp.surfaces.terminal import wrap
from rkllm_mcp.text import collapse_whitespace, moment, shorten, without_files

if TYPE_CHECKING:
    from rkllm_mcp.surfaces.chat.remote import ChatHost


_SHOWN = 20
_OFFERED = 100
_FEWEST_MODELS = 2
_NUMBER = re.compile(r"\d+(\.\d*)?|\.\d+", re.ASCII)
_SWITCH = {"on": True, "off": False}
_SHOWN_CHARS = 300
# In place of the id of a stored conversation: the latest one, and one that the person chooses.
LATEST = "latest"
CHOICE = ""


async def stored_conversation(host: ChatHost, name: str) -> StoredConversation | None:
    """Return the stored conversation whose id begins with ``name``, or for ``LATEST`` that one, None without any.

    See ``find_conversation``.
    """
    conversations = host.store.conversations
    if name != LATEST:
        return await find_conversation(host.store, host.tenant, name)
    newest = await conversations.latest(host.tenant, 1)
    return await conversations.get(host.tenant, newest[0].id) if newest else None


def take_up(state: ChatState, stored: StoredConversation) -> None:
    """Continue a stored conversation and show its last turns."""
    state.conversation = restored_turns(stored, state.host.new_conversation(stored.system))
    state.attached = Attachments()
    state.stats = Stats()
    say = state.terminal.note
    phrases = state.phrases
    count, last = len(stored.turns), moment(stored.updated)
    say(phrases.sentence("chat.going_on", id=stored.id, title=stored.title, count=count, moment=last))
    for turn in stored.turns[-2:]:
        ending = f" [{phrases.table('ending')[turn.ending]}]" if turn.ending in phrases.table("ending") else ""
        say(f"  {'❯' if turn.role == 'user' else '◆'} {shorten(collapse_whitespace(turn.text), _SHOWN_CHARS)}{ending}")
    if state.conversation.broken_off:
        say(phrases.sentence("chat.broken_off"))


def _show_listing(state: ChatState, listing: str, none: str) -> None:
    """Show a listing; ``none`` is the key of the sentence for an empty one."""
    state.terminal.answer(listing or f"{state.phrases.sentence(none)}\n")


async def show_list(
    state: ChatState,
    argument: str,
    *,
    command: Literal["/conversations", "/history", "/resources", "/prompts", "/servers"],
) -> None:
    """List what the assistant has of a kind: all of it, of one server, or what holds some words."""
    host, terminal, phrases = state.host, state.terminal, state.phrases
    match command:
        case "/conversations":
            latest = await host.store.conversations.latest(host.tenant, _SHOWN, search=argument)
            _show_listing(state, conversation_table(latest, terminal), "chat.none_kept")
        case "/history":
            calls = await host.store.calls.latest(_SHOWN, conversation=state.conversation.id)
            _show_listing(state, call_table(calls, terminal, is_short=True), "chat.no_calls")
        case "/resources":
            resources, templates = await host.readable(argument or None, state.context())
            _show_listing(state, resource_table(resources, templates, terminal), "chat.no_resources")
        case "/prompts":
            prompts = await host.prompts(argument or None, state.context())
            _show_listing(state, prompt_table(prompts, terminal), "chat.no_prompts")
        case "/servers":
            rows = [
                (
                    server.name,
                    terminal.word(server.state),
                    phrases.sentence("chat.tool_count", count=server.tool_count),
                    server.reason if server.is_on else phrases.sentence("chat.switched_off", name=server.name),
                )
                for server in await host.servers()
            ]
            heading = ("NAME", "STATE", "TOOLS", "REASON")
            _show_listing(state, terminal.table(heading, rows), "chat.no_servers")


async def resume(state: ChatState, argument: str) -> None:
    """Continue another stored conversation, which a list offers; the current one stays stored."""
    if not argument:
        latest = await state.host.store.conversations.latest(state.host.tenant, _OFFERED)
        if state.console is None or not latest:
            _show_listing(state, conversation_table(latest, state.terminal), "chat.none_kept")
            return
        choices = [Choice(summary.id, summary.title, moment(summary.updated)) for summary in latest]
        heading = state.phrases.sentence("chat.choose_conversation")
        argument = await pick(heading, choices, state.conversation.id, state.phrases) or ""
        if not argument:
            return
    stored = await find_conversation(state.host.store, state.host.tenant, argument)
    if stored.id == state.conversation.id:
        state.terminal.error(state.phrases.sentence("chat.already_here"))
    else:
        take_up(state, stored)


async def rename(state: ChatState, argument: str) -> None:
    """Give this conversation another title."""
    conversations = state.host.store.conversations
    if await conversations.change(state.host.tenant, state.conversation.id, {"title": argument}):
        state.terminal.note(state.phrases.sentence("chat.renamed"))
    else:
        state.terminal.error(state.phrases.sentence("chat.not_kept_yet"))


async def _switch(state: ChatState, argument: str, *, is_on: bool) -> None:
    """Switch a tool or a server, for this and every later run."""
    server, tool = await state.host.switch(argument, is_on=is_on)
    state.terminal.note(switched_line(state.phrases, server, tool, is_on=is_on))


async def approvals(state: ChatState, argument: str) -> None:
    """Show or delete approvals and refusals, permanent ones and those of this conversation."""
    word, _, name = argument.partition(" ")
    if not word:
        rows = [(grant.kind, server, tool) for server, tool, grant in await state.host.store.grants.all()]
        rows += [("conversation", *grant) for grant in await state.host.conversation_grants(state.conversation.id)]
        listing = grant_table(rows, state.terminal)
        _show_listing(state, listing, "chat.nothing_said")
    elif word == "forget" and name.strip():
        name, here = name.strip(), state.conversation.id
        for_now = matching_tools(name, await state.host.conversation_grants(here))
        for server, tool in for_now:
            await state.host.forget_conversation_grant(here, server, tool)
            state.terminal.note(state.phrases.sentence("chat.forgotten_here", tool=tool, server=server))
        for_good = [(server, tool) for server, tool, _ in await state.host.store.grants.all()]
        if matching_tools(name, for_good) or not for_now:
            for server, tool in await forget_approvals(state.host.store, name):
                state.terminal.note(state.phrases.sentence("chat.forgotten", tool=tool, server=server))
    else:
        state.need("/approve")


async def make_schedule(state: ChatState, argument: str) -> None:
    """Make a schedule of a sentence, after the person has read when it runs; the word "every" may be the command's."""
    now, zone = await state.host.store.schedules.now(), zone_here(state.host.config.service.timezone)
    schedule = schedule_of_sentence(f"every {argument}", zone, now) or schedule_of_sentence(argument, zone, now)
    if schedule is None:
        state.need("/every")
    elif not await _save_schedule(state, schedule, now, "schedules.no"):
        state.terminal.note(state.phrases.sentence("schedules.not_saved"))


async def offer_schedule(state: ChatState, text: str) -> bool:
    """Offer to save a schedule that the person has typed as a question; return False if it is to be asked now."""
    if state.console is None:
        return False
    with suppress(UsageError):  # the board has no zone
        now, zone = await state.host.store.schedules.now(), zone_here(state.host.config.service.timezone)
        if (schedule := schedule_of_sentence(text, zone, now)) is not None:
            return await _save_schedule(state, schedule, now, "schedules.ask_now")
    return False


async def _save_schedule(state: ChatState, schedule: Schedule, now: float, otherwise: str) -> bool:
    """Show a schedule and save it, if the person agrees; ``otherwise`` is the key of the other choice."""
    phrases = state.phrases
    for line in schedule_lines(schedule, now, phrases):
        state.terminal.note(line)
    if state.console is not None:
        choices = [Choice("yes", phrases.sentence("schedules.yes")), Choice("no", phrases.sentence(otherwise))]
        if await pick(phrases.sentence("schedules.save"), choices, "yes", phrases) != "yes":
            return False
    stored = await state.host.store.schedules.add(state.host.tenant, schedule)
    state.terminal.note(phrases.sentence("schedules.saved", id=stored.id))
    if service_for(state.host.config) is None:
        state.terminal.note(phrases.sentence("schedules.needs_service"))
    return True


async def schedules(state: ChatState, argument: str) -> None:
    """List schedules, or pause, resume, run or remove one."""
    stored, tenant, phrases = state.host.store.schedules, state.host.tenant, state.phrases
    word, _, name = argument.partition(" ")
    if not word:
        _show_listing(state, schedule_table(await stored.all(tenant), state.terminal), "schedules.none")
        return
    schedule = await find_schedule(stored, tenant, name.strip())
    match word:
        case "pause":
            await stored.change(tenant, schedule.id, state="paused", next_at=None)
            state.terminal.note(phrases.sentence("schedules.is_paused", id=schedule.id))
        case "resume":
            moment_of_run = await resume_schedule(stored, tenant, schedule)
            time = describe_moment(moment_of_run, read_zone(schedule.zone), phrases.language)
            state.terminal.note(phrases.sentence("schedules.resumed", id=schedule.id, time=time))
        case "run":
            await stored.request_run(tenant, schedule.id)
            state.terminal.note(phrases.sentence("schedules.runs", id=schedule.id))
        case "remove":
            await stored.remove(tenant, schedule.id)
            state.terminal.note(phrases.sentence("schedules.removed", id=schedule.id))
        case _:
            raise UsageError(f"/schedules knows pause, resume, run and remove, not {word!r}")


async def take_resource(state: ChatState, argument: str) -> None:
    """Show a resource, and have it go with the next question."""
    content = await state.host.read_resource(argument.removeprefix("@"), state.context())
    state.terminal.note(f"[MCP: Fetched resource: {content.uri}]")
    state.terminal.answer(content.text if content.text.endswith("\n") else f"{content.text}\n")
    if content.truncated:
        state.terminal.note(state.phrases.sentence("chat.cut", count=state.host.config.agent.resource_chars))
    mention = f"@{content.server}:<{content.uri}>"
    if mention not in state.attached.mentions:
        state.attached.mentions.append(mention)
    state.terminal.note(state.phrases.sentence("chat.attached"))


async def fill_prompt(state: ChatState, argument: str) -> None:
    """Fill a server's prompt and have the model answer it."""
    try:
        name, *words = shlex.split(argument)
    except ValueError:
        raise UsageError("a quote is not closed; write NAME='two words'") from None
    await state.answer(state.host.reply(state.conversation, PromptQuestion(name, read_pairs(words)), state.options))


async def ask_anew(state: ChatState, _argument: str, *, command: Literal["/retry", "/edit", "/undo"]) -> None:
    """Take back the last question; but for ``/undo``, ask it again, for ``/edit`` as the person's editor left it."""
    asked = [message for message in state.conversation.messages if message.role == "user"]
    edited = ""
    if command == "/edit":
        if state.console is None:
            raise UsageError(state.phrases.sentence("chat.edit_needs_terminal"))
        if not asked:
            state.terminal.error(state.phrases.sentence("chat.no_question"))
            return
        text = await state.console.edit(asked[-1].text)
        if text is None:
            state.terminal.error(state.phrases.sentence("chat.no_editor"))
            return
        if not text or text == asked[-1].text.strip():
            state.terminal.note(state.phrases.sentence("chat.unchanged"))
            return
        edited = text
    # One that was broken off is replaced; the others stay as earlier versions.
    question = ask_again(state.conversation)
    question = question or await take_back(state.host.store.conversations, state.host.tenant, state.conversation)
    if not question:
        state.terminal.error(state.phrases.sentence("chat.no_question"))
        return
    question = edited or question
    beginning = shorten(collapse_whitespace(without_files(question)), _SHOWN_CHARS)
    if command == "/undo":
        state.terminal.note(state.phrases.sentence("chat.undone", question=beginning))
        return
    state.terminal.note(f"❯ {beginning}")
    options = replace(state.options, pictures=asked[-1].pictures if asked else ())
    await state.answer(state.host.reply(state.conversation, question, options))


async def take_file(state: ChatState, argument: str) -> None:
    """Read files that go with the next question."""
    for path in named_files(argument):
        await state.attach(path)
    state.terminal.note(state.phrases.sentence("chat.attached"))


async def system(state: ChatState, argument: str) -> None:
    """Show the system prompt of this conversation, or change it."""
    conversation = state.conversation
    current = next((message.text for message in conversation.messages if message.role == "system"), "")
    if not argument:
        text, columns = current or state.phrases.sentence("chat.no_system"), state.terminal.columns
        lines = text.split("\n")
        lines = lines if columns is None else [part for line in lines for part in wrap(line, columns)]
        state.terminal.answer("".join(f"{line}\n" for line in lines))
        return
    await state.host.change_system(conversation, argument)
    has_turns = any(message.role != "system" for message in conversation.messages)
    state.terminal.note(state.phrases.sentence("chat.system_again" if has_turns else "chat.system_set"))


async def change_setting(state: ChatState, argument: str) -> None:
    """Show or change the options of the next answers."""
    name, _, text = argument.partition(" ")
    word = unicodedata.normalize("NFKC", text).strip().lower()
    if name and name not in SETTINGS:
        raise UsageError(
            f"there is no setting {name!r}; choose one of {', '.join(SETTINGS)}{did_you_mean(name, SETTINGS)}"
        )
    if name and not word:
        state.need("/set")
        return
    if name:
        field, least, most = SETTINGS[name]
        number = float(word) if _NUMBER.fullmatch(word) else math.nan
        is_whole = isinstance(least, int)
        value: float | bool | None
        if word == "default":
            value = None  # the model's own
        elif name == "thinking":
            if word not in _SWITCH:
                raise UsageError(f"thinking is on, off or default; found {word!r}")
            value = _SWITCH[word]
        else:
            if is_whole and (not least <= number <= most or number != int(number)):
                raise UsageError(f"{name} is a whole number from {least:g} to {most:g}, or default; found {word!r}")
            if not least <= number <= most:
                raise UsageError(f"{name} is a number from {least:g} to {most:g}, or default; found {word!r}")
            value = int(number) if is_whole else number
        model, (group, _, key) = state.options.model, field.partition(".")
        if key:
            model = replace(model, sampling=replace(model.sampling, **{key: value}))
        else:
            model = replace(model, **{group: value})
        state.options = replace(state.options, model=model)
    rows: list[tuple[str, str]] = []
    for shown in [name] if name else SETTINGS:
        current: Any = state.options.model
        for part in SETTINGS[shown][0].split("."):
            current = getattr(current, part)
        if isinstance(current, bool):
            rows.append((shown, "on" if current else "off"))
        else:
            rows.append((shown, "default" if current is None else f"{current:g}"))
    if name:
        state.terminal.note(state.phrases.sentence("chat.set", name=name, value=rows[0][1]))
    else:
        state.terminal.answer(state.terminal.table((), rows))


# Names of commands in earlier versions, and in other programs.
_SYNONYMS: Mapping[str, str] = {
    "/again": "/retry",
    "/?": "/help",
    "/bye": "/quit",
    "/exit": "/quit",
    "/clear": "/new",
}
_Action: TypeAlias = Callable[[ChatState, str], Awaitable[None]]
# The second slash is the one of Japanese input methods.
_COMMAND = re.compile(r"[/／](\w*|[?？])(?=\s|\Z)")


def is_command(line: str) -> bool:
    """Return True for a line that begins with a command, also a mistyped one.

    A path (``/etc/hosts``, ``/tmp``) and a comment (``// …``) begin a question, and so does with a blank in front of it
    any other word than a command.
    """
    text = line.strip()
    match = _COMMAND.match(text)
    if match is None:
        return False
    name = unicodedata.normalize("NFKC", match[0])
    if name in COMMANDS or name in _SYNONYMS:
        return True
    return not line[:1].isspace() and not (match[1] and Path(match[0]).exists())


async def obey(state: ChatState, text: str) -> None:
    """Carry out a line that begins with a command."""
    name, *arguments = text.split(maxsplit=1)
    name, argument = unicodedata.normalize("NFKC", name), "".join(arguments).strip()
    name = _SYNONYMS.get(name, name)
    command = COMMANDS.get(name)
    if command is None:
        matching = [command for command in COMMANDS if len(name) > 1 and command.startswith(name)]
        near = matching or difflib.get_close_matches(name, COMMANDS, n=1)
        hint = state.phrases.sentence("chat.did_you_mean" if near else "chat.no_hint", name=near[0] if near else "")
        state.terminal.error(state.phrases.sentence("chat.no_command", name=name, hint=hint))
        return
    usage, *_ = state.phrases.table("help.commands")[name]
    # Optional arguments are in brackets.
    if not argument and usage.partition(" ")[2][:1] not in ("", "["):
        state.need(name)
        return
    try:
        with state.interruptible():
            await command(state, argument)
    except RkllmMcpError as error:
        state.complain(error)


async def _help(state: ChatState, _argument: str) -> None:
    columns, keys = state.terminal.columns, state.phrases.sentence("help.keys")
    rows = [(usage, effect) for usage, effect, *_ in state.phrases.table("help.commands").values()]
    state.terminal.answer(state.terminal.table((), rows))
    lines = [keys] if columns is None else wrap(keys, columns)
    state.terminal.answer("".join(f"{line}\n" for line in lines))


async def _tools(state: ChatState, argument: str) -> None:
    if not argument:
        _show_listing(state, tool_table(await state.host.tools(), state.terminal), "chat.no_tools")
        return
    tool = await state.host.find_tool(argument)
    if not isinstance(tool, str):
        state.terminal.answer(tool_text(tool, state.terminal))
        return
    hint = state.phrases.sentence("chat.did_you_mean" if tool else "chat.tools_lists", name=tool)
    state.terminal.error(state.phrases.sentence("chat.no_tool", name=argument, hint=hint))


async def _stats(state: ChatState, _argument: str) -> None:
    figures: dict[str, Any] = asdict(state.stats)
    for phase, tokens in (("prefill", state.stats.prefilled_tokens), ("decode", state.stats.generated_tokens)):
        milliseconds = figures[f"{phase}_ms"]
        figures[f"{phase}_speed"] = f"{1000 * tokens / milliseconds:.1f} tokens/s" if milliseconds > 0 else "-"
    rows = [(name, text.format_map(figures)) for name, text in state.phrases.table("chat.stats").values()]
    state.terminal.answer(state.terminal.table((), rows))


async def _remember(state: ChatState, argument: str, *, command: Literal["/remember", "/memories", "/forget"]) -> None:
    """Store, list or delete what the person wants remembered."""
    memories, say = state.host.store.memories, state.terminal.note
    match command:
        case "/remember":
            row, is_new = await keep_row(memories, argument, state.language, source=state.conversation.id)
            say(state.phrases.sentence("memory.kept" if is_new else "memory.known", text=row.text))
        case "/memories":
            rows = [row for row in await memories.all() if argument.casefold() in row.text.casefold()]
            _show_listing(state, memory_table(rows, state.terminal), "chat.no_memories")
            if count := sum(row.state == "proposed" for row in rows):
                say(state.phrases.sentence("memory.proposed", count=count))
        case "/forget":
            rows = find_rows(await memories.all(), [argument])
            await state.host.forget_memories(rows, state.conversation)
            for row in rows:
                say(state.phrases.sentence("memory.forgotten", text=row.text))


async def _start_anew(state: ChatState, _argument: str, *, is_temporary: bool = False) -> None:
    """Begin a conversation; a temporary one is not stored, and reads no memories."""
    keeps = not is_temporary
    state.options = replace(state.options, save=keeps and state.host.config.service.history, memory=keeps)
    state.conversation = state.host.new_conversation()
    state.conversation.knows_person = is_temporary
    state.attached = Attachments()
    state.stats = Stats()
    state.terminal.note(state.phrases.sentence("chat.temporary" if is_temporary else "chat.new_conversation"))


async def _save(state: ChatState, argument: str) -> None:
    path = await anyio.Path(argument).expanduser()
    try:
        # Do not overwrite an existing file.
        async with await path.open("x", encoding="utf-8") as file:
            await file.write(transcript(state.conversation.messages))
    except FileExistsError:
        state.terminal.error(state.phrases.sentence("chat.exists", path=path))
    except OSError as error:
        state.terminal.error(
            state.phrases.sentence("chat.not_written", path=path, reason=state.phrases.phrase(error.strerror or ""))
        )
    else:
        state.terminal.note(state.phrases.sentence("chat.saved", path=path))


async def _model(state: ChatState, argument: str) -> None:
    """Load the model that is named or chosen from a list; show the loaded one if that stays."""
    model, phrases = state.host.model, state.phrases
    if not argument and state.console is not None:
        models = [other for other in (await state.host.models()).values() if "chat" in other.capabilities]
        if len(models) >= _FEWEST_MODELS:
            choices: list[Choice] = []
            for other in models:
                size = f"{other.size_bytes / 1e9:.1f} GB  " if other.size_bytes else ""
                window = phrases.sentence("chat.tokens", count=other.context_tokens)
                choices.append(Choice(other.name, other.name, f"{size}{window}"))
            heading = phrases.sentence("chat.choose_model")
            chosen = await pick(heading, choices, model.name, phrases)
            argument = chosen if chosen and chosen != model.name else ""
    if argument:
        state.terminal.note(phrases.table("status")["loading"].format(name=argument))
        await state.host.load_model(argument)
        state.terminal.note(phrases.sentence("chat.loaded", name=argument))
        return
    labels = phrases.table("chat.model")
    description = phrases.translate_text("models.phrases", model.card_description)
    rows = [("name", model.name), ("description", description), ("file", model.file), ("template", model.template)]
    rows.append(("context", phrases.sentence("chat.tokens", count=model.context_tokens)))
    rows.append(("kind", state.terminal.word(model.description)))
    state.terminal.answer(state.terminal.table((), [(labels[name], value) for name, value in rows if value]))


async def _listen(state: ChatState, _argument: str) -> None:
    """Ask what the person says into the board's microphone."""
    from rkllm_mcp.surfaces.chat.speech import listen  # loads numpy

    say_so = partial(state.terminal.note, state.phrases.sentence("chat.listening"))
    with state.interruptible() as scope:
        text = await listen(state.host.config.speech, say_so)
    if scope.cancel_called:
        return
    if not text:
        state.terminal.note(state.phrases.sentence("chat.heard_nothing"))
        return
    state.terminal.note(f"❯ {text}")
    await state.ask(text)


async def _speak(state: ChatState, argument: str) -> None:
    """Read answers aloud from now on, or no longer."""
    if argument not in _SWITCH:
        state.need("/speak")
        return
    from rkllm_mcp.speech.engines import speaker_of  # loads numpy

    speaker = speaker_of(state.host.config.speech) if _SWITCH[argument] else None
    if speaker is None and _SWITCH[argument]:
        raise UsageError("nothing is configured that speaks; set tts under [speech], or 'rkllm-mcp voice install'")
    state.speaker = speaker
    state.terminal.note(state.phrases.sentence("chat.speaks" if state.speaker else "chat.is_silent"))


async def _quit(state: ChatState, _argument: str) -> None:
    state.is_over = True


COMMANDS: Mapping[str, _Action] = {
    "/help": _help,
    "/file": take_file,
    "/retry": partial(ask_anew, command="/retry"),
    "/edit": partial(ask_anew, command="/edit"),
    "/undo": partial(ask_anew, command="/undo"),
    "/model": _model,
    "/system": system,
    "/set": change_setting,
    "/tools": _tools,
    "/servers": partial(show_list, command="/servers"),
    "/resources": partial(show_list, command="/resources"),
    "/resource": take_resource,
    "/prompts": partial(show_list, command="/prompts"),
    "/prompt": fill_prompt,
    "/enable": partial(_switch, is_on=True),
    "/disable": partial(_switch, is_on=False),
    "/approve": approvals,
    "/history": partial(show_list, command="/history"),
    "/conversations": partial(show_list, command="/conversations"),
    "/resume": resume,
    "/rename": rename,
    "/every": make_schedule,
    "/schedules": schedules,
    "/remember": partial(_remember, command="/remember"),
    "/memories": partial(_remember, command="/memories"),
    "/forget": partial(_remember, command="/forget"),
    "/temporary": partial(_start_anew, is_temporary=True),
    "/listen": _listen,
    "/speak": _speak,
    "/stats": _stats,
    "/new": _start_anew,
    "/save": _save,
    "/quit": _quit,
}
