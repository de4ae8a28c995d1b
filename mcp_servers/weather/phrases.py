"""The agency's spaced, full-width forecast text -> text one reads in a sentence.

``くもり 昼過ぎ から 時々 晴れ 所により 夜 雨`` becomes ``くもり、昼過ぎから時々晴れ、所により夜雨``: digits and
punctuation in half width, no U+3000, and a comma where one statement ends and the next begins.
"""

from __future__ import annotations

import re
import unicodedata

# A statement is complete after one of these...
_COMPLETE = re.compile(r"(?:晴れ|くもり|雨|雪|みぞれ|霧|風|強く|メートル|伴う|ふぶく|降る)$")
# ...unless the next word goes on with it.
_CONTINUES = re.compile(
    r"^(?:時々|一時|後|のち|やや|強|非常に|激しく|うねり|ふぶく|降る|を伴|(?:で|か|や|と|から|まで|は|では|を|に|が|の)$)"
)


def phrase(text: str) -> str:
    """Readable Japanese from one of the agency's texts; unchanged words, other spacing and width."""
    words = unicodedata.normalize("NFKC", text).split()
    joined = ""
    for word in words:
        stop = word.startswith(("所により", "ただし")) or (_COMPLETE.search(joined) and not _CONTINUES.match(word))
        joined += "、" + word if joined and stop else word
    return joined
