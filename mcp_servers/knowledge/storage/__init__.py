"""One SQLite file per folder: what the knowledge bases hold, and the indexes that are searched.

    database    who may read and write when, and what SQLite's failures mean
    schema      the tables, and the steps from older files to them
    filters     who may see what, as a condition inside a query
    bases       knowledge bases and their numbers
    documents   a document in or out, with everything made of it, in one transaction
    texts       the text index of a base: terms in, ranked chunks out
    vectors     the vectors of a base by embedder, and which chunks still need one

Functions here take a connection inside a transaction and know nothing of models, of scores or of asking people.
"""
