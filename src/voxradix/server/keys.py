"""API keys: who may ask, and which salt keeps them apart."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from voxradix.errors import VoxradixError
from voxradix.server.refusal import Refusal

NOBODY = ""
"""The salt of callers of a server without keys."""


class Keys:
    """The keys of a server."""

    def __init__(self, keys: Sequence[str]) -> None:
        """Keys that open the server; none leave it open."""
        self._digests = [_digest(key) for key in keys]
        self._salts = [hmac.new(key.encode(), b"voxradix salt", sha256).hexdigest() for key in keys]

    def __bool__(self) -> bool:
        """Whether a key is needed."""
        return bool(self._digests)

    def salt(self, authorization: str | None) -> str:
        """The salt of the caller who sent this Authorization header: a name that does not tell the key.

        Every key is compared, in a time that does not depend on where they differ. Raises `Refusal` (401) for none.
        """
        if not self:
            return NOBODY
        scheme, _, key = (authorization or "").partition(" ")
        given = _digest(key.strip()) if scheme.lower() == "bearer" else b""
        salt = ""
        for digest, own in zip(self._digests, self._salts, strict=True):
            if hmac.compare_digest(digest, given):
                salt = own
        if not salt:
            raise Refusal(
                401, "the API key is missing or wrong; send Authorization: Bearer KEY", code="invalid_api_key"
            )
        return salt


def read_keys(text: str, place: str) -> tuple[str, ...]:
    """The keys in a text, one a line or with commas between; `VoxradixError` names ``place`` where one is unusable."""
    keys = tuple(dict.fromkeys(key for line in text.splitlines() for key in map(str.strip, line.split(",")) if key))
    if not keys:
        raise VoxradixError(f"{place} holds no API key; write one a line")
    if any(not key.isascii() or not key.isprintable() or " " in key for key in keys):
        raise VoxradixError(f"{place} holds a key with spaces or other than ASCII letters; no client could send it")
    return keys


def read_key_file(path: Path) -> tuple[str, ...]:
    """The keys in a file."""
    try:
        return read_keys(path.read_text(encoding="utf-8-sig"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise VoxradixError(f"{path} cannot be read: {error}") from None


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogatepass")).digest()
