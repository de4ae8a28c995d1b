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
