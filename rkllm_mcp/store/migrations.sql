-- The schema, one migration after the other, for ``store.database``. A migration that was released never changes.
-- A semicolon at the end of a line ends a statement, also in a comment.

-- migration 1
CREATE TABLE calls (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    arguments TEXT NOT NULL,
    ruling TEXT NOT NULL,
    is_error INTEGER NOT NULL,
    error TEXT NOT NULL,
    result_chars INTEGER NOT NULL,
    seconds REAL NOT NULL,
    conversation TEXT NOT NULL,
    request TEXT NOT NULL
);
CREATE INDEX calls_by_time ON calls (at);
CREATE TABLE grants (
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    kind TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (server, tool)
) WITHOUT ROWID;
CREATE TABLE switches (
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    is_on INTEGER NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (server, tool)
) WITHOUT ROWID;
CREATE TABLE texts (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    text TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;

-- migration 2
-- touched is a change counter: the order does not depend on the clock.
CREATE TABLE conversations (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    title TEXT NOT NULL,
    system TEXT,
    calls_made INTEGER NOT NULL,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    touched INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
CREATE INDEX conversations_by_change ON conversations (tenant, touched);
CREATE TABLE messages (
    tenant TEXT NOT NULL,
    conversation TEXT NOT NULL,
    position INTEGER NOT NULL,
    role TEXT NOT NULL,
    text TEXT NOT NULL,
    thinking TEXT NOT NULL,
    context TEXT NOT NULL,
    ending TEXT NOT NULL,
    created REAL NOT NULL,
    UNIQUE (tenant, conversation, position),
    FOREIGN KEY (tenant, conversation) REFERENCES conversations (tenant, id) ON DELETE CASCADE
);
CREATE INDEX calls_by_conversation ON calls (conversation);

-- migration 3
-- What an answer showed, as JSON events; options of a conversation's questions as JSON.
ALTER TABLE messages ADD COLUMN events TEXT NOT NULL DEFAULT '';
ALTER TABLE conversations ADD COLUMN settings TEXT NOT NULL DEFAULT '';
ALTER TABLE conversations ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
-- Earlier versions of a question with the turns behind it, as JSON; parent is the version that contains it.
CREATE TABLE versions (
    id INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    conversation TEXT NOT NULL,
    parent INTEGER REFERENCES versions (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    created REAL NOT NULL,
    turns TEXT NOT NULL,
    FOREIGN KEY (tenant, conversation) REFERENCES conversations (tenant, id) ON DELETE CASCADE
);
CREATE INDEX versions_by_place ON versions (tenant, conversation, parent, position);
CREATE INDEX versions_by_parent ON versions (parent);

-- migration 4
-- Of a client that continues a conversation by an id: its items and the answer's, as JSON.
CREATE TABLE responses (
    position INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    previous TEXT NOT NULL,
    items TEXT NOT NULL,
    response TEXT NOT NULL,
    created REAL NOT NULL,
    UNIQUE (tenant, id)
);

-- migration 5
-- Pictures of questions; a message names those that it has in its events.
CREATE TABLE pictures (
    tenant TEXT NOT NULL,
    conversation TEXT NOT NULL,
    digest TEXT NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (tenant, conversation, digest),
    FOREIGN KEY (tenant, conversation) REFERENCES conversations (tenant, id) ON DELETE CASCADE
);

-- migration 6
-- Changes that wait for the database that boards share. Numbers are never given again. writer is the process of an answer
-- that is not over; it changes its entry until then.
CREATE TABLE outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    change TEXT NOT NULL,
    writer TEXT NOT NULL,
    at REAL NOT NULL
);
CREATE TABLE shipped (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
-- What boards share; in one file there is one board. A board renews its row, and answers of a board without one are over.
CREATE TABLE boards (
    id TEXT PRIMARY KEY,
    until REAL NOT NULL
) WITHOUT ROWID;
-- The answer of a conversation: its number grows with each, board is empty when it is over.
CREATE TABLE answers (
    tenant TEXT NOT NULL,
    conversation TEXT NOT NULL,
    number INTEGER NOT NULL,
    board TEXT NOT NULL,
    is_cancelled INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, conversation),
    FOREIGN KEY (tenant, conversation) REFERENCES conversations (tenant, id) ON DELETE CASCADE
) WITHOUT ROWID;
-- Records of detached answers for readers at other boards, those up to number last; reader is the key that may read them.
CREATE TABLE answer_events (
    tenant TEXT NOT NULL,
    conversation TEXT NOT NULL,
    answer TEXT NOT NULL,
    reader TEXT NOT NULL,
    last INTEGER NOT NULL,
    records TEXT NOT NULL,
    is_end INTEGER NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (tenant, conversation, answer, last),
    FOREIGN KEY (tenant, conversation) REFERENCES conversations (tenant, id) ON DELETE CASCADE
) WITHOUT ROWID;
-- Questions for a person, as events; the answer is empty until somebody gives one.
CREATE TABLE questions (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    board TEXT NOT NULL,
    question TEXT NOT NULL,
    answer TEXT NOT NULL DEFAULT '',
    until REAL NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;

-- migration 7
-- Schedules: next_at is when one is due next, NULL if it is not; a run is claimed by changing it from its old value.
CREATE TABLE schedules (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    prompt TEXT NOT NULL,
    rule TEXT NOT NULL,
    zone TEXT NOT NULL,
    language TEXT NOT NULL,
    is_reminder INTEGER NOT NULL,
    is_quiet INTEGER NOT NULL,
    tools TEXT NOT NULL,
    webhook TEXT NOT NULL,
    webhook_form TEXT NOT NULL,
    secret TEXT NOT NULL,
    conversation TEXT NOT NULL,
    next_at REAL,
    state TEXT NOT NULL,
    failures INTEGER NOT NULL,
    created REAL NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
CREATE INDEX schedules_by_time ON schedules (tenant, next_at);
CREATE TABLE schedule_runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    schedule TEXT NOT NULL,
    due REAL NOT NULL,
    claimed REAL NOT NULL,
    ended REAL,
    outcome TEXT NOT NULL,
    text TEXT NOT NULL,
    delivery TEXT NOT NULL,
    conversation TEXT NOT NULL,
    board TEXT NOT NULL,
    UNIQUE (tenant, id),
    FOREIGN KEY (tenant, schedule) REFERENCES schedules (tenant, id) ON DELETE CASCADE
);
CREATE INDEX schedule_runs_by_schedule ON schedule_runs (tenant, schedule, number);
CREATE INDEX schedule_runs_by_outcome ON schedule_runs (tenant, outcome);

-- migration 8
-- What a person wants remembered in all their conversations; used is the time at which it was recalled last.
CREATE TABLE memories (
    id TEXT PRIMARY KEY,
    text TEXT NOT NULL,
    language TEXT NOT NULL,
    is_pinned INTEGER NOT NULL,
    state TEXT NOT NULL,
    source TEXT NOT NULL,
    created REAL NOT NULL,
    used REAL NOT NULL
) WITHOUT ROWID;
