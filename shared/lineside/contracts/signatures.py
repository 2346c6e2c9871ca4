"""Signatures of what agents act on: Ed25519 (RFC 8032) over a record's value, in two headers.

``signature`` is the base64 of the 64 bytes; ``key-id`` names the key by the first 16 hex digits of the
SHA-256 of its raw public half, so that several keys may be trusted while one replaces another. Not imported
by ``lineside.contracts`` itself: the probe needs no cryptography.
"""

import base64
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from lineside.contracts.codec import WireMessage
from lineside.contracts.topics import SIGNED


class BadKey(Exception):
    """A key that cannot be used; the text says why."""


class Untrusted(Exception):
    """A record that no trusted key has signed; the text says what is wrong with it."""


def key_id(public: bytes) -> str:
    """How a raw public key of 32 bytes is named on the wire.

    >>> key_id(bytes(32))
    '66687aadf862bd77'
    """
    return hashlib.sha256(public).hexdigest()[:16]


class Signer:
    """Signs with one private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key().public_bytes_raw()
        self._id = key_id(self.public).encode()

    @classmethod
    def load(cls, path: Path) -> "Signer":
        """From a PEM file, as ``create_key`` writes it. Raises ``BadKey``."""
        try:
            key = load_pem_private_key(path.read_bytes(), password=None)
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise BadKey(f"{path} holds no private key that can be used: {error}") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise BadKey(f"{path} holds a key of another kind: Ed25519 is wanted")
        return cls(key)

    def sign(self, message: WireMessage) -> WireMessage:
        """``message`` with its two headers; of topics that carry none, ``message`` itself."""
        if message.topic not in SIGNED or message.value is None:
            return message
        signature = base64.b64encode(self._key.sign(message.value))
        headers = (*message.headers, ("signature", signature), ("key-id", self._id))
        return msgspec.structs.replace(message, headers=headers)


class Trust:
    """The keys whose word counts, from ``keys``: public keys in base64, apart by commas or blanks.

    Raises ``BadKey``. Without any key (local mode) everything passes.
    """

    def __init__(self, keys: str = "") -> None:
        self._keys: dict[str, Ed25519PublicKey] = {}
        for word in keys.replace(",", " ").split():
            try:
                raw = base64.b64decode(word, validate=True)
                self._keys[key_id(raw)] = Ed25519PublicKey.from_public_bytes(raw)
            except ValueError as error:
                raise BadKey(
                    f"{word!r} is no public key: expected the base64 of 32 bytes, as "
                    "`lineside keys create` prints it"
                ) from error

    def __bool__(self) -> bool:
        return bool(self._keys)

    def check(self, value: bytes, headers: Mapping[str, bytes]) -> None:
        """Raises ``Untrusted`` unless a trusted key has signed exactly these bytes."""
        if not self._keys:
            return
        if "signature" not in headers or "key-id" not in headers:
            raise Untrusted("it is not signed")
        name = headers["key-id"].decode(errors="replace")
        key = self._keys.get(name)
        if key is None:
            raise Untrusted(f"it is signed by an unknown key ({name[:16]!r})")
        try:
            key.verify(base64.b64decode(headers["signature"], validate=True), value)
        except (ValueError, InvalidSignature):
            raise Untrusted(f"its signature by key {name} is wrong") from None


def create_key(path: Path) -> bytes:
    """A new private key in ``path``, readable by its owner only; returns the raw public key.

    Raises FileExistsError rather than replace a key, and OSError.
    """
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "wb") as out:
        out.write(pem)
    return key.public_key().public_bytes_raw()
