"""Import of files and web pages: source -> passages -> chunks.

    reader          path, bytes or URL -> ParsedDocument
    parser_process  parses in a child process; parser_worker is its main program
    parse           bytes -> passages; encodings
    markdown html pdf office source_code plain_text    formats
    chunking        passages -> chunks
    folders         synchronise a knowledge base with a folder
    documents       values, limits, and the builder that the formats share

Storage is behind the protocol ``folders.DocumentStore``.
"""
