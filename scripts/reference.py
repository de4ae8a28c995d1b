"""Write the generated parts of docs/ again: keys of the configuration and of model cards, commands, API parameters.

Each is between ``<!-- NAME -->`` and ``<!-- end of NAME -->``; the rest is written by hand. A test compares.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import typer
from typer.main import get_command

from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.config.sections import Config
from rkllm_mcp.config.servers import SERVER_TYPES, ServerBase
from rkllm_mcp.diagnostics.report import figures_of, settled_unknowns
from rkllm_mcp.models.cards import ModelCard, list_models
from rkllm_mcp.prompt.families import TEMPLATES
from rkllm_mcp.sampling import OPTIONS, Api
from rkllm_mcp.surfaces.cli.main import app
from rkllm_mcp.surfaces.cli.options import examples, parameter_help, typed_name, usage
from rkllm_mcp.surfaces.http.app import ROUTES
from rkllm_mcp.surfaces.http.errors import NOT_OFFERED, OLLAMA
from rkllm_mcp.toolcalls.formats import SYNTAXES

ENGLISH = read_catalogue("en")
REPOSITORY = Path(__file__).resolve().parents[1]
BOARD_REPORTS = REPOSITORY / "docs" / "boards"
Schema = Mapping[str, Any]


def configuration() -> str:
    """Every section of a configuration file."""
    schema = Config.model_json_schema()
    parts: list[str] = []
    for name, field in schema["properties"].items():
        if name == "servers":
            parts += list(_servers())
            continue
        section = _resolved(field, schema)
        title = f"[[{name}]]" if field.get("type") == "array" else f"[{name}]"
        parts += [f"### `{title}`", section["description"], _key_table(section, schema)]
        parts += list(_tables_in(name, section, schema))
    return "\n\n".join(parts)


def _tables_in(name: str, section: Schema, whole: Schema) -> Iterator[str]:
    """The tables that are in a section."""
    for key, field in section["properties"].items():
        table = _resolved(field, whole)
        if "properties" in table and field.get("type") != "array":
            yield f"#### `[{name}.{key}]`"
            yield table["description"].replace("\n", " ")
            yield _key_table(table, whole)


def _servers() -> Iterator[str]:
    common = ServerBase.model_json_schema()
    yield "### `[[servers]]`"
    yield "Where tools come from. Every server has:"
    yield _key_table(common, common)
    for kind in SERVER_TYPES.values():
        schema = kind.model_json_schema()
        own = {key: field for key, field in schema["properties"].items() if key not in common["properties"]}
        names = ", ".join(f"`{value}`" for value in _choices(own["transport"], schema))
        yield f"#### {names}"
        yield schema["description"]
        yield _key_table({**schema, "properties": own}, schema)


def model_card() -> str:
    """Every key of a model.toml."""
    schema = ModelCard.model_json_schema()
    return _key_table(schema, schema)


def _key_table(section: Schema, whole: Schema) -> str:
    required = section.get("required", [])
    rows = [
        (
            f"`{key}`",
            _type(field, whole),
            "required" if key in required else _default(field),
            _meaning(field),
        )
        for key, field in section["properties"].items()
    ]
    return _table(("key", "value", "default", "meaning"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _meaning(field: Schema) -> str:
    return str(field.get("description", "")).replace("\n", " ")


def _default(field: Schema) -> str:
    value = field.get("default")
    if value in (None, [], {}) or isinstance(value, dict) or "$ref" in field:
        return ""
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def _type(field: Schema, whole: Schema) -> str:
    options = [option for option in field.get("anyOf", []) if option.get("type") != "null"]
    if len(options) > 1:
        return " or ".join(_type(option, whole) for option in options)
    if field.get("type") == "array":
        items = field.get("items", {})
        return "list of tables" if "$ref" in items else f"list of {_type(items, whole)}"
    if choices := _choices(field, whole):
        return " · ".join(f"`{json.dumps(choice)}`" for choice in choices)
    field = _resolved(field, whole)
    plain = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
    if field.get("type") == "array":
        return _type(field, whole)
    return plain.get(str(field.get("type")), "table") + _limits(field)


def _limits(field: Schema) -> str:
    words = {"exclusiveMinimum": "above", "minimum": "from", "exclusiveMaximum": "below", "maximum": "to"}
    found = [f"{word} {field[key]:g}" for key, word in words.items() if key in field]
    return f", {' '.join(found)}" if found else ""


def _choices(field: Schema, whole: Schema) -> list[Any]:
    field = _resolved(field, whole)
    return [field["const"]] if "const" in field else list(field.get("enum", []))


def _resolved(field: Schema, whole: Schema) -> Schema:
    """The schema after a reference, an optional value or a list of tables."""
    if "$ref" in field:
        return whole["$defs"][field["$ref"].rpartition("/")[2]]
    if "anyOf" in field:
        return _resolved(next(option for option in field["anyOf"] if option.get("type") != "null"), whole)
    if field.get("type") == "array" and "$ref" in field.get("items", {}):
        return _resolved(field["items"], whole)
    return field


def command_line() -> str:
    """Every command with its arguments and options."""
    root = get_command(app)
    return "\n\n".join(_commands(root, typer.Context(root, info_name="rkllm-mcp"), "rkllm-mcp"))


def _commands(command: Any, context: Any, path: str) -> Iterator[str]:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    children: list[str] = command.list_commands(context) if hasattr(command, "list_commands") else []
    yield f"### `{path}`"
    yield str(command.help or "").split("\f")[0].strip()
    typed = [f"    $ {line}" for line in examples(path, children)]
    yield "\n".join([f"    {usage(command, path)}", "", *typed]).rstrip()
    own = [*arguments, *(option for option in options if "--help" not in option.opts)]
    rows = [(f"`{typed_name(parameter)}`", parameter_help(parameter, ENGLISH)) for parameter in own]
    if rows:
        yield _table(("", "meaning"), rows)
    for name in children:
        _, child, _ = command.resolve_command(context, [name])
        yield from _commands(child, typer.Context(child, parent=context, info_name=name), f"{path} {name}")


_APIS = ("/v1/chat/", "/v1/responses", "/v1/completions", "/v1/embeddings", "/v1/rerank", "/v1/messages", "/v1/models")


def parameters() -> str:
    """Every route of OpenAI's, Anthropic's and Ollama's API, and what becomes of the parameters of a request."""
    rows: list[tuple[str, ...]] = []
    for route in ROUTES:
        if not route.path.startswith((*_APIS, OLLAMA)):
            continue
        fields = route.body.model_fields if route.body else {}
        refused: Mapping[str, Sequence[Any]] = getattr(route.body, "REFUSED", {})
        ignored = [*getattr(route.body, "IGNORED", ())]
        for name, each in fields.items():
            parts = [part for part in (each.annotation, *get_args(each.annotation)) if isinstance(part, type)]
            ignored += [f"{each.alias or name}.{inner}" for part in parts for inner in getattr(part, "IGNORED", ())]
        answered = [each.alias or name for name, each in fields.items() if name not in (*refused, *ignored)]
        refusals = [f"`{name}`{_but(harmless)}: {advice}" for name, (advice, *harmless) in refused.items()]
        address = re.sub(r":path\}", "}", f"`{route.method} {route.path}`")
        rows.append((address, _listed(answered), _listed(sorted(ignored)), "; ".join(refusals)))
    rows += [(f"`{path}…`", "", "", f"the whole of it: {advice}") for path, advice in NOT_OFFERED.items()]
    return _table(("route", "answered", "ignored", "refused with a 400"), rows)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _but(harmless: Sequence[Any]) -> str:
    return f" other than {' or '.join(f'`{json.dumps(value)}`' for value in harmless)}" if harmless else ""


def sampling() -> str:
    """Every sampling option with its range, its effect and its names in the APIs."""
    apis: Mapping[str, Sequence[Api]] = {
        "OpenAI's": ("openai", "compatible"),
        "Anthropic's": ("anthropic",),
        "Ollama's": ("ollama",),
    }
    rows = [
        (
            f"`{name}`",
            f"{'whole number, ' if option.is_whole else ''}{option.least:g} to {option.most:g}",
            option.help,
            option.since,
            *(_listed(name for api in group for name in option.names.get(api, ())) for group in apis.values()),
        )
        for name, option in OPTIONS.items()
    ]
    return _table(("option", "range", "effect", "for one answer since runtime", *apis), rows)


def page_sampling() -> str:
    """The options for the page."""
    rows = [[name, each.least, each.most, "integer" if each.is_whole else "number"] for name, each in OPTIONS.items()]
    lines = "".join(f"  {json.dumps(row)},\n" for row in rows)
    return f"/** @type {{[string, number, number, string][]}} */\nconst SAMPLING = [\n{lines}];"


def templates() -> str:
    """Every chat template in words."""
    heads = ("template", "for", "turns", "tools are listed", "calls are written", "results come back", "thinking")
    rows = [(f"`{name}`", *TEMPLATES.about(name).values()) for name in TEMPLATES]
    return _table(heads, rows)


def _cards() -> list[ModelCard]:
    return [model.card for model in list_models([REPOSITORY / "models"])]


def catalogue() -> str:
    """Every model of the catalogue with what others measured of it."""
    heads = ("name", "for", "template", "context", "tokens/s", "first token ms", "memory MB")
    rows: list[Sequence[str]] = []
    for card in _cards():
        if card.source is None:
            continue
        speed, shares = card.published, card.tool_calls
        measured = (speed.decode_tokens_per_second, speed.ttft_ms, speed.memory_mb) if speed else (None, None, None)
        told = (shares.single_percent, shares.live_percent, shares.several_turns_percent) if shares else ()
        file = f"`{card.source.repository}`" if card.source.repository else "convert it"
        names = (f"`{card.name}`", card.task, f"`{card.template}`", str(card.context_tokens))
        rows.append((*names, *map(_figure, measured), _figures(told), file))
    return _table((*heads, "right calls: one turn / live / several turns", ".rkllm file"), rows)


def gguf_files() -> str:
    """Every model that there is as a GGUF file."""
    cards = [(card.name, card.cpu) for card in _cards()]
    rows = [(f"`{name}`", str(cpu.size_mb), cpu.licence, cpu.good_for) for name, cpu in cards if cpu is not None]
    return _table(("name", "MB", "licence", "good for"), rows)


def catalogue_sampling() -> str:
    """The sampling of every card, those that are the same in one row, and where it was found."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for card in _cards():
        if card.task == "chat" and not card.emulated:
            own, thinking = card.sampling.model_dump(), card.sampling.thinking.model_dump()
            names = ("temperature", "top_p", "top_k", "repeat_penalty", "presence_penalty")
            told = [thinking[name] for name in names[:3] if thinking[name] is not None]
            source = (card.sampling.source or "no recommendation found", card.sampling.read_in)
            row = (*(_figure(own[name]) for name in names), _figures(told), *source)
            rows.setdefault(row, []).append(f"`{card.name}`")
    heads = ("models", "temperature", "top_p", "top_k", "repetition", "presence")
    written = [(", ".join(models), *row) for row, models in rows.items()]
    return _table((*heads, "thinking: temperature / top_p / top_k", "stated in", "read in"), written)


def _figure(number: float | None) -> str:
    return "" if number is None else f"{number:.10g}"


def _figures(numbers: Sequence[float | None]) -> str:
    return " / ".join(map(_figure, numbers))


def syntaxes() -> str:
    """Every syntax with an example of each of its forms."""
    rows = [
        (
            f"`{name}`",
            syntax.models,
            "<br>".join(_code(form.example) for form in syntax.formats),
            f"`{syntax.thinking}`",
        )
        for name, syntax in SYNTAXES.items()
    ]
    return _table(("syntax", "models", "a call", "thinking"), rows)


def _code(text: str) -> str:
    """Return a text on one line, as code; FENCE stands for three backticks, which would end it."""
    return f"`{' '.join(text.replace('```', 'FENCE ').split())}`"


# Generated parts: the file, the name in the marks around the part, and what writes it.
# What the columns of the boards in docs/performance.md are called, and the keys of a report's board.
_BOARD = {"board": "name", "SoC": "soc", "kernel": "kernel", "rknpu": "driver", "model": "model"}


def board_table(reports: Sequence[Mapping[str, Any]]) -> str:
    """The boards of these reports with their figures, and the open questions that they settle."""
    if not reports:
        return "No report has come in yet, so this page has no board."
    by_name = sorted(reports, key=lambda report: (str(report["board"]["name"]), str(report["board"]["model"])))
    heads = [*_BOARD, "librkllmrt.so", *figures_of(by_name[0]), "measured"]
    rows = [
        [
            *(str(report["board"][key] or "-") for key in _BOARD.values()),
            report.get("runtime", {}).get("version", "-"),
            *figures_of(report).values(),
            report["date"],
        ]
        for report in by_name
    ]
    settled: dict[str, list[str]] = {}
    for report in by_name:
        version = report.get("runtime", {}).get("version", "-")
        for title, found in settled_unknowns(report):
            settled.setdefault(title, []).append(f"{report['board']['name']}, {version}: {found}")
    asked = [[title, "; ".join(dict.fromkeys(found)).replace("|", "\\|")] for title, found in settled.items()]
    parts = [_grid(heads, rows)]
    return "\n\n".join([*parts, *([_grid(["asked", "found"], asked)] if asked else [])])


def _grid(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [" | ".join(row) for row in (heads, ["---"] * len(heads), *rows)]
    return "\n".join(f"| {line} |" for line in lines)


def boards(folder: Path = BOARD_REPORTS) -> str:
    """The reports in a folder.

    Raises:
        ValueError: one of them was made with the emulated NPU.
    """
    reports = {path.name: json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))}
    if emulated := [name for name, report in reports.items() if report["emulated"]]:
        raise ValueError(f"{', '.join(emulated)}: an emulated board says nothing about a board; remove the file")
    return board_table([*reports.values()])


BLOCKS: Sequence[tuple[str, str, Callable[[], str]]] = (
    ("docs/configuration.md", "configuration", configuration),
    ("docs/models.md", "model card", model_card),
    ("docs/models.md", "templates", templates),
    ("docs/models.md", "catalogue", catalogue),
    ("docs/models.md", "GGUF files", gguf_files),
    ("docs/models.md", "sampling", catalogue_sampling),
    ("docs/toolcalls.md", "syntaxes", syntaxes),
    ("docs/cli.md", "command line", command_line),
    ("docs/performance.md", "boards", boards),
    ("docs/openai.md", "parameters", parameters),
    ("docs/openai.md", "sampling", sampling),
    ("rkllm_mcp/surfaces/web/js/dialogs/settings.js", "sampling", page_sampling),
)


def regenerated(page: str, name: str, make: Callable[[], str]) -> str:
    """The page with a generated part written again.

    Raises:
        ValueError: the page has no such part.
    """
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    gap, mark = ("\n", "// ") if page.endswith(".js") else ("\n\n", "")
    begin, end = f"{mark}<!-- {name} -->", f"{mark}<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{page} has no {begin} … {end}")
    return f"{before}{begin}{gap}{make()}{gap}{end}{after}"


def main() -> None:
    """Write every generated part."""
    for page, name, make in BLOCKS:
        (REPOSITORY / page).write_text(regenerated(page, name, make), encoding="utf-8")


if __name__ == "__main__":
    main()
