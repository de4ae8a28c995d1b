"""Fixtures of the tests of diagnostics."""

from __future__ import annotations

from tests.support.emulator import emulator, newest

__all__ = ["emulator", "newest"]
