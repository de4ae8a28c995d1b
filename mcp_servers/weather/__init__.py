"""The weather server: an MCP program that answers from the Japan Meteorological Agency's public forecasts.

Reading the package in this order is reading the path of one question:

    server       an MCP tool call -> the service -> an MCP result
    service      a place and days -> an answer
    gazetteer    a name in any spelling -> places                        spelling, areas, prefectures
    agency       a path on the agency's site -> a document                settings, store
    forecast     an office's file -> one area's days                      tables, phrases, codes
    sentences    days -> one sentence in Japanese, one in English         answers, errors

It knows nothing of the assistant that starts it; they meet over MCP alone.
"""
