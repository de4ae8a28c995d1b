"""Tests of a store run on both: a file, and a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_servers.knowledge.storage.postgres import PostgresDatabase
from mcp_servers.knowledge.storage.sqlite import SQLiteDatabase
from mcp_servers.knowledge.storage.stores import Database
from tests.support.postgres import PostgresServer


@pytest.fixture(params=["file", pytest.param("PostgreSQL", marks=pytest.mark.system)])
def database_url(request: pytest.FixtureRequest) -> str:
    """The address of an unused database; empty for the file of a folder."""
    if request.param == "file":
        return ""
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
def database(tmp_path: Path, database_url: str) -> Iterator[Database]:
    """An unused store, in the folder of the test or at ``database_url``."""
    database = PostgresDatabase(database_url) if database_url else SQLiteDatabase(tmp_path)
    yield database
    database.close()
