"""Who may see what -> a condition inside a query.

Conditions are over ``document`` (and ``base`` for bases). They are part of the statements that read, so what a person
may not see is never ranked, counted or fetched. Everything a caller gives is a parameter, never SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mcp_servers.knowledge.values import Access


@dataclass(frozen=True)
class Filter:
    """A condition over ``document`` with its parameters.

    Args:
        sql: a boolean expression; empty when every document passes.
        parameters: for its question marks, in order.
    """

    sql: str = ""
    parameters: tuple[object, ...] = ()

    @property
    def passes_everything(self) -> bool:
        """Whether nothing is filtered, so that the join can be saved."""
        return not self.sql

    def and_sql(self) -> str:
        """The condition to append to another one."""
        return f" AND {self.sql}" if self.sql else ""


def document_filter(access: Access, collection: str | None = None, fields: Mapping[str, str] | None = None) -> Filter:
    """Which documents a person may see, and of these the ones that were asked for."""
    conditions: list[tuple[str, tuple[object, ...]]] = []
    if not access.is_everyone:
        conditions += [
            ("document.tenant IN ('', ?)", (access.tenant,)),
            ("document.department IN ('', ?)", (access.department,)),
            ("document.clearance <= ?", (access.clearance,)),
        ]
    if collection is not None:
        conditions.append(("document.collection IN (SELECT id FROM collection WHERE name = ?)", (collection,)))
    conditions += [
        ("EXISTS (SELECT 1 FROM field WHERE field.document = document.id AND name = ? AND value = ?)", pair)
        for pair in (fields or {}).items()
    ]
    return Filter(" AND ".join(sql for sql, _ in conditions), tuple(p for _, pair in conditions for p in pair))


def base_filter(access: Access) -> Filter:
    """Which knowledge bases a person may see; the condition is over ``base``."""
    return Filter() if access.is_everyone else Filter("base.tenant IN ('', ?)", (access.tenant,))
