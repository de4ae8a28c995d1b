"""Search for the tools that fit a request, by names and descriptions, in English and Japanese.

    words      text -> terms
    glossary   synonyms of both languages
    ranking    BM25F score of the terms
    search     adds past calls and, if an embedding model is configured, semantic similarity

Works without a model or download; ranking a hundred tools takes a few milliseconds.
"""
