"""Write mcp_servers/knowledge/ocr/katakana.txt: the katakana words of a MeCab dictionary, without their compounds.

    python -m scripts.katakana_lexicon FOLDER      # /usr/share/mecab/dic/ipadic of Debian's package mecab-ipadic

FOLDER holds the dictionary's sources, CSV in EUC-JP. A word that falls apart into other words of the list is left out,
because the rules put compounds together themselves. Run by hand; the result is committed, with the dictionary's
notice, which has to stay with any copy, at its head.
"""

from __future__ import annotations

import csv
import re
import sys
import textwrap
from collections.abc import Collection, Iterable
from itertools import groupby
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
TARGET = REPOSITORY / "mcp_servers" / "knowledge" / "ocr" / "katakana.txt"
KATAKANA = re.compile(r"[ァ-ヴー]{2,}")
# No word begins with these, so none is cut before them.
NEVER_FIRST = frozenset("ーァィゥェォャュョッン")
# Shorter parts stand in other words by chance.
SHORTEST_PART = 3
WIDTH = 110


def dictionary_words(folder: Path) -> set[str]:
    """The words of a MeCab dictionary that are written in katakana alone."""
    words: set[str] = set()
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="euc-jp", newline="") as file:
            words |= {row[0] for row in csv.reader(file) if KATAKANA.fullmatch(row[0])}
    return words


def is_compound(word: str, words: Collection[str]) -> bool:
    """Return True if a word is a compound of two or more of the others."""
    # Where the beginning of the word can be cut into words.
    cuts = {0}
    for end in range(SHORTEST_PART, len(word) + 1):
        starts = (start for start in cuts if end - start >= SHORTEST_PART and word[start] not in NEVER_FIRST)
        if any(word[start:end] in words for start in starts if (start, end) != (0, len(word))):
            cuts.add(end)
    return len(word) in cuts


def written(words: Iterable[str], notice: str) -> str:
    """The file: the notice, then the words by their first letter."""
    lines = [f"# {line}".rstrip() for line in notice.splitlines()]
    for _, group in groupby(sorted(words), key=lambda word: word[0]):
        lines += textwrap.wrap(" ".join(group), WIDTH, break_long_words=False)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the list."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    words = dictionary_words(Path(sys.argv[1]))
    kept = [word for word in words if not is_compound(word, words)]
    head = [line for line in TARGET.read_text("utf-8").splitlines() if line.startswith("#")]
    notice = "\n".join(line[2:] for line in head)
    TARGET.write_text(written(kept, notice), encoding="utf-8")
    print(f"{TARGET.relative_to(REPOSITORY)}: {len(kept)} of {len(words)} words")


if __name__ == "__main__":
    main()
