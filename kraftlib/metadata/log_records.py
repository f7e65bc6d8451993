"""About the log itself: transactions of metadata, and records that mean nothing (KIP-868, KIP-835)."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, message, string


@message(kind="metadata", api_key=20, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class NoOpRecord(Message):
    """Nothing. Written now and then, so that the high watermark is seen to move (KIP-835)."""


@message(kind="metadata", api_key=23, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class BeginTransactionRecord(Message):
    """From here on, records take effect only at the end of the transaction (KIP-868)."""

    name: str | None = string("0+", nullable="0+", tag=0, default=None)


@message(kind="metadata", api_key=24, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class EndTransactionRecord(Message):
    """All of the transaction takes effect here."""


@message(kind="metadata", api_key=25, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class AbortTransactionRecord(Message):
    """None of the transaction ever takes effect."""

    reason: str | None = string("0+", nullable="0+", tag=0, default=None)
