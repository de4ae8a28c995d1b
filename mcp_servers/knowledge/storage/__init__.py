"""Storage: one SQLite file per folder, or a PostgreSQL database for several servers.

    stores      types of a database and a transaction, of either store
    database    what both share
    sqlite      the file: schema and migrations, full-text tables, errors
    postgres    the database: schema and migrations, a table of postings, errors
    bases       knowledge bases; filters that enforce access
    documents   adding and removing documents with all index entries
    text_index  full-text index and term profiles
    vectors     vectors by embedder, and chunks without one

Functions take a transaction.
"""
