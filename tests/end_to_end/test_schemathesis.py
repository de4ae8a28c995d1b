"""Schemathesis reads the published openapi.json and tries to find an answer that is not as it says.

    with a key ─▶ every boundary of every field, the key left out and wrong
    without    ─▶ made-up requests

Seeds are fixed and the examples few. A longer search is the same with more arguments:

    SCHEMATHESIS="--max-time 300 --seed 7" pytest tests/end_to_end/test_schemathesis.py
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.chat_script import RULES
from tests.support.clients import client, scripted_demo, serving
from tests.support.feature_demo import DESK
from tests.support.served import ranking_model, scripted_model

KEY = "the-key"
CALCULATOR = """
[[servers]]
name = "own"
transport = "builtin"
tools = [{ name = "calculator" }]
"""
# A run, or an answer, that takes this long has found a hang; how fast a machine is, is no mistake of the service.
PATIENCE_S, ANSWER_S = 1200, 300
LIMITS = ["--max-response-time", f"{ANSWER_S}", "--request-timeout", f"{ANSWER_S}"]
ALWAYS = ["--checks", "all", "--seed", "1", "--continue-on-failure", "--no-color", *LIMITS]
WITH_A_KEY = ["--phases", "coverage,stateful", "--max-examples", "4", "--header", f"Authorization: Bearer {KEY}"]
WITHOUT = ["--phases", "fuzzing", "--max-examples", "6"]
# Names that there are, among made-up ones. All checks are on; what they may not ask of a route is said here.
CONFIGURATION = """
[dictionaries]
names = { values = ["parrot", "calculator", "own", "desk", "code_review", "memo://monday"] }

[generation]
database = "none"
dictionaries = { string = { dictionary = "names", probability = 0.3 } }

# 422 says that a field is not what the description says, or that the answer has not the form that was asked for.
# 400 says that it cannot be done, for reasons that no schema tells: results without their calls, an id that the model
# does not have, a form that cannot be.
[[operations]]
include-path = [
    "/v1/chat/completions", "/v1/responses", "/v1/responses/input_tokens", "/v1/completions", "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/embeddings", "/v1/rerank", "/api/chat", "/api/generate", "/api/embed", "/v1/schedules", "/v1/schedules:read",
]
[operations.checks]
positive_data_acceptance = { expected-statuses = ["2xx", 400, 404, 422, 429] }
# What breaks the limit of a list may be too large as a whole.
negative_data_rejection = { expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429, "5xx"] }

# Whether an address exists, the MCP server alone knows; its refusal is a 502.
[[operations]]
include-path = "/v1/resources/read"
checks = { not_a_server_error = { expected-statuses = ["2xx", "4xx", 502] } }

# With POST a program means a conversation of OpenAI's API, and is told that there are none: a 404.
[[operations]]
include-path = "/v1/conversations"
phases = { coverage = { unexpected-methods = ["DELETE", "PATCH", "PUT", "TRACE"] } }

# They ask a service of others, which may be away.
[[operations]]
include-path = ["/v1/models/hub", "/v1/servers/registry"]
checks = { not_a_server_error = { expected-statuses = ["2xx", "4xx", 503] } }

# No program for speech is configured.
[[operations]]
include-path = ["/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/speech", "/v1/audio/voices"]
[operations.checks]
not_a_server_error = { expected-statuses = ["2xx", "4xx", 501] }
positive_data_acceptance = { expected-statuses = ["2xx", 400, 501] }
negative_data_rejection = { expected-statuses = ["4xx", 501] }
"""


@pytest.mark.parametrize("has_key", [True, False], ids=["with a key", "without a key"])
def test_nothing_answers_otherwise_than_it_is_published(tmp_path: Path, has_key: bool) -> None:
    program = client("schemathesis")
    (tmp_path / "schemathesis.toml").write_text(CONFIGURATION, "utf-8")
    # The first asks for as many documents as may be, time and again, which is not a test of a model that ranks them.
    own = f'api_keys = ["{KEY}"]' if has_key else f'ranking_model = "{ranking_model(tmp_path / "judge")}"'
    extra = f'[service]\nmodel_aliases = ["0"]\n{own}\n{CALCULATOR}'
    demo = scripted_demo(tmp_path / "home", scripted_model(tmp_path / "model", RULES, template="qwen3"), [DESK], extra)
    arguments = [*ALWAYS, *(WITH_A_KEY if has_key else WITHOUT), *os.environ.get("SCHEMATHESIS", "").split()]
    with serving(demo) as service:
        done = subprocess.run(
            [program, "--config-file", "schemathesis.toml", "run", f"{service.url}/openapi.json", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[0-9]+ generated, [0-9]{2,} passed", done.stdout), done.stdout
