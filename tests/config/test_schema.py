from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from rkllm_mcp.config.loading import configuration_schema, read_file

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_repositorys_configuration_fits_the_schema() -> None:
    jsonschema.validate(read_file(REPOSITORY / "models" / "demo" / "mcp_config.toml"), configuration_schema())


@pytest.mark.parametrize("wrong", [{"agnt": {}}, {"agent": {"max_rounds": "8"}}, {"servers": [{"name": "a"}]}])
def test_the_schema_refuses_what_the_reader_refuses(wrong: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, configuration_schema())
