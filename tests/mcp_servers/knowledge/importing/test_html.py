from __future__ import annotations

import pytest

from mcp_servers.knowledge.importing.documents import Blob, ParseLimits
from mcp_servers.knowledge.importing.html import declared_charset, read_html
from mcp_servers.knowledge.importing.parse import parse_blob
from tests.support.imported import redact_url

PAGE = """<!doctype html><html><head><meta charset="utf-8"><title> 製品
の案内 </title><style>p{}</style><script>var a = "<p>no</p>"</script></head>
<body><nav><a href="/">ホーム</a></nav>
<main><h1>概要</h1><p>これは <b>重要</b> な
文です。<br>次の行。</p><p hidden>隠れた文</p>
<h2>仕様</h2><ul><li>軽い</li><li>速い</li></ul>
<table><caption>値の表</caption><tr><th>項目</th><th>値</th></tr><tr><td>電圧</td><td>5<b>V</b></td></tr></table>
<pre>
if x:
    y
</pre>
<p><ruby>漢字<rt>かんじ</rt></ruby>を読む</p></main>
<footer>© 会社</footer></body></html>"""


def test_a_page_gives_title_headings_lists_tables_and_code() -> None:
    title, passages = read_html(PAGE)
    assert title == "製品 の案内"
    assert redact_url(passages) == [
        ("これは 重要 な文です。\n次の行。", ("概要",)),
        ("- 軽い", ("概要", "仕様")),
        ("- 速い", ("概要", "仕様")),
        ("値の表", ("概要", "仕様")),
        ("項目 | 値\n電圧 | 5V", ("概要", "仕様")),
        ("if x:\n    y", ("概要", "仕様")),
        ("漢字を読む", ("概要", "仕様")),
    ]
    assert [passage.is_atomic for passage in passages] == [False, False, False, False, True, True, False]


def test_a_table_that_only_arranges_the_page_is_read_as_text() -> None:
    _, passages = read_html("<table><tr><td><h1>A</h1>one</td><td><table><tr><td>x<td>y</table></td></tr></table>")
    assert redact_url(passages) == [("one", ("A",)), ("x | y", ("A",))]


@pytest.mark.parametrize(
    ("navigation", "text"),
    [
        (
            '<div class="navheader"><table><tr><td><a href="a.html">Prev</a></td><td>Chapter 2</td></tr></table></div>',
            (),
        ),
        ('<a href="b.html">次</a> <a href="a.html">前</a> <a href="index.html">目次</a><hr>', ()),
        ('<dl><dt>2.1. <a href="#a">A</a><dt><a href="#b">B</a><dd><dl><dt><a href="c.html">C</a></dl></dl>', ()),
        ('<ul><li><a href="a.html">A</a><li><a href="b.html">B</a></ul>', ("- A", "- B")),
        ('<p><a href="//a.org">A</a>, <a href="http://b.org">B</a>, <a href="mailto:c@d.org">C</a></p>', ("A, B, C",)),
        ('<p>See <a href="a.html">A</a>, <a href="b.html">B</a> and <a href="c.html">C</a>.</p>', ("See A, B and C.",)),
    ],
)
def test_lines_of_links_to_other_pages_are_left_out_and_sentences_with_links_stay(
    navigation: str, text: tuple[str, ...]
) -> None:
    _, passages = read_html(f"<body>{navigation}<h1>Title</h1><p>Text.</p>{navigation}</body>")
    before, after = [(each, ()) for each in text], [(each, ("Title",)) for each in text]
    assert redact_url(passages) == [*before, ("Text.", ("Title",)), *after]


def test_a_page_of_links_alone_is_read() -> None:
    links = "".join(f'<li><a href="{page}.html">{page}</a>' for page in "ABC")
    assert redact_url(read_html(f"<ul>{links}</ul>")[1]) == [("- A", ()), ("- B", ()), ("- C", ())]


def test_an_empty_main_element_does_not_hide_the_text() -> None:
    assert redact_url(read_html("<main>Loading</main><div>" + "The text. " * 30 + "</div>")[1])[1][0].startswith(
        "The text."
    )


@pytest.mark.parametrize(
    ("page", "title"),
    [
        ("<h1>見出し</h1>x", "見出し"),
        ('<head><meta property="og:title" content="A &amp; B"></head>x', "A & B"),
        ("no title", ""),
    ],
)
def test_the_title_is_looked_for_where_pages_have_it(page: str, title: str) -> None:
    assert read_html(page)[0] == title


@pytest.mark.parametrize("page", ["", "<", "<p", "<table><tr><table>", "</div></p>", "<html><frameset>", "a\x00b<p>c"])
def test_broken_markup_is_read_up_to_the_damage(page: str) -> None:
    read_html(page)


@pytest.mark.parametrize(
    ("content", "charset"),
    [
        (b'<meta charset="Shift_JIS">', "Shift_JIS"),
        (b"<meta http-equiv=content-type content='text/html; charset=euc-jp'>", "euc-jp"),
        (b"<?xml version='1.0' encoding='utf-8'?>", "utf-8"),
        (b"<p>", ""),
    ],
)
def test_the_declared_encoding_is_found(content: bytes, charset: str) -> None:
    assert declared_charset(content) == charset


@pytest.mark.parametrize("written", ["cp932", "euc_jp", "utf-8", "iso2022_jp"])
@pytest.mark.parametrize("declared", ["Shift_JIS", "EUC-JP", "UTF-8", "ISO-8859-1", "x-unknown"])
def test_a_page_is_read_with_any_declaration(written: str, declared: str) -> None:
    page = f'<html><head><meta charset="{declared}"><title>試験</title></head><p>日本語の文章です。</p></html>'
    read = parse_blob(Blob(page.encode(written), "index.html"), ParseLimits())
    assert (read.title, read.passages[0].text) == ("試験", "日本語の文章です。")


@pytest.mark.parametrize("tags", ["<div>", "<table><tr><td>", "<ul><li>", "<p><b>"])
def test_endless_nesting_is_read_at_once_and_whole(tags: str) -> None:
    _, passages = read_html(f"<p>first</p>{tags * 100_000}deep<i>er</i> text")
    assert [passage.text.removeprefix("- ") for passage in passages] == ["first", "deep er text"]


@pytest.mark.parametrize("head", ["<title/>", '<script src="a.js"/>', "<style/>", "<title>本</title>"])
@pytest.mark.parametrize("declared", ['<?xml version="1.0"?>', "<!DOCTYPE html>"])
def test_empty_elements_of_xhtml_hold_nothing_of_the_page(declared: str, head: str) -> None:
    chapter = "".join(f'<h2><a id="s{at}"/>節{at}</h2><p>段落{at}の文。</p><p>続き{at}の文。</p>' for at in range(30))
    page = f'{declared}\n<html xmlns="http://www.w3.org/1999/xhtml"><head>{head}</head><body>{chapter}</body></html>'
    assert len(read_html(page)[1]) == 60


def test_anchors_are_not_links() -> None:
    page = "".join(f'<p><a name="p{at}">第{at}段落です。</a></p>' for at in range(5))
    assert len(read_html(f"<p>始め</p>{page}")[1]) == 6
