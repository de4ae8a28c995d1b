"""MCP server that answers from the Japan Meteorological Agency's (JMA) public forecasts.

    server       MCP tool call -> service -> MCP result
    service      place and number of days -> answer
    gazetteer    name in any spelling -> places                          areas
    jma_client   path on the agency's site -> document, cached           settings
    forecast     an office's forecast file -> the days of one area
    wording      days -> one sentence in Japanese and one in English     errors (errors.json)

The package does not import the assistant; they communicate over MCP only.
"""
