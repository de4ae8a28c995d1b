"""Stored conversations: the user's messages and the final answers; and the responses that clients continue by id.

    conversation.unkept ─▶ save ─▶ messages, appended in one transaction that survives a power failure

Rules:
* Every query names the tenant; no tenant can read, count or delete another's conversations.
* A question is written when it is accepted, as a draft with an empty answer that grows; the whole exchange replaces it.
Other turns are never written again: repeating a save with unknown outcome adds nothing.
* A question that is asked in other words replaces its turn and those after it; they stay as an earlier version.
* A draft that was deleted meanwhile, with its conversation, is not written again.
* Two processes may continue one conversation: both append, and nothing is lost.
* Deleting a conversation deletes the records of its tool calls.
* Results of tools are stored only if the limits say so, and for ``RESULT_DAYS``; the file has no older ones.

Conversion between turns and conversations is in ``conversations.recorder``.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import anyio

from rkllm_mcp.errors import StoreAwayError
from rkllm_mcp.events import to_json
from rkllm_mcp.messages import Conversation, Picture, StoredTurn
from rkllm_mcp.records import ConversationSummary, StoredConversation, without_result, without_results
from rkllm_mcp.store.boards import ANSWER_NUMBER, END_ANSWER, STILL_OWN, AnsweredElsewhereError, Leases
from rkllm_mcp.store.database import CLOCK_WAS_SET_S, DAY_S, Database, Transaction, in_transaction
from rkllm_mcp.store.limits import Limits
from rkllm_mcp.store.outbox import Outbox
from rkllm_mcp.text import without_files
from rkllm_mcp.toolcalls.untrusted_text import without_invisible

TITLE_CHARS = 60
# A shared database that takes longer gets an exchange later; writing it twice adds nothing.
_SAVE_LIMIT_S = 5.0
# The kind of an ``Exchange`` in an outbox.
EXCHANGE = "exchange"
RESULT_DAYS = 30
# Length of a passage, and of its part before the search words.
_PASSAGE_CHARS, _BEFORE_CHARS = 90, 24
_JSON_SIGNS = re.compile(r'\\[nrt"]|[{}\[\]"]')
_COLUMNS = """id, title, created, updated,
    (SELECT COUNT(*) FROM messages AS m WHERE m.tenant = c.tenant AND m.conversation = c.id), pinned"""
_OF_TENANT = " FROM conversations AS c WHERE tenant = :tenant"
# PostgreSQL has other words for these two (store.postgres), and ILIKE for LIKE.
NEXT_CHANGE = "(SELECT COALESCE(MAX(touched), 0) + 1 FROM conversations)"
TEXT_OF_EVENTS = """
    SELECT value FROM json_tree(m.events) WHERE atom LIKE :like ESCAPE '\\'
    AND (key = 'text' OR path LIKE '%.arguments%') LIMIT 1"""
# The text that contains a word: of a turn, or the arguments or result of a call.
_PASSAGE = """(
    SELECT passage FROM (
        SELECT CASE WHEN m.text LIKE :like ESCAPE '\\' THEN m.text ELSE (@TEXT_OF_EVENTS@) END AS passage
        FROM messages AS m WHERE m.tenant = c.tenant AND m.conversation = c.id
        AND (m.text LIKE :like ESCAPE '\\' OR m.events LIKE :like ESCAPE '\\')
    ) AS passages WHERE passage IS NOT NULL LIMIT 1)""".replace("@TEXT_OF_EVENTS@", TEXT_OF_EVENTS)
_WITH_WORD = f" AND (title LIKE :like ESCAPE '\\' OR {_PASSAGE} IS NOT NULL)"
# The parameters of the words of a search, which may stand anywhere; further words are not looked for.
LIKES = tuple(f"like_{letter}" for letter in "abcdefgh")
_LATEST_FIRST = """
ORDER BY CASE WHEN :pinned_first = 1 THEN pinned ELSE 0 END DESC, touched DESC LIMIT :limit OFFSET :offset"""
# The time at which something is written, by this board's clock; in PostgreSQL by the one that all boards share.
WRITTEN_AT = "CAST(? AS DOUBLE PRECISION)"
_UPSERT = """
INSERT INTO conversations (tenant, id, title, system, calls_made, settings, created, updated, touched)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, @NEXT_CHANGE@)
ON CONFLICT (tenant, id) DO UPDATE SET
    system = excluded.system,
    calls_made = CASE WHEN excluded.calls_made > conversations.calls_made THEN excluded.calls_made
        ELSE conversations.calls_made END, updated = excluded.updated, touched = excluded.touched""".replace(
    "@NEXT_CHANGE@", NEXT_CHANGE
)
_UPSERT_NOW = _UPSERT.replace(f"?, {NEXT_CHANGE}", f"{WRITTEN_AT}, {NEXT_CHANGE}")
_INSERT_TURN = """
INSERT INTO messages (tenant, conversation, position, role, text, thinking, context, ending, created, events)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_INSERT_PICTURE = """
INSERT INTO pictures (tenant, conversation, digest, data) VALUES (?, ?, ?, ?)
ON CONFLICT (tenant, conversation, digest) DO NOTHING"""
_PICTURES = "SELECT digest, data FROM pictures WHERE tenant = ? AND conversation = ?"
# The event by which the row of a question names a picture.
_PICTURE = "picture"
_INSERT_VERSION = "INSERT INTO versions (tenant, conversation, position, created, turns) VALUES (?, ?, ?, ?, ?)"
_DELETE_TURNS = "DELETE FROM messages WHERE tenant = ? AND conversation = ? AND position >= ? AND position < ?"
_HEAD = """
SELECT title, created, updated, system, calls_made, settings, pinned FROM conversations WHERE tenant = ? AND id = ?"""
_UPDATE_TURN = """
UPDATE messages SET text = ?, thinking = ?, events = ? WHERE tenant = ? AND conversation = ? AND position = ?"""
_LAST_TURN = """
SELECT COUNT(*), (SELECT created FROM messages WHERE tenant = :tenant AND conversation = :id ORDER BY position DESC
LIMIT 1) FROM messages WHERE tenant = :tenant AND conversation = :id"""
_UPDATE_RESULTS = """
UPDATE messages SET context = ?, events = ? WHERE tenant = ? AND conversation = ? AND position = ?"""
_TURNS = """
SELECT role, text, thinking, context, ending, created, events FROM messages
WHERE tenant = ? AND conversation = ? AND position >= ? ORDER BY position"""
_DELETE_EMPTY = """
DELETE FROM conversations WHERE tenant = ? AND id = ?
AND NOT EXISTS (SELECT 1 FROM messages WHERE tenant = ? AND conversation = ?)"""
# Age is the sum of the time between later changes, so a clock correction does not age all conversations at once.
_TOO_OLD = """
SELECT id FROM (
    SELECT id, SUM(CASE WHEN ABS(gap) > ? THEN 0 ELSE gap END) OVER (ORDER BY touched DESC) AS age
    FROM (
        SELECT id, touched, LEAD(updated, 1, ?) OVER (ORDER BY touched) - updated AS gap
        FROM conversations WHERE tenant = ?
    ) AS gaps
) AS ages WHERE age > ?"""
# Number of stored responses. An answer of a coding program has some 20 kB.
RESPONSES_KEPT = 1000
_INSERT_RESPONSE = f"""
INSERT INTO responses (tenant, id, previous, items, response, created) VALUES (?, ?, ?, ?, ?, {WRITTEN_AT})"""  # noqa: S608  (no input)
_DELETE_OLD_RESPONSES = """
DELETE FROM responses WHERE position <= (SELECT position FROM responses ORDER BY position DESC LIMIT 1 OFFSET ?)"""
_CHAIN = """
WITH RECURSIVE chain (previous, items, depth, characters) AS (
    SELECT previous, items, 0, length(items) FROM responses WHERE tenant = :tenant AND id = :id
    UNION ALL
    SELECT r.previous, r.items, depth + 1, characters + length(r.items)
    FROM responses AS r JOIN chain ON r.id = chain.previous
    WHERE r.tenant = :tenant AND depth < :most AND characters + length(r.items) <= :characters
)
SELECT previous, items FROM chain ORDER BY depth DESC"""
# The field of a stored response that names the key it was made with; no client sees it.
_MADE_WITH = "rkllm_made_with"
# A chain of responses is read as a whole.
CHAIN_CHARACTERS = 8_000_000
_TOO_MANY = "SELECT id FROM conversations WHERE tenant = ? ORDER BY touched DESC LIMIT 1000000000 OFFSET ?"


def title_of(words: str) -> str:
    """Return the first words of a text on one line, ending at a blank if possible."""
    # More words than a title has characters are not needed: splitting megabytes holds the interpreter's lock.
    start = " ".join(_utf8(without_files(words)).split(None, TITLE_CHARS)[:TITLE_CHARS])[: 10 * TITLE_CHARS]
    # Lists, file names and terminals show it: nothing in it moves a cursor or turns the direction of writing.
    line = " ".join(without_invisible(start)[0].split())
    if len(line) <= TITLE_CHARS:
        return line
    head = line[: TITLE_CHARS - 1]
    # Text without blanks is cut anywhere.
    at_blank = head.rpartition(" ")[0]
    return f"{at_blank if len(at_blank) > TITLE_CHARS // 2 else head}…"


def _storable(turn: StoredTurn) -> StoredTurn:
    texts = {name: _utf8(getattr(turn, name)) for name in ("text", "thinking", "context", "events")}
    return replace(turn, **texts)


def _utf8(text: str) -> str:
    """Return the text with invalid characters replaced, such as half a surrogate pair from JSON."""
    return text.encode("utf-8", "replace").decode("utf-8")


@dataclass(frozen=True)
class Exchange:
    """Turns that are written at the end of a conversation, in place of its draft; as JSON they wait in an outbox."""

    tenant: str
    conversation: str
    turns: Sequence[StoredTurn]
    own_system: str | None
    calls_made: int
    settings: str
    kept_turns: int
    draft: Sequence[int]  # the first position, and the one after the last; empty without one
    replaces: int | None
    answer: int  # number of the answer among those of the conversation; 0 if only one board answers in it
    draft_at: float  # time of the draft's question

    @property
    def assumed_end(self) -> int:
        """The number of turns after it if no other process adds any."""
        start = self.draft[0] if self.draft else self.kept_turns if self.replaces is None else self.replaces
        return start + len(self.turns)

    def as_json(self) -> dict[str, Any]:
        """Return it for ``of_json``."""
        pictures = [picture for turn in self.turns for picture in turn.pictures if picture.data]
        data = {picture.digest: base64.b64encode(picture.data).decode("ascii") for picture in pictures}
        fields = {name: value for name, value in vars(self).items() if name != "turns"}
        return {**fields, "turns": list(map(row_of_turn, self.turns)), "pictures": data}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Exchange:
        """Return the exchange that ``as_json`` has written."""
        data = {digest: base64.b64decode(picture) for digest, picture in values["pictures"].items()}
        turns = [
            replace(
                turn,
                pictures=tuple(
                    replace(stored_picture, data=data.get(stored_picture.digest, b""))
                    for stored_picture in turn.pictures
                ),
            )
            for turn in map(_turn, values["turns"])
        ]
        fields: dict[str, Any] = {name: value for name, value in values.items() if name not in ("turns", "pictures")}
        return cls(turns=turns, **fields)


def _exchange(tenant: str, conversation: Conversation, turns: Sequence[StoredTurn]) -> Exchange:
    draft = (conversation.draft.start, conversation.draft.stop) if conversation.draft is not None else ()
    head = (conversation.own_system, conversation.calls_made, conversation.settings, conversation.kept_turns)
    answer = (conversation.answer_number, conversation.draft_at)
    return Exchange(tenant, conversation.id, turns, *head, draft, conversation.replaces, *answer)


def append_again(change: Any, transaction: Transaction) -> None:
    """Write an exchange that has waited in an outbox."""
    _append(Exchange.of_json(change), transaction)


def _append(exchange: Exchange, transaction: Transaction) -> tuple[int, int]:
    """Append the turns to the conversation, in place of its draft.

    Returns the number of turns now stored and the number of them that another process has added. Appends nothing if
    the draft is gone: another process has deleted the conversation.
    """
    tenant, conversation_id, turns = exchange.tenant, exchange.conversation, exchange.turns
    whose = (tenant, conversation_id)
    # Another board that appends to this conversation waits here.
    transaction.execute("UPDATE conversations SET id = id WHERE tenant = ? AND id = ?", whose)
    if exchange.answer:
        row = transaction.execute(ANSWER_NUMBER, whose).fetchone()
        if row is not None and int(row[0]) != exchange.answer:
            # Another board has begun an answer after this one.
            return _append_late(exchange, transaction)
        transaction.execute(END_ANSWER, (*whose, exchange.answer))
    is_gone = exchange.draft and not _remove(*whose, range(*exchange.draft), transaction)
    if is_gone and not turns:
        return 0, 0
    if not turns:
        # A new version that was refused leaves its place to the version before it.
        if not _show_version(*whose, exchange.kept_turns, -1, transaction):
            transaction.execute(_DELETE_EMPTY, whose * 2)
        return exchange.kept_turns, 0
    where = "FROM messages WHERE tenant = ? AND conversation = ?"
    first = exchange.kept_turns if exchange.replaces is None else exchange.replaces
    query = f"SELECT created, role, text, position {where} AND position >= ? ORDER BY position"
    # The places of the leading turns that an earlier attempt with unknown outcome has written, often none: a disk that
    # is slow may end a write after it was given up. Questions tell: their time is that of the exchange; an answer may
    # have been shorter then, or empty.
    there = transaction.execute(query, (*whose, first)).fetchall()
    written: list[int] = []
    for start in range(len(there)):
        row_ids: list[int] = []
        for (at, role, text, row_id), turn in zip(there[start:], turns, strict=False):
            is_answer = bool(row_ids) and role == "assistant"
            if role != turn.role or not (is_answer or (at, text) == (turn.at, turn.text)):
                break
            row_ids.append(row_id)
        written = max(written, row_ids, key=len)
    if is_gone and not written:
        return 0, 0
    if exchange.replaces is not None and not written:
        _set_aside(*whose, exchange.replaces, transaction)
    question = next((turn.text for turn in turns if turn.role == "user"), turns[0].text)
    head = (*whose, title_of(question), exchange.own_system, exchange.calls_made)
    transaction.execute(_UPSERT_NOW, (*head, exchange.settings, turns[0].at, turns[-1].at))
    for row_id, turn in zip(written, turns, strict=False):
        _remove(*whose, range(row_id, row_id + 1), transaction)
        _insert(*whose, row_id, [turn], transaction)
    position = transaction.execute(f"SELECT COALESCE(MAX(position) + 1, 0) {where}", whose).fetchone()[0]
    new = turns[len(written) :]
    _insert(*whose, position, new, transaction)
    new_elsewhere = max(0, position - exchange.kept_turns - (len(turns) - len(new)))
    return position + len(new), new_elsewhere


def _append_late(exchange: Exchange, transaction: Transaction) -> tuple[int, int]:
    """Write the turns of an answer after another board has begun one in the conversation.

    They replace their draft where it is, before what was asked meanwhile. If that answer is to the same question the
    draft is its own, and these turns become an earlier version.
    """
    whose, turns, start = (exchange.tenant, exchange.conversation), exchange.turns, exchange.draft[0]
    query = "SELECT created FROM messages WHERE tenant = ? AND conversation = ? AND position = ?"
    row = transaction.execute(query, (*whose, start)).fetchone()
    if row is not None and row[0] == exchange.draft_at and len(turns) == len(range(*exchange.draft)):
        _remove(*whose, range(*exchange.draft), transaction)
        _insert(*whose, start, turns, transaction)
    elif turns and turns[-1].text.strip():
        values = (*whose, start, turns[0].at, to_json(list(map(row_of_turn, turns))))
        transaction.execute(_INSERT_VERSION, values)
    transaction.execute(f"UPDATE conversations SET touched = {NEXT_CHANGE} WHERE tenant = ? AND id = ?", whose)  # noqa: S608
    return exchange.kept_turns, 1


def _remove(tenant: str, conversation_id: str, positions: range, transaction: Transaction) -> int:
    """Delete the turns at these positions; return how many there were."""
    values = (tenant, conversation_id, positions.start, positions.stop)
    return transaction.execute(_DELETE_TURNS, values).rowcount


def _set_aside(tenant: str, conversation_id: str, position: int, transaction: Transaction) -> None:
    """Make an earlier version of the turns from ``position`` on, which contains the earlier versions after it."""
    whose = (tenant, conversation_id, position)
    turns = [_turn(row) for row in transaction.execute(_TURNS, whose).fetchall()]
    if not turns:
        return
    transaction.execute(_INSERT_VERSION, (*whose, turns[0].at, to_json(list(map(row_of_turn, turns)))))
    query = "SELECT MAX(id) FROM versions WHERE tenant = ? AND conversation = ? AND position = ? AND parent IS NULL"
    version = transaction.execute(query, whose).fetchone()[0]
    transaction.execute(
        "UPDATE versions SET parent = ? WHERE tenant = ? AND conversation = ? AND position > ? AND parent IS NULL",
        (version, *whose),
    )
    _remove(tenant, conversation_id, range(position, sys.maxsize), transaction)


def _show_version(tenant: str, conversation_id: str, position: int, number: int, transaction: Transaction) -> bool:
    """Exchange the turns from ``position`` on for a version; return False if no version has that number.

    Versions are numbered from 1 in the order in which they were asked; -1 is the one that was replaced last.
    """
    whose = (tenant, conversation_id, position)
    where = "FROM versions WHERE tenant = ? AND conversation = ? AND position = ? AND parent IS NULL"
    versions = transaction.execute(f"SELECT id, created, turns {where} ORDER BY created, id", whose).fetchall()
    current = transaction.execute(f"{_TURNS} LIMIT 1", whose).fetchone()
    if current is not None:
        versions.insert(sum(row[1] <= current[5] for row in versions), (0, current[5], ""))
    if number < 0:
        versions.sort()
        number = len(versions)
    if not 1 <= number <= len(versions):
        return False
    version, _, turns = versions[number - 1]
    if version:
        _set_aside(tenant, conversation_id, position, transaction)
        _insert(tenant, conversation_id, position, list(map(_turn, json.loads(turns))), transaction)
        transaction.execute("UPDATE versions SET parent = NULL WHERE parent = ?", (version,))
        transaction.execute("DELETE FROM versions WHERE id = ?", (version,))
    return True


def _insert(
    tenant: str, conversation_id: str, position: int, turns: Sequence[StoredTurn], transaction: Transaction
) -> None:
    rows = [
        (tenant, conversation_id, turn_position, *row_of_turn(turn))
        for turn_position, turn in enumerate(turns, position)
    ]
    transaction.executemany(_INSERT_TURN, rows)
    # Those without data are in the store already.
    pictures = [picture for turn in turns for picture in turn.pictures if picture.data]
    if pictures:
        rows = [(tenant, conversation_id, picture.digest, picture.data) for picture in pictures]
        transaction.executemany(_INSERT_PICTURE, rows)


def row_of_turn(turn: StoredTurn) -> tuple[Any, ...]:
    """Return the columns of a turn; a question names its pictures where an answer has its events."""
    events = turn.events
    if turn.pictures:
        events = to_json([{"kind": _PICTURE, "digest": picture.digest} for picture in turn.pictures])
    return (turn.role, turn.text, turn.thinking, turn.context, turn.ending, turn.at, events)


def _turn(row: Sequence[Any]) -> StoredTurn:
    """Return the turn of its columns, with pictures without data."""
    turn = StoredTurn(*row)
    if turn.role != "user" or not turn.events:
        return turn
    picture_events = [event for event in json.loads(turn.events) if event.get("kind") == _PICTURE]
    return replace(turn, events="", pictures=tuple(Picture(event["digest"]) for event in picture_events))


def _summary(row: Sequence[Any], search: str) -> ConversationSummary:
    """Return the summary of a row; of its text only the passage around the words of the search."""
    text = str(row[6]) if len(row) > 6 and row[6] else ""
    # Of JSON, such as many results of tools are, its names and values.
    if text.lstrip()[:1] in {"{", "["}:
        try:
            text = " · ".join(_leaves(json.loads(text)))
        except (ValueError, RecursionError):  # Markdown, or JSON that was cut
            text = _JSON_SIGNS.sub(" ", text)
    text = " ".join(text.split())
    positions = (text.lower().find(words.lower()) for words in (search, *search.split()[:1]))
    start = max(0, next((position for position in positions if position >= 0), 0) - _BEFORE_CHARS)
    # A word that is cut tells nothing; Japanese has no spaces and begins anywhere.
    start = text.find(" ", start, start + _BEFORE_CHARS // 2) + 1 or start if start else 0
    passage = text[start : start + _PASSAGE_CHARS].lstrip("· ")
    end = "…" if start + _PASSAGE_CHARS < len(text) else ""
    return ConversationSummary(
        *row[:5], pinned=bool(row[5]), passage=f"…{passage}{end}" if start else f"{passage}{end}"
    )


def _leaves(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            yield from _leaves(item, key)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _leaves(item, name)
    elif value is not None:
        yield f"{name}: {value}" if name else str(value)


def _sought(tenant: str, search: str) -> tuple[str, dict[str, Any]]:
    """Return the condition that each word of the search is in the title, a turn or a call, and its parameters."""
    words = dict(zip(LIKES, search.split(), strict=False))
    where = "".join(_WITH_WORD.replace(":like", f":{name}") for name in words)
    return where, {"tenant": tenant, **{name: f"%{escape_like(word)}%" for name, word in words.items()}}


def escape_like(text: str) -> str:
    """Return a text as the pattern of LIKE that matches it and nothing else, with a backslash as ESCAPE."""
    return _utf8(text).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _delete(tenant: str, ids: Sequence[str], transaction: Transaction) -> int:
    """Delete conversations with their turns and tool call records; return how many existed."""
    deleted = 0
    for conversation_id in ids:
        values = (tenant, conversation_id)
        count = transaction.execute("DELETE FROM conversations WHERE tenant = ? AND id = ?", values).rowcount
        if count:
            # Call records have no tenant: each tenant has a separate file, and ids cannot be guessed.
            transaction.execute("DELETE FROM calls WHERE conversation = ?", (conversation_id,))
        deleted += count
    return deleted


def _response_words(items: Sequence[Any], response: Mapping[str, Any], *, keep_results: bool) -> tuple[str, str]:
    if not keep_results:
        items = [without_result(item) for item in items]
        response = {**response, "output": [without_result(item) for item in response["output"]]}
    return _utf8(json.dumps(items, ensure_ascii=False)), _utf8(json.dumps(response, ensure_ascii=False))


@dataclass(eq=False)
class Conversations:
    """Stored conversations.

    Methods raise ``StoreError`` if the file cannot be read or written. Written data is on disk when they return.
    """

    database: Database
    limits: Limits = field(default_factory=Limits)
    leases: Leases | None = None  # which board answers; None if there is one
    outbox: Outbox | None = None  # takes exchanges while the database is away
    # Drafts in the outbox, by tenant and conversation, with their entries.
    _waiting: dict[tuple[str, str], tuple[str, Exchange]] = field(
        default_factory=dict[tuple[str, str], tuple[str, Exchange]], init=False
    )

    async def begin(self, tenant: str, conversation: Conversation, turns: Sequence[StoredTurn]) -> bool:
        """Write the draft of an exchange, in place of an older one; return False if another board answers there."""
        exchange = _exchange(tenant, conversation, list(map(_storable, turns)))

        def append(transaction: Transaction) -> tuple[int, int]:
            stop, _ = _append(exchange, transaction)
            if self.leases is None or not stop:
                return stop, 0
            return stop, self.leases.take(tenant, conversation.id, transaction)

        try:
            if self.outbox is not None:
                await self.outbox.ship()
            stop, conversation.answer_number = await self.database.ask(append, durable=True)
        except AnsweredElsewhereError:
            return False
        except StoreAwayError:
            if self.outbox is None:
                raise
            entry = await self.outbox.add(EXCHANGE, exchange.as_json(), is_open=True)
            self._waiting[tenant, conversation.id] = entry, exchange
            stop = exchange.assumed_end
        if stop:
            conversation.draft, conversation.replaces = range(stop - len(turns), stop), None
            conversation.draft_at = turns[0].at
        return True

    async def grow(self, tenant: str, conversation: Conversation, turn: StoredTurn) -> bool:
        """Update the answer of the draft; return False if it was deleted or cancelled, or is another board's now."""
        turn = _storable(turn)
        if self.outbox is not None and (waiting := self._waiting.get((tenant, conversation.id))):
            entry, exchange = waiting
            last = replace(exchange.turns[-1], text=turn.text, thinking=turn.thinking, events=turn.events)
            exchange = replace(exchange, turns=[*exchange.turns[:-1], last])
            await self.outbox.change(entry, exchange.as_json(), is_open=True)
            return True
        position = conversation.draft.stop - 1 if conversation.draft else -1
        whose = (tenant, conversation.id)
        statement, values = _UPDATE_TURN, (turn.text, turn.thinking, turn.events, *whose, position)
        if conversation.answer_number:
            statement, values = f"{statement} AND {STILL_OWN}", (*values, *whose, conversation.answer_number)
        return await self.database.change(statement, values, durable=True) > 0

    async def save(self, tenant: str, conversation: Conversation) -> int:
        """Save the turns of ``conversation.unkept`` in place of its draft; return how many others have added meanwhile.

        After an error or cancellation they are still ``unkept``, and the next save repeats the attempt.
        """
        count = len(conversation.unkept)
        if not count and conversation.draft is None:
            return 0
        turns = list(map(_storable, conversation.unkept))
        exchange, whose = _exchange(tenant, conversation, turns), (tenant, conversation.id)
        stored: tuple[int, int] | None = None
        is_waiting = False
        if self.outbox is not None and (waiting := self._waiting.get(whose)):
            # The shared database has no draft of it.
            entry, draft = waiting
            exchange = replace(draft, turns=exchange.turns, calls_made=exchange.calls_made)
            is_waiting = await self.outbox.change(entry, exchange.as_json(), is_open=False)
            del self._waiting[whose]
        if not is_waiting:
            try:
                if self.outbox is not None:
                    await self.outbox.ship()
                with anyio.move_on_after(None if self.outbox is None else _SAVE_LIMIT_S):
                    stored = await self.database.ask(partial(_append, exchange), durable=True)
            except StoreAwayError:
                if self.outbox is None:
                    raise
            if stored is None and self.outbox is not None:
                await self.outbox.add(EXCHANGE, exchange.as_json())
        conversation.kept_turns, new_elsewhere = stored or (exchange.assumed_end, 0)
        conversation.draft, conversation.replaces, conversation.answer_number = None, None, 0
        conversation.kept_until = turns[-1].at if turns else conversation.kept_until
        del conversation.unkept[:count]
        return new_elsewhere

    async def is_current(self, tenant: str, conversation: Conversation) -> bool:
        """Return False if another board has changed the stored conversation since this one was saved or loaded."""
        if self.outbox is not None:
            await self.outbox.ship()
        row = (await self.database.rows(_LAST_TURN, {"tenant": tenant, "id": conversation.id}))[0]
        return (row[0], row[1] or 0.0) == (conversation.kept_turns, conversation.kept_until)

    @in_transaction(durable=True)
    def add(self, transaction: Transaction, tenant: str, stored: StoredConversation) -> str:
        """Save a conversation from elsewhere and return its id, a new one if its own is taken."""
        keeps_results = self.limits.current.history.keep_results
        turns_to_store = stored.turns if keeps_results else map(without_results, stored.turns)
        turns = list(map(_storable, turns_to_store))
        query = "SELECT 1 FROM conversations WHERE tenant = ? AND id = ?"
        row = transaction.execute(query, (tenant, stored.id)).fetchone()
        conversation_id = uuid.uuid4().hex[:12] if row or not stored.id else stored.id
        head = (tenant, conversation_id, title_of(stored.title), stored.system, stored.calls_made)
        transaction.execute(_UPSERT, (*head, stored.settings, stored.created, stored.updated))
        _insert(tenant, conversation_id, 0, turns, transaction)
        return conversation_id

    @in_transaction(reads=True)
    def get(self, transaction: Transaction, tenant: str, conversation_id: str) -> StoredConversation | None:
        """Return a conversation with all turns; None if this tenant has none of that id."""
        head = transaction.execute(_HEAD, (tenant, conversation_id)).fetchone()
        if head is None:
            return None
        title, created, updated, system, calls_made, settings, pinned = head
        whose = (tenant, conversation_id)
        turns = list(map(_turn, transaction.execute(_TURNS, (*whose, 0)).fetchall()))
        if any(turn.pictures for turn in turns):
            rows = transaction.execute(_PICTURES, whose).fetchall()
            data = {digest: bytes(picture) for digest, picture in rows}
            for number, turn in enumerate(turns):
                pictures = (replace(picture, data=data.get(picture.digest, b"")) for picture in turn.pictures)
                turns[number] = replace(turn, pictures=tuple(pictures))
        # By position, which version of a question this is, and of how many.
        query = "SELECT position, created FROM versions WHERE tenant = ? AND conversation = ? AND parent IS NULL"
        times: dict[int, list[float]] = {}
        for position, asked_at in transaction.execute(query, whose).fetchall():
            times.setdefault(position, []).append(asked_at)
        versions = {
            position: (1 + sum(at <= turns[position].at for at in moments), 1 + len(moments))
            for position, moments in times.items()
            if position < len(turns)
        }
        head = (conversation_id, title, created, updated, tuple(turns), system, calls_made, settings)
        return StoredConversation(*head, bool(pinned), versions)

    async def picture(self, tenant: str, conversation_id: str, digest: str) -> bytes | None:
        """Return a picture of a conversation by its SHA-256; None if it has none."""
        rows = await self.database.rows(f"{_PICTURES} AND digest = ?", (tenant, conversation_id, _utf8(digest)))
        return bytes(rows[0][1]) if rows else None

    async def latest(
        self, tenant: str, limit: int = 20, offset: int = 0, search: str = "", *, pinned_first: bool = False
    ) -> list[ConversationSummary]:
        """Return conversations, the most recently changed first.

        ``search`` restricts them to those whose title, turns and calls contain each of its words, ignoring the case of
        Latin letters; the passage is one with all of them as they are, or with the first.
        """
        where, values = _sought(tenant, search)
        values |= {"limit": limit, "offset": offset, "pinned_first": pinned_first}
        passage = ""
        if where:
            values["like"] = f"%{escape_like(search.strip())}%"
            passage = f", COALESCE({_PASSAGE}, {_PASSAGE.replace(':like', f':{LIKES[0]}')})"
        rows = await self.database.rows(f"SELECT {_COLUMNS}{passage}{_OF_TENANT}{where}{_LATEST_FIRST}", values)
        return [_summary(row, search) for row in rows]

    async def matching(self, tenant: str, prefix: str, limit: int = 10) -> list[ConversationSummary]:
        """Return the conversation of this id, or those whose id starts with it, most recently changed first."""
        values: dict[str, Any] = {"tenant": tenant, "id": _utf8(prefix), "like": f"{escape_like(prefix)}%"}
        rows = await self.database.rows(f"SELECT {_COLUMNS}{_OF_TENANT} AND id = :id", values)
        if not rows:
            query = f"SELECT {_COLUMNS}{_OF_TENANT} AND id LIKE :like ESCAPE '\\'{_LATEST_FIRST}"
            rows = await self.database.rows(query, {**values, "limit": limit, "offset": 0, "pinned_first": False})
        return [_summary(row, "") for row in rows]

    async def count(self, tenant: str, search: str = "") -> int:
        """Return the number of conversations that ``latest`` would list without a limit."""
        where, values = _sought(tenant, search)
        return int((await self.database.rows(f"SELECT COUNT(*){_OF_TENANT}{where}", values))[0][0])

    async def change(
        self, tenant: str, conversation_id: str, values: Mapping[str, Any], *, instead_of: str | None = None
    ) -> bool:
        """Set title, pinned, settings or system; return False if no conversation has that id.

        With ``instead_of`` also if it has another title than this by now.
        """
        storable = {**values, "title": title_of(values["title"])} if "title" in values else values
        columns = "".join(f"{name} = ?, " for name in storable)
        query = f"UPDATE conversations SET {columns}id = id WHERE tenant = ? AND id = ?"  # noqa: S608  (no input)
        row = (*storable.values(), tenant, conversation_id)
        if instead_of is not None:
            query, row = f"{query} AND title = ?", (*row, instead_of)
        return await self.database.change(query, row, durable=True) > 0

    async def show_version(self, tenant: str, conversation_id: str, position: int, number: int) -> bool:
        """Exchange the turns from a question on for a version of it, from 1; return False if it does not exist."""
        work = partial(_show_version, tenant, conversation_id, position, number)
        return await self.database.ask(work, durable=True)

    async def delete(self, tenant: str, conversation_id: str) -> bool:
        """Delete a conversation, its turns and its tool call records; return False if no conversation has that id."""
        return await self.database.ask(partial(_delete, tenant, (conversation_id,)), erases=True) > 0

    @in_transaction(erases=True)
    def delete_all(self, transaction: Transaction, tenant: str) -> int:
        """Delete every conversation and response of a tenant; return how many conversations existed."""
        transaction.execute("DELETE FROM responses WHERE tenant = ?", (tenant,))
        rows = transaction.execute("SELECT id FROM conversations WHERE tenant = ?", (tenant,)).fetchall()
        return _delete(tenant, [row[0] for row in rows], transaction)

    @in_transaction(erases=True)
    def clean(self, transaction: Transaction, tenant: str) -> int:
        """Delete conversations and results of tools beyond the limits; return how many were deleted or changed."""
        agreed = self.limits.read(transaction)
        if agreed is None:
            return 0
        now, limits = self.limits.now(transaction), agreed.history
        gone: set[str] = set()
        if limits.days is not None:
            values = (CLOCK_WAS_SET_S, now, tenant, limits.days * DAY_S)
            gone.update(row[0] for row in transaction.execute(_TOO_OLD, values).fetchall())
        if limits.conversations is not None:
            rows = transaction.execute(_TOO_MANY, (tenant, limits.conversations)).fetchall()
            gone.update(row[0] for row in rows)
        deleted = _delete(tenant, sorted(gone), transaction)
        before = now - RESULT_DAYS * DAY_S if limits.keep_results else sys.float_info.max
        query = """SELECT conversation, position, role, text, thinking, context, ending, created, events FROM messages
            WHERE tenant = ? AND created < ? AND (events <> '' OR context <> '')"""
        for conversation_id, position, *row in transaction.execute(query, (tenant, before)).fetchall():
            turn = StoredTurn(*row)
            less = without_results(turn)
            if (less.context, less.events) != (turn.context, turn.events):
                values = (less.context, less.events, tenant, conversation_id, position)
                transaction.execute(_UPDATE_RESULTS, values)
                deleted += 1
        query = "SELECT id, turns FROM versions WHERE tenant = ? AND created < ?"
        for version, turns in transaction.execute(query, (tenant, before)).fetchall():
            less = to_json([row_of_turn(without_results(StoredTurn(*turn))) for turn in json.loads(turns)])
            if less != turns:
                transaction.execute("UPDATE versions SET turns = ? WHERE id = ?", (less, version))
                deleted += 1
        query = "SELECT position, items, response FROM responses WHERE tenant = ? AND created < ?"
        for position, items, response in transaction.execute(query, (tenant, before)).fetchall():
            words = _response_words(json.loads(items), json.loads(response), keep_results=False)
            if words != (items, response):
                changed = (*words, position)
                transaction.execute("UPDATE responses SET items = ?, response = ? WHERE position = ?", changed)
                deleted += 1
        return deleted


@dataclass(eq=False)
class StoredResponses:
    """Responses of OpenAI's Responses API, each with the items of its request and a link to the one before.

    Methods raise ``StoreError`` if the file cannot be read or written.
    """

    database: Database
    limits: Limits = field(default_factory=Limits)

    def save(self, tenant: str, response: Mapping[str, Any], items: Sequence[Any], made_with: str = "") -> None:
        """Store a response with its items, and the name of the key it was made with; returns at once, never raises."""
        previous, now = response.get("previous_response_id") or "", time.time()
        stored = {**response, _MADE_WITH: made_with} if made_with else response
        words = _response_words(items, stored, keep_results=self.limits.current.history.keep_results)
        row = (tenant, response["id"], previous, *words, now)

        def insert(transaction: Transaction) -> None:
            transaction.execute(_INSERT_RESPONSE, row)
            transaction.execute(_DELETE_OLD_RESPONSES, (RESPONSES_KEPT,))
            limits = self.limits.read(transaction)
            if limits is not None and limits.history.days is not None:
                latest = self.limits.now(transaction)
                old = "DELETE FROM responses WHERE created < ? AND created > ?"
                transaction.execute(old, (latest - limits.history.days * DAY_S, latest - CLOCK_WAS_SET_S))

        self.database.tell(insert)

    async def chain(self, tenant: str, response_id: str) -> list[Any] | None:
        """Return the items up to a response, oldest first.

        None if one of the chain is not stored any more, or they are longer than any model reads.
        """
        values = {"tenant": tenant, "id": _utf8(response_id), "most": RESPONSES_KEPT, "characters": CHAIN_CHARACTERS}
        rows = await self.database.rows(_CHAIN, values)
        if not rows or rows[0][0]:
            return None
        return [item for _, items in rows for item in json.loads(items)]

    async def get(self, tenant: str, response_id: str) -> tuple[dict[str, Any] | None, str]:
        """Return a response, None if this tenant has none of that id, and the name of the key it was made with."""
        query = "SELECT response FROM responses WHERE tenant = ? AND id = ?"
        rows = await self.database.rows(query, (tenant, _utf8(response_id)))
        if not rows:
            return None, ""
        response = json.loads(rows[0][0])
        made_with = response.pop(_MADE_WITH, "")
        return response, made_with

    async def input_items(self, tenant: str, response_id: str) -> list[Any] | None:
        """Return the items of the request of a response, without those before; None if no such response exists."""
        query = "SELECT items, response FROM responses WHERE tenant = ? AND id = ?"
        rows = await self.database.rows(query, (tenant, _utf8(response_id)))
        if not rows:
            return None
        items, response = map(json.loads, rows[0])
        return items[: len(items) - len(response["output"])]

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Delete a response; return False if no response has that id."""
        query, values = "DELETE FROM responses WHERE tenant = ? AND id = ?", (tenant, _utf8(response_id))
        work = self.database.ask(lambda transaction: transaction.execute(query, values).rowcount, erases=True)
        return await work > 0
