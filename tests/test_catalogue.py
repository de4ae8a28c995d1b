"""The catalogues of texts: complete in each language, and each text used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Formatter
from typing import Any, cast

import pytest

import rkllm_mcp
from rkllm_mcp.board.machine import Machine
from rkllm_mcp.catalogue import read_catalogue, translate
from rkllm_mcp.models.cards import list_models
from rkllm_mcp.models.compatibility import fitness
from rkllm_mcp.text import LANGUAGES, Language
from tests.support.board_trees import RK3588, plant
from tests.support.shared import REPOSITORY

# Functions whose argument is a key.
_READERS = frozenset(
    {"translate", "_translate", "sentence", "table", "_show_listing", "tell", "step", "is_agreed", "translate_text"}
)
# Tables with keys of a language's own: the words that a person may type; English sentences of doctor and of the models'
# cards, translated.
_OWN_KEYS = frozenset({"answer.send_keys", "setup.findings", "models.phrases"})


def blanks(entry: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The blanks of every sentence below ``entry``, and an empty one for the sentence itself."""
    if isinstance(entry, str):
        yield path, ""
        yield from ((path, name) for _, name, _, _ in Formatter().parse(entry) if name)
    elif isinstance(entry, Mapping):
        for key, value in cast("Mapping[str, Any]", entry).items():
            yield from () if key in _OWN_KEYS else blanks(value, f"{path}/{key}")
    else:
        for index, part in enumerate(cast("list[Any]", entry)):
            yield from blanks(part, f"{path}/{index}")


def constants() -> tuple[set[str], set[str]]:
    """Return all texts in the code, and those that are an argument of a reader of the catalogue."""
    everywhere: set[str] = set()
    arguments: set[str] = set()
    for file in Path(rkllm_mcp.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                everywhere.add(node.value)
            elif isinstance(node, ast.Call):
                function = node.func
                name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
                if name in _READERS:
                    inside = (inner for argument in node.args for inner in ast.walk(argument))
                    texts = (inner.value for inner in inside if isinstance(inner, ast.Constant))
                    arguments.update(text for text in texts if isinstance(text, str) and "." in text)
    return everywhere, arguments


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_the_same_texts_with_the_same_blanks(language: Language) -> None:
    assert sorted(blanks(read_catalogue(language).entries)) == sorted(blanks(read_catalogue("en").entries))


def test_every_text_is_used_and_every_used_text_exists() -> None:
    keys = set(read_catalogue("en").entries)
    everywhere, arguments = constants()
    # Of a count of one.
    assert sorted(key for key in keys - everywhere if key.removesuffix("_one") not in everywhere) == []
    sections = tuple({f"{key.partition('.')[0]}." for key in keys})
    assert sorted(key for key in arguments - keys if key.startswith(sections)) == []


@pytest.mark.parametrize("language", [language for language in LANGUAGES if language != "en"])
def test_every_model_of_the_catalogue_is_described_in_every_language(language: Language, tmp_path: Path) -> None:
    catalogue = read_catalogue(language)
    board = {**RK3588, "proc/meminfo": "MemTotal: 8000000 kB\nMemAvailable: 1000000 kB\n"}
    machine = Machine(plant(tmp_path / "board", board))
    checks = (
        (machine, "RK3588", 3 << 30),
        (machine, "RK3588", 0),
        (machine, "RK3576", 1),
        (Machine(tmp_path), None, 1),
    )
    reasons = [fitness(*check).reason for check in checks]
    ours = [*(folder.card.description for folder in list_models([REPOSITORY / "models"])), *reasons]
    assert [text for text in ours if catalogue.translate_text("models.phrases", text) == text] == []
    patterns = catalogue.table("models.phrases")
    assert [
        pattern for pattern in patterns if not any(text == pattern or re.fullmatch(pattern, text) for text in ours)
    ] == []


def test_a_value_is_inserted_and_not_read_as_a_template() -> None:
    assert translate("config.two_files", used="{other}", other="b") == "[Config: {other} of this folder is used, not b]"


JAPANESE_SENTENCE = re.compile("[ぁ-ゖ](?:。|ください|です|ます|ました|ません|でした)")
# Japanese that is not a text of a catalogue.
EXEMPT = {
    # Both languages of a result are put together word by word from the agency's data, and always sent together.
    "mcp_servers/weather/wording.py",
    # A prompt about Japanese texts alone.
    "mcp_servers/knowledge/ocr/normalize.py",
}


def test_no_module_has_its_own_japanese_sentence() -> None:
    modules = [file for folder in ("rkllm_mcp", "mcp_servers") for file in (REPOSITORY / folder).rglob("*.py")]
    sentences: set[str] = set()
    for file in modules:
        source = file.read_text("utf-8")
        if source.isascii() and "\\u" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            text = node.value if isinstance(node, ast.Constant) else None
            # A pattern is data: the words that it finds.
            if isinstance(text, str) and JAPANESE_SENTENCE.search(text) and "(?" not in text and "|" not in text:
                sentences.add(str(file.relative_to(REPOSITORY)))
    assert sorted(sentences ^ EXEMPT) == []


# By the word that the pages use, others for the same thing, which no text has.
ONE_WORD = {
    "文書": "ドキュメント",
    "メモリ": "メモリー",
    "タイトル": "題名",
    "許可": "承認",
    "ブラウザー": "ブラウザ(?!ー)",
    "サーバー": "サーバ(?!ー)",
    "フォルダー": "フォルダ(?!ー)",
    "ユーザー": "ユーザ(?!ー)",
    "端末": "機器",
}
JAPANESE_TEXTS = (
    "README.ja.md",
    *(str(page.relative_to(REPOSITORY)) for page in sorted(REPOSITORY.glob("docs/*.ja.md"))),
    "rkllm_mcp/catalogue.ja.json",
    "rkllm_mcp/phrases.ja.json",
    "rkllm_mcp/surfaces/web/js/phrases.ja.js",
)


@pytest.mark.parametrize("file", JAPANESE_TEXTS)
def test_a_thing_has_one_japanese_word_in_the_terminal_on_the_page_and_in_the_pages(file: str) -> None:
    text = (REPOSITORY / file).read_text("utf-8")
    # The appliances of a house.
    text = re.sub(r"^## Home Assistant$.*?(?=^## )", "", text, flags=re.MULTILINE | re.DOTALL)
    assert {word: found for word, other in ONE_WORD.items() if (found := re.findall(other, text))} == {}
