"""Text of pictures by Tesseract, the program of the distribution, where it is installed.

It runs below the parser process, with its limits of memory and time, and ends with it. Pictures go to it through a
pipe, so no file is written.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
from functools import lru_cache

HINT = "Tesseract is not installed (tesseract-ocr, tesseract-ocr-jpn)"
# The share of a document's time that one picture may take.
_PAGE_SHARE = 0.5
_LIST_S = 10.0
_PR_SET_PDEATHSIG = 1
# A horizontal reading that Tesseract trusts less, of 100, may be of vertical text. On pages of IPAex type it trusted
# horizontal text 65 to 91 (96 in English) and vertical text 15 to 36, which read as vertical had 71 to 91.
_DOUBTFUL_CONFIDENCE = 70.0
_TABLE = ("-c", "tessedit_create_tsv=1", "-c", "tessedit_create_txt=1")
_TABLE_COLUMNS = 12
# Tesseract puts spaces between Japanese words.
_JAPANESE = "\u3000-\u30ff\u4e00-\u9fff\uff00-\uffef"
_SPACE = re.compile(f"(?<=[{_JAPANESE}])[ \t]+(?=[{_JAPANESE}])")


@lru_cache(maxsize=1)
def languages() -> frozenset[str]:
    """Return the installed languages; empty without Tesseract."""
    program = shutil.which("tesseract")
    if program is None:
        return frozenset()
    output = _output_of([program, "--list-langs"], b"", _LIST_S)
    return frozenset(line.strip() for line in output.splitlines()[1:] if line.strip())


def recognize(picture: bytes, limit_s: float) -> str:
    """Return the text of a PNG, JPEG or PNM picture; empty without Tesseract, or if it fails or takes too long."""
    # Page segmentation modes: 3 is automatic, 5 one block of vertical text.
    horizontal = [name for name in ("jpn", "eng") if name in languages()]
    if not horizontal:
        return ""
    confidence, text = _recognize(picture, "+".join(horizontal), "3", limit_s * _PAGE_SHARE)
    if "jpn_vert" in languages() and confidence < _DOUBTFUL_CONFIDENCE:
        confidence, text = max((confidence, text), _recognize(picture, "jpn_vert", "5", limit_s * _PAGE_SHARE))
    return text


def _recognize(picture: bytes, language: str, layout: str, limit_s: float) -> tuple[float, str]:
    """Return the mean confidence of the characters, 0..100, and the text."""
    command = [shutil.which("tesseract") or "tesseract", "stdin", "stdout", "-l", language, "--psm", layout, *_TABLE]
    lines = [(line.split("\t"), line) for line in _output_of(command, picture, limit_s).splitlines()]
    words = [columns for columns, _ in lines if len(columns) == _TABLE_COLUMNS and columns[-1].strip()][1:]
    sizes = [len(word.strip()) for *_, word in words]
    confidence = sum(float(word[-2]) * size for word, size in zip(words, sizes, strict=True)) / max(sum(sizes), 1)
    text = "\n".join(line for columns, line in lines if len(columns) != _TABLE_COLUMNS)
    return confidence, _SPACE.sub("", text).replace("\f", "").strip()


def _output_of(command: list[str], content: bytes, limit_s: float) -> str:
    try:
        completed = subprocess.run(  # the program is found on the path, its arguments are ours
            command,
            input=content,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=limit_s,
            check=False,
            env={**os.environ, "OMP_THREAD_LIMIT": "1"},
            # It ends with the parser process, which has one thread.
            preexec_fn=lambda: ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return completed.stdout.decode("utf-8", "replace") if completed.returncode == 0 else ""
