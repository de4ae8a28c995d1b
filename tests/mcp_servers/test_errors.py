from __future__ import annotations

import re

import pytest

from mcp_servers.cloud.client import CloudError
from mcp_servers.errors import CatalogError
from mcp_servers.knowledge.errors import DocumentImportError, KnowledgeError
from mcp_servers.weather.errors import WeatherError
from tests.support.shared import REPOSITORY


def subclasses(kind: type[CatalogError]) -> set[type[CatalogError]]:
    return {kind, *(deeper for each in kind.__subclasses__() for deeper in subclasses(each))}


@pytest.mark.parametrize("base", [KnowledgeError, WeatherError, CloudError])
def test_a_servers_table_has_the_texts_of_exactly_the_errors_that_it_raises(base: type[CatalogError]) -> None:
    package = REPOSITORY / "mcp_servers" / base.__module__.split(".")[1]
    source = "".join(file.read_text("utf-8") for file in package.rglob("*.py"))
    raised = set(re.findall(rf'\b{base.__name__}\(\s*"(\w+)"', source)) | set(re.findall(r'\bkind = "(\w+)"', source))
    raised |= set(re.findall(r'\bkind = "\w+" if .+ else "(\w+)"', source))
    named = {each.__name__ for each in subclasses(base) - {base, DocumentImportError}}
    assert raised | named == set(base.catalog)
