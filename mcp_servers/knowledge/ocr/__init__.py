"""Text as a scanner read it -> the same text with ー where a dash stands in its place.

Reading the package in this order is reading the path of one text:

    letters      what a dash is, what katakana is; a run of both
    lexicon      which words exist, and which letters follow each other in words      katakana.txt, recent.txt
    readings     a run -> which of its dashes are long vowel marks, and how sure that is
    rules        a text -> the same text, corrected: what an index and its queries go through
    judge        the places nobody can be sure of -> a question to a language model, and what of its answer counts
    service      such a model behind an OpenAI-compatible address
    correction   all of it: normalize_ocr_text
"""

from mcp_servers.knowledge.ocr.correction import Normalized, normalize
from mcp_servers.knowledge.ocr.judge import Judge
from mcp_servers.knowledge.ocr.rules import normalised

__all__ = ["Judge", "Normalized", "normalised", "normalize"]
