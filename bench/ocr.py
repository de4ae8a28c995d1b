"""Accuracy of the OCR correction: misread long vowel marks that are corrected, and text that must not change.

    python bench/ocr.py [--json] [--shared FOLDER]

The shared folder has words that are not listed (SudachiDict's synonyms), the paragraphs (JSQuAD) and English words with
hyphens (SciFact, XQuAD); without it those rows are omitted.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mcp_servers.knowledge.ocr.rules import correct_long_marks, decisions, listed_words

REPOSITORY = Path(__file__).resolve().parents[1]
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


def milliseconds(text: str) -> float:
    """The best time of three for 10,000 characters of a text."""
    times: list[float] = []
    for _ in range(3):
        started = time.perf_counter()
        correct_long_marks(text)
        times.append(time.perf_counter() - started)
    return min(times) * 1000 * 10_000 / len(text)


def measured(words: Sequence[str], shared: Path) -> dict[str, Any]:
    """Return every figure that can be measured with the given folders."""
    long_words = sorted(word for word in words if LONG in word)
    keep, mend = kept_texts(), mended_texts()
    figures: dict[str, Any] = {
        "words": len(long_words),
        "right, any dash": min(share_right(long_words, dash) for dash in DASHES),
        "right, half width": share_right(long_words, "-", is_half=True),
        "right, 一": share_right(long_words, "一"),
        "unsure, alone": sum(_is_unsure(word.replace(LONG, "-")) for word in long_words) / len(long_words),
        "kept": f"{sum(correct_long_marks(text) == text for text in keep)} of {len(keep)}",
        "mended": f"{sum(correct_long_marks(read) == written for read, written in mend)} of {len(mend)}",
    }
    if (shared / "cases").is_dir():
        figures |= _in_running_text(shared)
    return figures


def _in_running_text(shared: Path) -> Mapping[str, Any]:
    japanese = paragraphs(shared, "jsquad")
    tokens = hyphenated([*paragraphs(shared, "scifact"), *paragraphs(shared, "xquad_en")])
    share, altered = restored(japanese)
    unlisted = unlisted_words(shared)
    whole = "\n".join(japanese)
    return {
        "unlisted words": len(unlisted),
        "right, unlisted": share_right(unlisted, "-"),
        "English tokens": len(tokens),
        "altered, English": share_altered(tokens),
        "paragraphs": len(japanese),
        "ー restored": share,
        "characters altered in clean paragraphs": altered,
        "ms per 10,000 characters, clean": milliseconds(whole),
        "ms per 10,000 characters, every ー misread": milliseconds(whole.replace(LONG, "-")),
    }


def _is_unsure(text: str) -> bool:
    return not all(place.is_sure for place in decisions(text))


def _lines(name: str) -> list[str]:
    lines = (DATA / name).read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _show(print_line: Callable[[str], None], figures: Mapping[str, Any]) -> None:
    for name, value in figures.items():
        print_line(f"{name:<45} {f'{value:.4f}' if isinstance(value, float) else value}")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    default = Path(os.environ.get("RKLLM_MCP_SHARED", REPOSITORY.parent / "shared"))
    parser.add_argument("--shared", type=Path, default=default, help="the folder with the collections")
    arguments = parser.parse_args()
    figures = measured(sorted(listed_words()), arguments.shared)
    if arguments.json:
        print(json.dumps(figures, ensure_ascii=False, indent=2))
    else:
        _show(print, figures)


if __name__ == "__main__":
    main()
