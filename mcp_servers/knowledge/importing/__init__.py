"""Files and pages -> titled passages -> chunks.

Reading it in this order is reading the path of one document:

    walking      a folder -> the files in it                          fetching, addresses   a URL -> its bytes
    reader       a path, bytes or a URL -> what was read: the front door
    isolation    the parse happens in a process of its own; child, its main program
    parsing      bytes -> passages, by format                         formats, encodings
    plain markdown source hypertext word pdf tables                   one format each; joining, pdf_layout
    chunking     passages -> chunks
    folders      a folder -> a knowledge base, and again when it changes; watching, as soon as it does

Nothing here knows how or where a knowledge base keeps its documents: that is behind the port ``folders.Importer``.
"""
