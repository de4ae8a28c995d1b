"""The knowledge server: an MCP program that finds passages in the owner's documents, in Japanese and English.

Reading the package in this order is reading the path of one question:

    options      flags, variables, a file -> settings; opening: settings -> an open service
    server       an MCP tool call -> a tool -> an MCP result                 stdio, http, door, access, sampling
    tools        arguments -> the service -> an answer                       arguments, answers
    service      what the tools do, whoever asks                             adding, filing
    library      a question and who asks -> passages with their scores
    search       the stages of a search, each a function                     analysis, ocr
    embedding    texts -> vectors, pairs -> relevance: ports to models
    storage      one SQLite file per folder
    importing    files and pages -> titled chunks                            values, problems

It knows nothing of the assistant that starts it; they meet over MCP alone.
"""
