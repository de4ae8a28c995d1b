-- The tables that several boards share, one migration after the other, for ``store.postgres``. A migration that was
-- released never changes; it leaves what the version before reads and writes as it is (expand), and what no version uses any
-- more goes with the release after that (contract).
-- A semicolon at the end of a line ends a statement, also in a comment.

-- migration 1
CREATE SEQUENCE change_numbers;
CREATE TABLE conversations (
    tenant text NOT NULL DEFAULT current_setting('rkllm.tenant'),
    id text NOT NULL,
    title text NOT NULL,
    system text,
    calls_made bigint NOT NULL,
    created double precision NOT NULL,
    updated double precision NOT NULL,
    touched bigint NOT NULL DEFAULT nextval('change_numbers'),
    settings text NOT NULL DEFAULT '',
    pinned bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX conversations_by_change ON conversations (tenant, touched);
CREATE TABLE messages (
    tenant text NOT NULL DEFAULT current_setting('rkllm.tenant'),
    conversation text NOT NULL,
    position bigint NOT NULL,
    role text NOT NULL,
    text text NOT NULL,
    thinking text NOT NULL,
    context text NOT NULL,
    ending text NOT NULL,
    created double precision NOT NULL,
    events text NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, conversation, position),
    FOREIGN KEY (tenant, conversation) REFERENCES conversations (tenant, id) ON DELETE CASCADE
);
CREATE TABLE versions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL DEFAULT current_setting('rkllm.tenant'),
    conversation text NOT NULL,
    parent bigint REFERENCES versions (id) ON DELETE CASCADE,
    position bigint NOT NULL,
    created double precision NOT NULL,
    turns text NOT NULL,
    FOREIGN KEY (tenant, conversation) REFERENCES conversations (tenant, id) ON DELETE CASCADE
);
CREATE INDEX versions_by_place ON versions (tenant, conversation, parent, position);
CREATE INDEX versions_by_parent ON versions (parent);
CREATE TABLE responses (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL DEFAULT current_setting('rkllm.tenant'),
    id text NOT NULL,
    previous text NOT NULL,
    items text NOT NULL,
    response text NOT NULL,
    created double precision NOT NULL,
    UNIQUE (tenant, id)
);
CREATE TABLE calls (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL DEFAULT current_setting('rkllm.tenant'),
    at double precision NOT NULL,
    server text NOT NULL,
    tool text NOT NULL,
    arguments text NOT NULL,
    ruling text NOT NULL,
    is_error bigint NOT NULL,
    error text NOT NULL,
    result_chars bigint NOT NULL,
    seconds double precision NOT NULL,
    conversation text NOT NULL,
    request text NOT NULL
);
CREATE INDEX calls_by_tenant ON calls (tenant, id);
CREATE INDEX calls_by_conversation ON calls (tenant, conversation);
ALTER TABLE conversations ENABLE ROW LEVEL SECURITY;
ALTER TABLE conversations FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON conversations USING (tenant = current_setting('rkllm.tenant'));
ALTER TABLE messages ENABLE ROW LEVEL SECURITY;
ALTER TABLE messages FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON messages USING (tenant = current_setting('rkllm.tenant'));
ALTER TABLE versions ENABLE ROW LEVEL SECURITY;
ALTER TABLE versions FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON versions USING (tenant = current_setting('rkllm.tenant'));
ALTER TABLE responses ENABLE ROW LEVEL SECURITY;
ALTER TABLE responses FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON responses USING (tenant = current_setting('rkllm.tenant'));
ALTER TABLE calls ENABLE ROW LEVEL SECURITY;
ALTER TABLE calls FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON calls USING (tenant = current_setting('rkllm.tenant'));

-- migration 2
-- Permissions of tools, and of the texts the keys of devices, codes for them, and daily tokens.
CREATE TABLE grants (
    tenant text NOT NULL DEFAULT current_setting('rkllm.tenant'),
    server text NOT NULL,
    tool text NOT NULL,
    kind text NOT NULL,
    fingerprint text NOT NULL,
    at double precision NOT NULL,
    PRIMARY KEY (tenant, server, tool)
);
CREATE TABLE texts (
    tenant text NOT NULL DEFAULT current_setting('rkllm.tenant'),
    kind text NOT NULL,
    key text NOT NULL,
    text text NOT NULL,
    at double precision NOT NULL,
    PRIMARY KEY (tenant, kind, key)
);
ALTER TABLE grants ENABLE ROW LEVEL SECURITY;
ALTER TABLE grants FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON grants USING (tenant = current_setting('rkllm.tenant'));
ALTER TABLE texts ENABLE ROW LEVEL SECURITY;
ALTER TABLE texts FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON texts USING (tenant = current_setting('rkllm.tenant'));

-- migration 3
-- Pictures of questions; a message names those that it has in its events.
CREATE TABLE pictures (
    tenant text NOT NULL DEFAULT current_setting('rkllm.tenant'),
    conversation text NOT NULL,
    digest text NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (tenant, conversation, digest),
    FOREIGN KEY (tenant, conversation) REFERENCES conversations (tenant, id) ON DELETE CASCADE
);
ALTER TABLE pictures ENABLE ROW LEVEL SECURITY;
ALTER TABLE pictures FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON pictures USING (tenant = current_setting('rkllm.tenant'));

-- migration 4
-- A board renews its row, and answers of a board without one are over. The number of an answer grows with each of its
-- conversation, board is empty when it is over. shipped has the change of an outbox that came last.
CREATE TABLE boards (
    id text PRIMARY KEY,
    until double precision NOT NULL
);
CREATE TABLE answers (
    tenant text NOT NULL DEFAULT current_setting('rkllm.tenant'),
    conversation text NOT NULL,
    number bigint NOT NULL,
    board text NOT NULL,
    is_cancelled bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, conversation),
    FOREIGN KEY (tenant, conversation) REFERENCES conversations (tenant, id) ON DELETE CASCADE
);
CREATE TABLE answer_events (
    tenant text NOT NULL DEFAULT current_setting('rkllm.tenant'),
    conversation text NOT NULL,
    answer text NOT NULL,
    reader text NOT NULL,
    last bigint NOT NULL,
    records text NOT NULL,
    is_end bigint NOT NULL,
    at double precision NOT NULL,
    PRIMARY KEY (tenant, conversation, answer, last),
    FOREIGN KEY (tenant, conversation) REFERENCES conversations (tenant, id) ON DELETE CASCADE
);
CREATE TABLE questions (
    tenant text NOT NULL DEFAULT current_setting('rkllm.tenant'),
    id text NOT NULL,
    board text NOT NULL,
    question text NOT NULL,
    answer text NOT NULL DEFAULT '',
    until double precision NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE TABLE shipped (
    tenant text NOT NULL DEFAULT current_setting('rkllm.tenant'),
    id text NOT NULL,
    PRIMARY KEY (tenant, id)
);
ALTER TABLE answers ENABLE ROW LEVEL SECURITY;
ALTER TABLE answers FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON answers USING (tenant = current_setting('rkllm.tenant'));
ALTER TABLE answer_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE answer_events FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON answer_events USING (tenant = current_setting('rkllm.tenant'));
ALTER TABLE questions ENABLE ROW LEVEL SECURITY;
ALTER TABLE questions FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON questions USING (tenant = current_setting('rkllm.tenant'));
ALTER TABLE shipped ENABLE ROW LEVEL SECURITY;
ALTER TABLE shipped FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON shipped USING (tenant = current_setting('rkllm.tenant'));

-- migration 5
-- Tools and servers that are switched off, on every board.
CREATE TABLE switches (
    tenant text NOT NULL DEFAULT current_setting('rkllm.tenant'),
    server text NOT NULL,
    tool text NOT NULL,
    is_on integer NOT NULL,
    at double precision NOT NULL,
    PRIMARY KEY (tenant, server, tool)
);
ALTER TABLE switches ENABLE ROW LEVEL SECURITY;
ALTER TABLE switches FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON switches USING (tenant = current_setting('rkllm.tenant'));

-- migration 6
-- Schedules: next_at is when one is due next, NULL if it is not; a run is claimed by changing it from its old value.
CREATE TABLE schedules (
    tenant text NOT NULL DEFAULT current_setting('rkllm.tenant'),
    id text NOT NULL,
    prompt text NOT NULL,
    rule text NOT NULL,
    zone text NOT NULL,
    language text NOT NULL,
    is_reminder bigint NOT NULL,
    is_quiet bigint NOT NULL,
    tools text NOT NULL,
    webhook text NOT NULL,
    webhook_form text NOT NULL,
    secret text NOT NULL,
    conversation text NOT NULL,
    next_at double precision,
    state text NOT NULL,
    failures bigint NOT NULL,
    created double precision NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX schedules_by_time ON schedules (tenant, next_at);
CREATE TABLE schedule_runs (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL DEFAULT current_setting('rkllm.tenant'),
    id text NOT NULL,
    schedule text NOT NULL,
    due double precision NOT NULL,
    claimed double precision NOT NULL,
    ended double precision,
    outcome text NOT NULL,
    text text NOT NULL,
    delivery text NOT NULL,
    conversation text NOT NULL,
    board text NOT NULL,
    UNIQUE (tenant, id),
    FOREIGN KEY (tenant, schedule) REFERENCES schedules (tenant, id) ON DELETE CASCADE
);
CREATE INDEX schedule_runs_by_schedule ON schedule_runs (tenant, schedule, number);
CREATE INDEX schedule_runs_by_outcome ON schedule_runs (tenant, outcome);
ALTER TABLE schedules ENABLE ROW LEVEL SECURITY;
ALTER TABLE schedules FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON schedules USING (tenant = current_setting('rkllm.tenant'));
ALTER TABLE schedule_runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE schedule_runs FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON schedule_runs USING (tenant = current_setting('rkllm.tenant'));

-- migration 7
-- What a person wants remembered in all their conversations.
CREATE TABLE memories (
    tenant text NOT NULL DEFAULT current_setting('rkllm.tenant'),
    id text NOT NULL,
    text text NOT NULL,
    language text NOT NULL,
    is_pinned bigint NOT NULL,
    state text NOT NULL,
    source text NOT NULL,
    created double precision NOT NULL,
    used double precision NOT NULL,
    PRIMARY KEY (tenant, id)
);
ALTER TABLE memories ENABLE ROW LEVEL SECURITY;
ALTER TABLE memories FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON memories USING (tenant = current_setting('rkllm.tenant'));
