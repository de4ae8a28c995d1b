"""The services that the tests of several files ask; each test leaves them as they were."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.support.chat_script import OWN_TOOLS, RULES
from tests.support.program_cases import parrot
from tests.support.served import Served, scripted_model, served


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    """A service with the rules, tools and keys of ``tests/support/chat_script.py``."""
    folder = tmp_path_factory.mktemp("scripted")
    model = scripted_model(folder / "model", RULES, template="qwen3")
    with served(folder / "home", model, extra=OWN_TOOLS, is_for_the_session=True) as it:
        yield it


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    """A service with the model of ``shared/cases/programs``."""
    folder = tmp_path_factory.mktemp("programs")
    with served(folder, parrot(folder / "model"), is_for_the_session=True) as it:
        yield it
