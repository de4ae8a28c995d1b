"""Attacks with pictures and with what comes from outside: boards, registries, documents."""

from __future__ import annotations

from collections.abc import Sequence

from bench.abuse_frame import Attack

GUESTS: Sequence[Attack] = ()
