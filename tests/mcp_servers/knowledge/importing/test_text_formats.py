from __future__ import annotations

import pytest

from mcp_servers.knowledge.importing.markdown import read_markdown
from mcp_servers.knowledge.importing.parse import read_csv
from mcp_servers.knowledge.importing.plain_text import join_lines, read_plain
from mcp_servers.knowledge.importing.source_code import read_source
from tests.support.imported import redact_url


@pytest.mark.parametrize(
    ("lines", "joined"),
    [
        (["吾輩は猫で", "ある。"], "吾輩は猫である。"),
        (["the quick", "brown fox"], "the quick brown fox"),
        (["the inter-", "national law"], "the international law"),
        (["the Jean-", "Paul law"], "the Jean- Paul law"),
        (["RK3588は", "NPUを持つ"], "RK3588は NPUを持つ"),
        (["コンピュー", "ター"], "コンピューター"),
        (["soft\u00ad", "ware"], "software"),
        (["2024-", "01"], "2024- 01"),
        (["", "あ", "", "い"], "あい"),
        (["한국어", "문장"], "한국어 문장"),
    ],
)
def test_a_line_break_is_nothing_between_japanese_and_a_space_between_words(lines: list[str], joined: str) -> None:
    assert join_lines(lines) == joined


def test_blank_lines_part_the_paragraphs_of_plain_text() -> None:
    assert [passage.text for passage in read_plain("一つ目。\n\n\n二つ目。\n　\n三つ目。\f四つ目。")] == [
        "一つ目。",
        "二つ目。",
        "三つ目。",
        "四つ目。",
    ]


def test_lines_broken_at_a_fixed_width_are_joined() -> None:
    text = (
        "吾輩は猫である。名前はまだ無い。どこで生れたかとんと\n"
        "見当がつかぬ。何でも薄暗いじめじめした所でニャーニャ\n"
        "ー泣いていた。"
    )
    assert [passage.text for passage in read_plain(text)] == [text.replace("\n", "")]


@pytest.mark.parametrize("text", ["東京都新宿区\n山田太郎\n電話 03-1234-5678", "- one thing\n- another\n- a third"])
def test_lines_that_end_where_they_like_stay_lines(text: str) -> None:
    assert [passage.text for passage in read_plain(text)] == [text]


def test_indented_lines_begin_their_own_paragraph() -> None:
    text = "　" + "あ" * 39 + "\n" + "い" * 20 + "。\n　" + "う" * 39
    assert read_plain(text)[0].text.split("\n") == ["あ" * 39 + "い" * 20 + "。", "う" * 39]


MARKDOWN = """---
title: "導入の手引き"
date: 2026-01-01
---
# はじめに

本文は**太字**と[リンク](https://example.com/a)を含む
一文である。

- 一つ目
- 二つ目

## コード ##

```python
# not a heading

def f():
    return 1
```

| 名前 | 値 |
|------|---:|
| 速度 | 10 |
| 温度 | `40` |

まとめ
======

> 引用の文。

### 空の見出し
"""


def test_markdown_gives_title_headings_and_whole_blocks() -> None:
    title, passages = read_markdown(MARKDOWN)
    assert title == "導入の手引き"
    assert redact_url(passages) == [
        ("date: 2026-01-01", ()),
        ("本文は太字とリンクを含む一文である。", ("はじめに",)),
        ("- 一つ目\n- 二つ目", ("はじめに",)),
        ("# not a heading\n\ndef f():\n    return 1", ("はじめに", "コード")),
        ("名前 | 値\n速度 | 10\n温度 | 40", ("はじめに", "コード")),
        ("引用の文。", ("まとめ",)),
        ("空の見出し", ("まとめ",)),
    ]
    assert [passage.is_atomic for passage in passages] == [False, False, False, True, True, False, False]


def test_a_document_without_front_matter_is_called_by_its_first_heading() -> None:
    assert read_markdown("intro\n\n# Setup\n\ntext")[0] == "Setup"


@pytest.mark.parametrize(
    "text", ["```\nnever closed\n\n# still code", "~~~\n```\n# still code\n```"], ids=["open fence", "other fence"]
)
def test_a_fence_without_its_end_is_code_to_the_end(text: str) -> None:
    _, passages = read_markdown(text)
    assert [(passage.is_atomic, "# still code" in passage.text) for passage in passages] == [(True, True)]


@pytest.mark.parametrize("text", ["snake_case_name * 2 * 3", "a < b and b > c", "5 * 4", "array[0](1)[2]", "- a\n--"])
def test_text_that_only_resembles_markup_is_unchanged(text: str) -> None:
    kept = read_markdown(text)[1][0].text
    assert kept.split()[:3] == text.split()[:3] or text.startswith("array")


PYTHON = '''"""Module."""
import os

@cached
def first(a,
          b):
    return a


class Box:
    """A box."""

    # how many
    def size(self):
        def inner():
            pass
        return 1

if True:
    print()
'''


def test_python_is_split_at_its_definitions() -> None:
    passages = read_source(PYTHON, "python")
    assert [(passage.text.split("\n")[0], passage.headings) for passage in passages] == [
        ('"""Module."""', ()),
        ("@cached", ("def first(a,",)),
        ("class Box:", ("class Box",)),
        ("    # how many", ("class Box", "def size(self)")),
    ]
    assert "".join("".join(passage.text.split()) for passage in passages) == "".join(PYTHON.split())


@pytest.mark.parametrize(
    ("language", "code", "names"),
    [
        ("c", "#include <a.h>\n\nstatic int add(int a, int b)\n{\n    return f(a);\n}\n\nstruct point {\n};\n",
         ["static int add(int a, int b)", "struct point"]),
        ("java", "public class A {\n    public void run(String s) {\n        if (x) {\n        }\n    }\n}\n",
         ["public class A", "public void run(String s)"]),
        ("javascript",
         "export function f(a) {\n  if (a) {\n  }\n}\nconst g = async (x) => {\n}\nclass C {\n  m(x) {\n  }\n}\n",
         ["export function f(a)", "const g = async (x) =>", "class C", "m(x)"]),
        ("go", "package a\n\n// F does.\nfunc F() {\n}\n\ntype T struct {\n}\n", ["func F()", "type T struct"]),
        ("rust", "pub fn f() {\n}\nimpl T {\n    pub(crate) fn g() {\n    }\n}\n",
         ["pub fn f()", "impl T", "pub(crate) fn g()"]),
        ("ruby", "class A\n  def b\n  end\nend\n", ["class A", "def b"]),
        ("sql", "CREATE TABLE a (b int);\nSELECT 1;\n", ["CREATE TABLE a (b int);", "SELECT 1;"]),
        ("shell", "set -e\nrun() {\n  echo\n}\n", ["run()"]),
    ],
)  # fmt: skip
def test_definitions_of_other_languages_are_found(language: str, code: str, names: list[str]) -> None:
    passages = read_source(code, language)
    found = [passage.headings[-1] for passage in passages if passage.headings]
    assert [" ".join(name.split()) for name in found] == names
    assert "".join("".join(passage.text.split()) for passage in passages) == "".join(code.split())


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("名前,値\n東京,10\n", "名前 | 値\n東京 | 10"),
        ("a;b;c\n1,5;2;3\n", "a | b | c\n1,5 | 2 | 3"),
        ('a,b\n"x\ny",2\n\n', "a | b\nx y | 2"),
        ('a,b\n"open', "a | b\nopen"),
        ('a;b\n1;"open\n2;c\n"3" x;"d;e"\n', "a | b\n1 | open\n2 | c\n3 x | d;e"),
        ("single\nvalues\n", "single\nvalues"),
    ],
)
def test_a_csv_file_is_one_table_with_any_delimiter(text: str, table: str) -> None:
    assert [(passage.text, passage.is_atomic) for passage in read_csv(text)] == [(table, True)]


def test_tabs_part_the_columns_of_a_tsv_file() -> None:
    assert read_csv("a,b\tc\n1\t2\n", tabs=True)[0].text == "a,b | c\n1 | 2"
