"""Every route of the service, in the order in which ``/openapi.json`` lists them; each stands in its module."""

from __future__ import annotations

from rkllm_mcp.surfaces.http import (
    board,
    chat_completions,
    conversations,
    embeddings,
    execute,
    health,
    models,
    offers,
    ollama,
    openapi,
    page,
    questions,
    rerank,
    scraping,
    tools,
)
from rkllm_mcp.surfaces.http.route import Route

ROUTES: tuple[Route, ...] = (
    *chat_completions.ROUTES,
    *models.ROUTES,
    *embeddings.ROUTES,
    *rerank.ROUTES,
    *ollama.ROUTES,
    *execute.ROUTES,
    *conversations.ROUTES,
    *tools.ROUTES,
    *questions.ROUTES,
    *offers.ROUTES,
    *board.ROUTES,
    *health.ROUTES,
    *scraping.ROUTES,
    *openapi.ROUTES,
    *page.ROUTES,
)
