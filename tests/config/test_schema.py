from __future__ import annotations

import math
from pathlib import Path

import jsonschema
import pytest

from rkllm_mcp.config.loading import configuration_schema, read_file
from rkllm_mcp.config.section import keep_alive_s

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_repositorys_configuration_fits_the_schema() -> None:
    jsonschema.validate(read_file(REPOSITORY / "models" / "demo" / "mcp_config.toml"), configuration_schema())


@pytest.mark.parametrize("wrong", [{"agnt": {}}, {"agent": {"max_rounds": "8"}}, {"servers": [{"name": "a"}]}])
def test_the_schema_refuses_what_the_reader_refuses(wrong: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, configuration_schema())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1h30m", 5400), ("250ms", 0.25), ("1.5m", 90), ("-1", math.inf), ("-5m", math.inf)],
)
def test_a_duration_is_seconds_or_numbers_with_units(text: str, seconds: float) -> None:
    assert keep_alive_s(text) == seconds


@pytest.mark.parametrize(
    "text", ["5mx", "x5m", "1h 30m", "m", "--5m", "", pytest.param("1" * 1_000_000 + "x", id="digits")]
)
def test_a_duration_with_anything_else_in_it_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        keep_alive_s(text)
