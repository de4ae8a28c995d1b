-- Released migrations never change; another one is added at the end.

-- migration 1
CREATE TABLE base (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    uuid TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    tenant TEXT NOT NULL,
    created TEXT NOT NULL,
    analyzer INTEGER NOT NULL,
    chunks INTEGER NOT NULL DEFAULT 0,
    terms INTEGER NOT NULL DEFAULT 0,
    embedding INTEGER REFERENCES embedding(id),
    becoming INTEGER REFERENCES embedding(id)
);
-- The vectors of one embedder for a base; total is their sum, the direction of the base's documents;
-- changes lets a process detect that its vectors in memory are outdated.
CREATE TABLE embedding (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    base INTEGER NOT NULL REFERENCES base(id),
    embedder TEXT NOT NULL,
    dimensions INTEGER NOT NULL DEFAULT 0,
    vectors INTEGER NOT NULL DEFAULT 0,
    changes INTEGER NOT NULL DEFAULT 0,
    total BLOB NOT NULL DEFAULT x''
);
CREATE TABLE collection (
    id INTEGER PRIMARY KEY,
    uuid TEXT NOT NULL UNIQUE,
    base INTEGER NOT NULL REFERENCES base(id),
    name TEXT NOT NULL,
    UNIQUE (base, name)
);
CREATE TABLE document (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    uuid TEXT NOT NULL UNIQUE,
    base INTEGER NOT NULL REFERENCES base(id),
    collection INTEGER NOT NULL REFERENCES collection(id),
    title TEXT NOT NULL,
    uri TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    version INTEGER NOT NULL,
    chunks INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    department TEXT NOT NULL,
    clearance INTEGER NOT NULL,
    fields TEXT NOT NULL,
    created TEXT NOT NULL
);
CREATE INDEX document_by_uri ON document (base, uri, tenant);
CREATE INDEX document_by_content ON document (base, content_hash);
CREATE TABLE field (
    document INTEGER NOT NULL REFERENCES document(id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (document, name)
) WITHOUT ROWID;
-- Ids are never reused: they identify vectors in memory.
CREATE TABLE chunk (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    document INTEGER NOT NULL REFERENCES document(id) ON DELETE CASCADE,
    base INTEGER NOT NULL,
    position INTEGER NOT NULL,
    text TEXT NOT NULL,
    headings TEXT NOT NULL,
    page INTEGER
);
CREATE INDEX chunk_by_document ON chunk (document, position);
CREATE INDEX chunk_by_base ON chunk (base);
-- Term counts for the re-rank, apart from the text so that they are stored close together.
CREATE TABLE profile (
    chunk INTEGER PRIMARY KEY REFERENCES chunk(id) ON DELETE CASCADE,
    terms INTEGER NOT NULL,
    hashes BLOB NOT NULL,
    counts BLOB NOT NULL
);
CREATE TABLE vector (
    chunk INTEGER NOT NULL REFERENCES chunk(id) ON DELETE CASCADE,
    embedding INTEGER NOT NULL REFERENCES embedding(id),
    half_floats BLOB NOT NULL
);
CREATE UNIQUE INDEX vector_by_chunk ON vector (chunk, embedding);
CREATE INDEX vector_by_embedding ON vector (embedding, chunk);
