"""Texts with misread long vowel marks, and the shares of them that the correction restores or alters."""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mcp_servers.knowledge.ocr.rules import correct_long_marks, listed_words
from tests.support.shared import REPOSITORY

DATA = REPOSITORY / "tests" / "data" / "ocr"
DASHES = "-‐‑‒–—―−－﹣─━˗"
FRAMES = (("", ""), ("これは", "です。"), ("新しい", "、"), ("「", "」"), ("", "社"))
AFTER_KATAKANA = ("", "データ", "サービスの", "タイプ")
LONG = "ー"
_FULL = (
    "ヴガギグゲゴザジズゼゾダヂヅデドバビブベボパピプペポァィゥェォャュョッアイウエオカキクケコサシスセソ"
    "タチツテトナニヌネノハヒフヘホマミムメモヤユヨラリルレロワヲンー"
)
_HALF = (
    "ｳﾞ ｶﾞ ｷﾞ ｸﾞ ｹﾞ ｺﾞ ｻﾞ ｼﾞ ｽﾞ ｾﾞ ｿﾞ ﾀﾞ ﾁﾞ ﾂﾞ ﾃﾞ ﾄﾞ ﾊﾞ ﾋﾞ ﾌﾞ ﾍﾞ ﾎﾞ ﾊﾟ ﾋﾟ ﾌﾟ ﾍﾟ ﾎﾟ "
    + " ".join("ｧｨｩｪｫｬｭｮｯｱｲｳｴｵｶｷｸｹｺｻｼｽｾｿﾀﾁﾂﾃﾄﾅﾆﾇﾈﾉﾊﾋﾌﾍﾎﾏﾐﾑﾒﾓﾔﾕﾖﾗﾘﾙﾚﾛﾜｦﾝｰ")
).split()
HALF_WIDTH = dict(zip(_FULL, _HALF, strict=True))


def kept_texts() -> list[str]:
    """Texts that must not change."""
    return _lines("keep.txt")


def mended_texts() -> list[tuple[str, str]]:
    """Misread texts with their originals."""
    pairs = [line.partition(" | ") for line in _lines("fix.txt")]
    return [(read, written) for read, _, written in pairs]


def half_width(word: str) -> str:
    """Return a katakana word in half-width letters where they exist."""
    return "".join(HALF_WIDTH.get(letter, letter) for letter in word)


def share_right(words: Iterable[str], mark: str, *, is_half: bool = False) -> float:
    """The share of words that come back from having every ー read as ``mark``, alone and in every frame."""
    right = total = 0
    for word in words:
        written = half_width(word) if is_half else word
        read = re.sub("[ーｰ]", mark, written)
        for before, after in FRAMES:
            total += 1
            right += correct_long_marks(f"{before}{read}{after}") == f"{before}{written}{after}"
    return right / total


def unlisted_words(shared: Path) -> list[str]:
    """Return the katakana words with ー of SudachiDict's synonyms that are not bundled."""
    with lzma.open(shared / "data" / "sudachi_synonyms.txt.xz", "rt", encoding="utf-8") as lines:
        words = {line.split(",")[8] for line in lines if line.count(",") > 8}
    return sorted(word for word in words - listed_words() if LONG in word and re.fullmatch("[ァ-ヺー]{2,}", word))


def hyphenated(texts: Iterable[str]) -> list[str]:
    """The English words, numbers and codes with hyphens in some texts."""
    found = {match for text in texts for match in re.findall(r"[0-9A-Za-z]+(?:-[0-9A-Za-z]+)+", text)}
    return sorted(found)


def share_altered(tokens: Sequence[str]) -> float:
    """The share of tokens in which anything changes, alone or behind Japanese."""
    texts = [f"{before}{token}" for token in tokens for before in AFTER_KATAKANA]
    return sum(correct_long_marks(text) != text for text in texts) / len(texts)


def paragraphs(shared: Path, name: str) -> list[str]:
    """The texts of one of the collections."""
    with lzma.open(shared / "cases" / "retrieval" / name / "corpus.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def restored(texts: Iterable[str]) -> tuple[float, int]:
    """The share of ー that come back in running text, and how many characters of the text as it was would change."""
    total = wrong = altered = 0
    for text in texts:
        read = correct_long_marks(text.replace(LONG, "-"))
        wrong += sum(a == LONG != b for a, b in zip(text, read, strict=True))
        total += text.count(LONG)
        altered += sum(a != b for a, b in zip(text, correct_long_marks(text), strict=True))
    return 1 - wrong / total, altered


def _lines(name: str) -> list[str]:
    lines = (DATA / name).read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]
