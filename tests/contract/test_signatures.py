"""What agents act on is signed, and everything that is not signed so is refused."""

import base64
import json
import os
import stat
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lineside.contracts import TopicName, decode, encode
from lineside.contracts.signatures import BadKey, Signer, Trust, Untrusted, create_key

from .examples import HEALTH, PLAN, REQUEST

SEED = bytes(range(32))
SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(SEED))
PUBLIC = base64.b64encode(SIGNER.public).decode()
GOLDEN = json.loads(Path(__file__).with_name("golden_signatures.json").read_text())


@pytest.mark.parametrize(
    ("name", "topic", "record"),
    [("plan", TopicName.PLANS, PLAN), ("request", TopicName.REQUESTS, REQUEST)],
)
def test_golden_signatures(name: str, topic: TopicName, record: msgspec.Struct) -> None:
    signed = SIGNER.sign(encode(topic, record, 12))
    headers = dict(signed.headers)
    assert headers["signature"].decode() == GOLDEN[name]
    assert headers["key-id"].decode() == GOLDEN["key-id"]
    assert signed.value is not None
    Trust(PUBLIC).check(signed.value, headers)
    assert decode(topic, signed.value, headers) == record, "the other headers are as they were"


def test_what_agents_do_not_act_on_is_not_signed() -> None:
    message = encode(TopicName.HEALTH, HEALTH, 12)
    assert SIGNER.sign(message) is message


def signed_plan() -> tuple[bytes, dict[str, bytes]]:
    message = SIGNER.sign(encode(TopicName.PLANS, PLAN, 12))
    assert message.value is not None
    return message.value, dict(message.headers)


def test_local_mode_takes_everything() -> None:
    value, headers = signed_plan()
    assert not Trust("")
    Trust(" , ").check(value, {})
    Trust("").check(value, headers)


def test_forged_records_are_refused_with_the_reason() -> None:
    value, headers = signed_plan()
    trust = Trust(PUBLIC)
    stranger = Signer(Ed25519PrivateKey.from_private_bytes(bytes(32)))
    foreign = dict(stranger.sign(encode(TopicName.PLANS, PLAN, 12)).headers)
    for forged, said in [
        ({}, "not signed"),
        ({"signature": headers["signature"]}, "not signed"),
        (foreign, "unknown key"),
        (foreign | {"key-id": headers["key-id"]}, "is wrong"),
        (headers | {"signature": b"\xff\xfe"}, "is wrong"),
        (headers | {"signature": b""}, "is wrong"),
        (headers | {"key-id": b"\xff" * 99}, "unknown key"),
    ]:
        with pytest.raises(Untrusted, match=said):
            trust.check(value, forged)
    for place in range(0, len(value), 11):
        changed = bytearray(value)
        changed[place] ^= 1
        with pytest.raises(Untrusted, match="is wrong"):
            trust.check(bytes(changed), headers)


def test_one_key_may_replace_another() -> None:
    value, headers = signed_plan()
    other = base64.b64encode(bytes(31) + b"\x09").decode()
    Trust(f"{other}, {PUBLIC}").check(value, headers)


@pytest.mark.parametrize("text", ["?", "AAAA", "x" * 44, f"{PUBLIC[:-4]}"])
def test_a_public_key_that_is_none_is_named(text: str) -> None:
    with pytest.raises(BadKey, match="no public key"):
        Trust(text)


def test_a_key_file_is_private_and_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    public = create_key(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert Signer.load(path).public == public
    with pytest.raises(FileExistsError):
        create_key(path)
    path.write_text("no key")
    with pytest.raises(BadKey, match="no private key"):
        Signer.load(path)
    with pytest.raises(BadKey, match="No such file"):
        Signer.load(tmp_path / "none")
