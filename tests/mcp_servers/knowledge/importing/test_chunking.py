from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_servers.knowledge.importing.chunking import ChunkLimits, chunk_passages
from mcp_servers.knowledge.types import NewChunk, Passage

SENTENCE = "この装置は電源を入れてから三秒で動き出す。"
ENGLISH = "The board starts three seconds after power is applied, said Dr. Ito. It draws 3.5 watts! "


def squeezed(text: str) -> str:
    return "".join(text.split())


def test_paragraphs_are_merged_up_to_a_full_chunk_and_never_cut() -> None:
    paragraphs = [Passage(f"第{number}段落。" + SENTENCE * 5) for number in range(12)]
    chunks = chunk_passages(paragraphs)
    assert [chunk.text.split("\n") for chunk in chunks] == [
        [paragraph.text for paragraph in paragraphs[start : start + 4]] for start in (0, 4, 8)
    ]
    assert all(len(chunk.text) <= 500 for chunk in chunks)


def test_a_long_japanese_paragraph_is_cut_after_sentences() -> None:
    chunks = chunk_passages([Passage((SENTENCE + "「本当か。」と聞いた。") * 40)])
    assert len(chunks) > 2
    assert all(
        len(chunk.text) <= 500 and chunk.text.endswith(("動き出す。", "と聞いた。", "か。」")) for chunk in chunks
    )
    assert all(not chunk.text.startswith(("」", "、")) for chunk in chunks)


def test_english_chunks_are_longer_and_end_with_a_sentence_not_with_a_number() -> None:
    chunks = chunk_passages([Passage(ENGLISH * 60)])
    assert all(1500 < len(chunk.text) <= 1800 for chunk in chunks[:-1])
    assert all(chunk.text.endswith(("Ito.", "watts!")) for chunk in chunks)


def test_chunks_never_cross_headings_or_pages_and_carry_both() -> None:
    passages = [
        Passage("一。", ("章",), 1),
        Passage("二。", ("章",), 1),
        Passage("三。", ("章", "節"), 1),
        Passage("四。", ("章", "節"), 2),
    ]
    assert chunk_passages(passages) == [
        NewChunk("一。\n二。", ("章",), 1),
        NewChunk("三。", ("章", "節"), 1),
        NewChunk("四。", ("章", "節"), 2),
    ]


def test_a_paragraph_a_little_too_long_stays_whole() -> None:
    text = (SENTENCE * 100)[:740]
    assert [chunk.text for chunk in chunk_passages([Passage("前。"), Passage(text), Passage("後。")])] == [
        "前。",
        text,
        "後。",
    ]
    assert len(chunk_passages([Passage((SENTENCE * 100)[:760])])) == 2


def test_a_table_stays_whole_up_to_twice_the_size() -> None:
    table = "品目 | 値段\n" + "\n".join(f"部品{number:03} | {number}円" for number in range(90))
    chunks = chunk_passages([Passage("前の文。"), Passage(table, is_atomic=True), Passage("後の文。")])
    assert [chunk.text for chunk in chunks] == ["前の文。", table, "後の文。"]


def test_a_larger_table_is_cut_between_rows_with_its_first_row_repeated() -> None:
    rows = [f"部品番号{number:04}の名前 | {number}円" for number in range(400)]
    chunks = chunk_passages([Passage("品目 | 値段\n" + "\n".join(rows), is_atomic=True, head_lines=1)])
    assert all(chunk.text.startswith("品目 | 値段\n部品番号") for chunk in chunks)
    assert [row for chunk in chunks for row in chunk.text.split("\n")[1:]] == rows


def test_code_is_cut_between_lines_without_repeating_any() -> None:
    code = "\n".join(f"    value_{number} = compute({number})  # step" for number in range(200))
    chunks = chunk_passages([Passage(code, is_atomic=True)])
    assert len(chunks) > 3
    assert "\n".join(chunk.text for chunk in chunks) == code


def test_text_without_any_place_to_cut_is_cut_all_the_same() -> None:
    for text, most in (("あ" * 10_000, 500), ("x" * 10_000, 1800), ("🎉" * 3_000, 500)):
        chunks = chunk_passages([Passage(text)])
        assert all(len(chunk.text) <= most for chunk in chunks)
        assert "".join(chunk.text for chunk in chunks) == text


passages = st.lists(
    st.builds(
        Passage,
        text=st.text(st.sampled_from("あア漢。、「」aB .!?\n|-"), min_size=1, max_size=120).map(lambda text: text * 9),
        headings=st.sampled_from([(), ("章",), ("章", "節")]),
        page=st.sampled_from([None, 1, 2]),
        is_atomic=st.booleans(),
    ),
    max_size=6,
)


@settings(max_examples=120, deadline=None)
@given(passages)
def test_with_any_passages_no_text_is_lost_and_no_chunk_is_too_large(document: list[Passage]) -> None:
    limits = ChunkLimits(cjk_characters=40, latin_characters=90)
    chunks = chunk_passages(document, limits)
    assert chunks == chunk_passages(document, limits)
    assert all(chunk.text.strip() and len(chunk.text) <= 200 for chunk in chunks)
    if not any(" | " in passage.text for passage in document):
        assert squeezed("".join(chunk.text for chunk in chunks)) == squeezed("".join(each.text for each in document))
