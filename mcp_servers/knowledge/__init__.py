"""MCP server that searches the owner's documents in Japanese and English.

Modules in the order of one request:

    settings        flags, environment and TOML -> Settings
    server, http    MCP over stdio or HTTP, plain JSON over HTTP; access, sampling
    tools           definitions of the tools (tools.json), their results and functions
    service         the tools: arguments -> library -> results; ingest adds documents
    library         facade over one data folder; validation of arguments and input
    search          the stages of a search; text_analysis, ocr
    embedding       embedders and rerankers
    storage         one SQLite file per folder
    importing       files and web pages -> chunks
    types, errors   shared values and exceptions

The package does not import ``rkllm_mcp``: host and server communicate over MCP only.
"""
