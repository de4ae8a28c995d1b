"""Answers for programs that send the whole conversation with every request, as OpenAI's and Ollama's clients do.

    request ─▶ ChatRequest ─▶ Threads: the conversation that it goes on with ─▶ Exchange: events ─▶ response or chunks

``openai_body`` and ``openai_request`` read OpenAI's shape and ``openai_reply`` writes it; everything between knows no
protocol. Nothing here knows HTTP.
"""
