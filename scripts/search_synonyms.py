"""Write mcp_servers/knowledge/search/sudachi_synonyms.txt: synonyms of common Japanese words from SudachiDict.

    python -m scripts.search_synonyms FILE      # the dictionary's synonyms.txt, or the same compressed as .xz

One group a line, without names, without words that the dictionary never expands, and without nouns of two letters with
hiragana, which occur inside others. Run by hand; the result is committed with the notice at its head.
"""

from __future__ import annotations

import lzma
import re
import sys
import unicodedata
from collections.abc import Iterable
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "mcp_servers" / "knowledge" / "search" / "sudachi_synonyms.txt"
# Fields whose words are names or are rarely asked about.
LEFT_OUT = re.compile("企業名|人名|地名|国名|スポーツ|音楽|動植物|ファッション|娯楽|組織名|色|地形|化学|単位|美容")
WORD = re.compile("[\u3040-\u30ff\u4e00-\u9fff々]{2,12}")
AMBIGUOUS = re.compile("[\u3041-\u3096].|.[\u3041-\u3096]")
NEVER_EXPANDED, INFLECTED = "2", "2"


def groups(lines: Iterable[str]) -> list[str]:
    """Return the groups as lines of words; columns are group, class, expansion, …, field, word."""
    found: dict[str, dict[str, None]] = {}
    for line in lines:
        columns = line.rstrip("\n").split(",")
        if len(columns) > 8 and columns[2] != NEVER_EXPANDED and not LEFT_OUT.search(columns[7]):
            word = unicodedata.normalize("NFKC", columns[8])
            if WORD.fullmatch(word) and (columns[1] == INFLECTED or not AMBIGUOUS.fullmatch(word)):
                found.setdefault(columns[0], {})[word] = None
    return [" ".join(words) for words in found.values() if len(words) > 1]


def main() -> None:
    """Write the file under the notice that it has."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    source = Path(sys.argv[1])
    opener = lzma.open if source.suffix == ".xz" else open
    with opener(source, "rt", encoding="utf-8") as lines:
        made = groups(lines)
    notice = [line for line in TARGET.read_text("utf-8").splitlines() if line.startswith("#")]
    TARGET.write_text("\n".join([*notice, *made]) + "\n", "utf-8")
    print(f"{TARGET.name}: {len(made)} groups")


if __name__ == "__main__":
    main()
