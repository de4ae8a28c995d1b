"""Import of files and web pages: source -> passages -> chunks.

    reader          path, bytes or URL -> ParsedDocument
    parser_process  parses in a child process; parser_worker is its main program
    parse           bytes -> passages, by detected format
    markdown html pdf mail source_code plain_text    formats
    office word spreadsheet open_document book       zipped XML: archives, equations, number_formats, word_numbers
    chunking        passages -> chunks
    folders         synchronise a knowledge base with a folder
    documents       values, limits, and the builder that the formats share

Storage is behind the protocol ``folders.DocumentStore``.
"""
