"""Configuration and model card become the model's form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rkllm_mcp.app.model_form import model_form
from rkllm_mcp.config.loading import load_config
from rkllm_mcp.config.sections import Config
from rkllm_mcp.config.servers import RemoteServer, ServerConfig, StdioServer
from rkllm_mcp.errors import ModelNotFoundError
from rkllm_mcp.messages import ToolSpec
from rkllm_mcp.models.cards import ModelCard, ModelFolder
from rkllm_mcp.prompt.families import TEMPLATES
from tests.support.family_vocabulary import family_tokenizer

TOOL = ToolSpec("f", "Does it", {"type": "object", "properties": {"a": {"type": "string"}}})


def model_of(folder: Path, template: str, *, tokens_of: str | None = None, **card: Any) -> ModelFolder:
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_text(family_tokenizer(TEMPLATES[tokens_of or template]), "utf-8")
    return ModelFolder(folder, ModelCard(name="m", template=template, **card), folder / "m.rkllm", tokenizer)


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_family_is_ready_with_its_own_tokenizer(tmp_path: Path, template: str) -> None:
    form = model_form(Config(), model_of(tmp_path, template))
    assert (form.template, form.syntaxes, form.think) == (
        TEMPLATES[template],
        TEMPLATES[template].tool_form.syntaxes,
        False,
    )


@pytest.mark.parametrize(("listing", "line"), [("json", '{"type":"function"'), ("compact", "f(a?: string) — Does it")])
def test_tools_are_listed_as_the_owner_chose(tmp_path: Path, listing: str, line: str) -> None:
    config = Config.model_validate({"agent": {"tool_listing": listing}})
    head = model_form(config, model_of(tmp_path, "qwen3")).template.head("", [TOOL])
    assert f"\n{line}" in "".join(segment.text for segment in head)


@pytest.mark.parametrize(
    ("template", "setting", "mode"),
    [
        ("qwen2.5", "off", "off"),
        ("qwen3", "off", "auto"),
        ("qwen3", "auto", "auto"),
        ("qwen3.5", "off", "auto"),
        # The prompt itself opens the block as soon as the model is to think.
        ("qwen3.5", "auto", "open"),
        ("deepseek-r1", "open", "open"),
        ("gemma4", "open", "auto"),
    ],
)
def test_thinking_is_recognised_where_the_prompt_leaves_it(
    tmp_path: Path, template: str, setting: str, mode: str
) -> None:
    form = model_form(Config(), model_of(tmp_path, template, thinking=setting))
    assert (form.thinking, form.think) == (mode, setting != "off")


@pytest.mark.parametrize(
    ("template", "missing"), [("gemma3", "<end_of_turn>"), ("internlm2", "<s>"), ("llama3.2", "<|eot_id|>")]
)
def test_a_tokenizer_of_another_family_is_refused(tmp_path: Path, template: str, missing: str) -> None:
    model = model_of(tmp_path, template, tokens_of="qwen3")
    with pytest.raises(ModelNotFoundError, match=f"has no token {missing}".replace("|", r"\|")):
        model_form(Config(), model)


def spec_of(folder: Path, entry: str, head: str = "") -> ServerConfig:
    path = folder / "mcp_config.toml"
    path.write_text(f'{head}\n[[servers]]\nname = "a b"\n{entry}\n', encoding="utf-8")
    (spec,) = load_config(path).resolved_servers()
    return spec


@pytest.mark.parametrize(
    ("entry", "trusted"),
    [
        ('command = "${PYTHON}"\nargs = ["-m", "mcp_servers.weather"]', True),
        ('command = "${PYTHON}"\nargs = ["-m", "mcp_servers.weather"]\ntrusted = false', False),
        ('command = "python3"\nargs = ["-m", "mcp_servers.weather"]', False),
        ('command = "${PYTHON}"\nargs = ["-m", "mcp_server_time"]', False),
        ('command = "${PYTHON}"\nargs = ["mcp_servers.py"]', False),
        ('url = "http://h/mcp"', False),
        ('url = "http://h/mcp"\ntrusted = true', True),
        ('openapi_spec = "spec.json"', True),
    ],
)
def test_only_what_comes_with_us_is_believed_unasked(tmp_path: Path, entry: str, trusted: bool) -> None:
    assert spec_of(tmp_path, entry).trusted == trusted


def test_a_server_says_where_it_differs_from_the_security_section(tmp_path: Path) -> None:
    head = '[security]\napprove = "always"\nsandbox = true\nallowed_commands = ["x"]'
    plain = spec_of(tmp_path, 'command = "x"', head)
    assert isinstance(plain, StdioServer)
    assert plain.approve == "always"
    assert plain.sandbox is True
    assert (plain.sandbox_read, plain.sandbox_write, plain.sandbox_network) == ((), (), False)
    keys = 'approve = "never"\nalways_ask = ["rm"]\nalways_allow = ["ls"]\n'
    own = spec_of(tmp_path, f'command = "x"\nsandbox = false\n{keys}', head)
    assert isinstance(own, StdioServer)
    assert (own.approve, own.sandbox, own.always_ask, own.always_allow) == ("never", False, ("rm",), ("ls",))
    named = spec_of(tmp_path, 'command = "x"\nsandbox_write = ["notes"]\nsandbox_read = ["/srv"]', head)
    assert isinstance(named, StdioServer)
    assert named.sandbox is True
    assert (named.sandbox_read, named.sandbox_write) == ((Path("/srv"),), (tmp_path / "notes",))
    remote = spec_of(tmp_path, 'url = "http://h/mcp"', head)
    assert isinstance(remote, RemoteServer)
    assert remote.approve == "always"
