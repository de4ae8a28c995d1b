"""Correction of OCR text: long vowel marks that were misread as dashes."""
