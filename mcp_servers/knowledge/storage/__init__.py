"""Storage: one SQLite file per folder.

    database    transactions, schema and migrations, SQLite errors
    bases       knowledge bases; filters that enforce access
    documents   adding and removing documents with all index entries
    text_index  full-text index and term profiles
    vectors     vectors by embedder, and chunks without one

Functions take a connection inside a transaction.
"""
