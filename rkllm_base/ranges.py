"""Ranges of Japanese characters: insides of character classes of regular expressions."""

from __future__ import annotations

# With the marks that repeat a syllable.
HIRAGANA = "\u3041-\u3096\u309d-\u309f"
# With the long mark, and without the middle dot, which divides words.
KATAKANA = "\u30a1-\u30fa\u30fc-\u30ff"
# With 々, 〆 and 〇.
KANJI = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
