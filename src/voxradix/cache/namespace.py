"""Namespaces: who may share rows with whom."""

from __future__ import annotations


def namespace(*parts: bytes) -> bytes:
    """One name for several parts, such as a model, its weights, a layout and a tenant's salt.

    Each part is preceded by its length (8 bytes), so two different lists of parts never give the same name.
    """
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)
