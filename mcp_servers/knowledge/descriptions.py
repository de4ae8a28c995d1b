"""What the tools of this program say they are for, in Japanese and English: what a host and its model choose them by.

A small model reads every word of these, and a host that has many tools ranks them by the words, so the three that
answer questions say what they are asked for in the words of those who ask, and the five that keep house say little
else. tests/tools/test_knowledge_choice.py holds the requests that have to find each of the three.
"""

from __future__ import annotations

SEARCH_DOCUMENTS = (
    "Search documents (company rules, policies, handbooks, manuals) for the passages that answer a question about a"
    " subject: how, when, how much. 「金額は？」「日数は？」「方法は？」などの質問の答えが"
    "ドキュメント（社内文書、契約書、マニュアル）のどこに書いてあるかを検索する。"
)
GET_KNOWLEDGE_BASE_SUMMARY = (
    "Overview and statistics of a whole knowledge base (KB): what this knowledge base is about, how big it is, the"
    " number of its documents, collections and chunks. "
    "このナレッジベース（KB）について: 概要、中身、ドキュメント数、文書の総数、何件あるかなどの統計。"
)
NORMALIZE_OCR_TEXT = (
    "Correct scanned OCR text: hyphens misrecognised for the Japanese long vowel mark become ー again. "
    "OCRテキストを正規化し、カタカナの長音符（ー）がハイフンに誤認識された箇所を直す（例: マネ-ジャ- → マネージャー）。"
)
LIST_KNOWLEDGE_BASES = (
    "List the names and ids of all that exist for the caller, to choose one from; other tools take such an id as"
    " knowledge_base_id. どれを使うか選ぶために、名前とIDの一覧を返す。"
)
CREATE_KNOWLEDGE_BASE = (
    "Create a new, empty one under a name of its own and return its id; add_document then fills it with texts, files or"
    " web pages. 空のものを新しく作成する。"
)
ADD_DOCUMENT = (
    "Add text, a file or a web page to a knowledge base; it is cut into chunks and takes part in searches at once."
    " テキスト、ファイル、URLを取り込んで追加する。"
)
REMOVE_DOCUMENT = (
    "Delete the one whose id is given, for good, with all of its chunks; adding the same again later is possible."
    " idで指定した一件を完全に削除する。"
)
REINDEX = (
    "Build the index of a knowledge base again in the background, for another embedder; searching goes on meanwhile."
    " 新しい埋め込みモデル用に、検索インデックスを裏で作り直す。"
)
