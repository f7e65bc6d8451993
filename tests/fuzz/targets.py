"""Everything that reads bytes from elsewhere, each as a function of bytes that may raise its own error and no other."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import random
import shutil
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs
from crc32c import crc32c

from kraftlib.codec.declared import write
from kraftlib.config import RaftConfig
from kraftlib.controller.apis import FORWARDABLE
from kraftlib.coordination.commands import KINDS, encode, encode_command
from kraftlib.coordination.machine import ServiceMachine
from kraftlib.coordination.messages import Ask, OpenSession, Question, Selector, Watched
from kraftlib.errors import ConfigError, CorruptBatchError, KraftError, ProtocolError
from kraftlib.metadata import RECORDS, decode_record, encode_record
from kraftlib.properties import parse_properties, settings_of
from kraftlib.records.batch import HEADER_SIZE, batch_size, check_kraft, read_batch
from kraftlib.records.control import decode_control_batch
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.net.request_handler import client_of, open_envelope
from kraftlib.runtime.net.transport import Peer
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.sasl_server import SaslServer
from kraftlib.security.sasl_users import load_users
from kraftlib.security.scram import ScramClient, ScramError
from kraftlib.storage.directory import open_directory
from kraftlib.wire.apis import APIS, PrivateApiKey, api
from kraftlib.wire.frames import decode_request, decode_response, encode_request, encode_response
from kraftlib.wire.messages.create_topics import CreateTopicsRequest
from kraftlib.wire.messages.envelope import DefaultPrincipalData, EnvelopeRequest
from tests.declared_messages import any_message
from tests.storage.replicas import make_replica

DATA: Final = Path(__file__).parents[1] / "data"


@attrs.frozen(kw_only=True)
class Target:
    """One reader of bytes."""

    name: str
    samples: Sequence[bytes]
    read: Callable[[bytes], object]
    allowed: tuple[type[Exception], ...]
    """The errors by which it refuses."""

    mend: Callable[[bytes, random.Random], bytes] = lambda frame, chance: frame
    """Put checksums right, most of the time: else nothing behind them would ever be read."""


def captured(which: str) -> Iterator[tuple[int, int, bytes]]:
    """Yield API key, version and bytes of what real Kafka sent: `which` is `request` or `response`."""
    for path in sorted(DATA.glob("kafka-*/wire.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                yield row["api_key"], row["api_version"], bytes.fromhex(row[which])


def requests() -> Target:
    """Requests, as any stranger may send them."""
    samples = [data for _, _, data in captured("request")]
    private = [entry for entry in map(api, PrivateApiKey) if entry is not None]
    for entry in [*APIS.values(), *private]:
        samples += [
            encode_request(
                any_message(entry.request, version, seed=7), version=version, correlation_id=9, client_id="c"
            )
            for version in entry.versions
        ]
    return Target(name="requests", samples=samples, read=decode_request, allowed=(ProtocolError,))


def responses() -> Target:
    """Responses, as a server that lies may send them. The first three bytes say which request they answer."""
    private = {key: APIS[key] for key in PrivateApiKey}
    keys = {**{int(key): int(key) for key in APIS}, **{200 + at: int(key) for at, key in enumerate(private)}}
    first = {key: byte for byte, key in keys.items()}
    samples = [bytes((key, version)) + data for key, version, data in captured("response") if key in APIS]
    for key, entry in {**APIS, **private}.items():
        samples += [
            bytes((first[key], version))
            + encode_response(any_message(entry.response, version, seed=7), version=version, correlation_id=9)
            for version in entry.versions
        ]

    def read(data: bytes) -> object:
        key, version = keys.get(data[0] if data else 0, 1), data[1] if len(data) > 1 else 0
        return decode_response(data[2:], api_key=key, version=version)

    return Target(name="responses", samples=samples, read=read, allowed=(ProtocolError,))


def batches() -> Target:
    """Record batches, as they come with a Fetch, in a snapshot or from a file."""
    samples = [
        path.read_bytes()[: 1 << 14] for path in sorted(DATA.rglob("*.log")) + sorted(DATA.rglob("*.checkpoint"))
    ]
    samples = [sample for sample in samples if sample]

    def read(data: bytes) -> object:
        position, found = 0, []
        while position < len(data):
            batch = read_batch(data, position)
            position += batch_size(data, position)
            check_kraft(batch)
            found.append(list(decode_control_batch(batch)) if batch.is_control else list(batch.records()))
        return found

    return Target(
        name="batches", samples=samples, read=read, allowed=(CorruptBatchError, ProtocolError), mend=_with_sums
    )


def _with_sums(data: bytes, chance: random.Random) -> bytes:
    """Let length and CRC of each batch be what a writer would have put there, as far as batches can be told apart."""
    if chance.random() < 0.1:
        return data
    mended, position = bytearray(data), 0
    while position + HEADER_SIZE <= len(mended):
        length = int.from_bytes(mended[position + 8 : position + 12], "big", signed=True)
        end = position + 12 + length
        if not position + HEADER_SIZE <= end <= len(mended):
            end = len(mended)
            mended[position + 8 : position + 12] = (end - position - 12).to_bytes(4, "big")
        mended[position + 17 : position + 21] = crc32c(bytes(mended[position + 21 : end])).to_bytes(4, "big")
        position = end
    return bytes(mended)


def metadata() -> Target:
    """Metadata records, as an observer of Kafka's controllers reads them."""
    samples = [
        encode_record(any_message(cls, version, seed=7), version)
        for cls in RECORDS.values()
        for version in cls.valid_versions
    ]
    return Target(name="metadata records", samples=samples, read=decode_record, allowed=(ProtocolError,))


def logins() -> Target:
    """Frames before authentication, of a server whose users are known."""
    users = load_users(SaslConfig(username="a", password="b" * 16), 1, encrypted=False, insecure=False)
    first = ScramClient("sha512", "replica-1", b"x").first()
    samples = [data for key, _, data in captured("request") if key == 18]
    for key in (17, 36):
        entry = APIS[key]
        samples += [
            encode_request(
                any_message(entry.request, version, seed=7), version=version, correlation_id=9, client_id="c"
            )
            for version in entry.versions
        ]
    handshake = APIS[17].request(mechanism="SCRAM-SHA-512")
    token = APIS[36].request(auth_bytes=first)
    samples += [
        encode_request(handshake, version=1, correlation_id=1, client_id="c"),
        encode_request(token, version=2, correlation_id=2, client_id="c"),
    ]
    begin = samples[-2]

    def read(data: bytes) -> object:
        server = SaslServer(users)
        server.receive(begin)
        return server.receive(data)

    return Target(name="logins", samples=samples, read=read, allowed=())


def envelopes() -> Target:
    """Envelopes of brokers: a request inside, the name of its client, and its address."""
    inside = encode_request(CreateTopicsRequest(), version=7, correlation_id=1, client_id="c")
    clients = [struct.pack(">h", 0) + write(DefaultPrincipalData(type="User", name=name), 0) for name in ("ann", "")]
    samples = [
        encode_request(
            EnvelopeRequest(request_data=inside, request_principal=client, client_host_address=address),
            version=0,
            correlation_id=1,
            client_id="c",
        )
        for client in clients
        for address in (bytes(4), bytes(16))
    ]

    def read(data: bytes) -> object:
        message = decode_request(data).message
        if not isinstance(message, EnvelopeRequest):
            raise ConfigError("no envelope")
        return client_of(message, Peer("there")), open_envelope(message, forwardable=FORWARDABLE, elements_max=1_024)

    return Target(name="envelopes", samples=samples, read=read, allowed=(ProtocolError, ConfigError))


def scram() -> Target:
    """The tokens of a server, as a client reads them."""
    samples = [b"r=abcdefgh,s=c2FsdHNhbHQ=,i=4096", b"v=AAAA", b"e=other-error"]

    def read(data: bytes) -> object:
        client = ScramClient("sha256", "u", b"p", nonce="abc", salted=lambda *_: b"\0" * 32)
        return client.final(data)

    return Target(name="scram tokens", samples=samples, read=read, allowed=(ScramError,))


def commands() -> Target:
    """Commands of the coordination machine, as any client may send them: most are refused, none stops the machine."""
    session, machine = uuid.UUID(int=7), ServiceMachine()
    bodies = [any_message(cls, 0, seed=seed) for cls in KINDS.values() for seed in range(4)]
    samples = [
        encode_command(body, session=session, opened=0, sequence=number) for number, body in enumerate(bodies, 1)
    ]
    opening = encode_command(OpenSession(ttl_ms=10_000), session=session)
    offsets = itertools.count()

    def read(data: bytes) -> object:
        nonlocal machine
        offset = next(offsets)
        if offset % 1_000 == 0:
            machine = ServiceMachine()
            machine.apply(CommittedRecord(0, 1, 0, opening))  # the samples name the session by this offset
        machine.check(data)
        return machine.apply(CommittedRecord(offset, 1, 0, data))

    return Target(name="commands", samples=samples, read=read, allowed=(ConfigError,))


def questions() -> Target:
    """Questions and selectors of watches, as any client may ask them of the coordination machine."""
    machine, session = ServiceMachine(), uuid.UUID(int=7)
    written = [encode_command(OpenSession(ttl_ms=10_000), session=session)]
    for number, body in enumerate([any_message(cls, 0, seed=seed) for cls in KINDS.values() for seed in range(8)], 1):
        written.append(encode_command(body, session=session, opened=0, sequence=number))
    for offset, data in enumerate(written):
        machine.apply(CommittedRecord(offset, 1, 0, data))
    asked = [Question(ask=ask, name="", prefix=prefix) for ask in Ask for prefix in (False, True)]
    selectors = [Selector(watched=watched, name="") for watched in Watched]

    def read(data: bytes) -> object:
        if data[:1] == b"q":
            return machine.query(data[1:])
        return machine.changes(data[1:], int.from_bytes(data[-2:], "big", signed=True) % 64 - 1, most=64)

    samples = [b"q" + encode(each) for each in asked] + [b"s" + encode(each) for each in selectors]
    return Target(name="questions", samples=samples, read=read, allowed=(ConfigError,))


def properties() -> Target:
    """Kafka's own configuration files."""
    samples = [path.read_bytes() for path in sorted((DATA / "properties").glob("*.properties"))]

    def read(data: bytes) -> object:
        return settings_of(parse_properties(data.decode("iso-8859-1")))

    return Target(name="properties", samples=samples, read=read, allowed=(ConfigError,))


FRAMES: Final = (requests, responses, batches, metadata, logins, envelopes, scram, commands, questions, properties)


class Directories:
    """A stopped replica's directory, in which one file at a time is not what it was."""

    def __init__(self, place: Path) -> None:
        self._sound: Final = make_replica(place / "sound")
        self._home: Final = place / "home"
        self._files: Final = [path for path in sorted(self._sound.rglob("*")) if path.is_file()]
        self.samples: Final = [path.read_bytes() for path in self._files]

    def try_one(self, chance: random.Random, change: Callable[[bytes], bytes]) -> bool:
        """Open a directory with a file changed and read all of it; return whether it was refused.

        Raises: whatever is not an error of ours.
        """
        number = chance.randrange(len(self._files))
        shutil.rmtree(self._home, ignore_errors=True)
        changed, path = change(self.samples[number]), self._files[number]
        if path.suffix in (".log", ".checkpoint"):
            changed = _with_sums(changed, chance)
        for at, data in enumerate(self.samples):
            copy = self._home / self._files[at].relative_to(self._sound)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.touch(mode=self._files[at].stat().st_mode & 0o777)
            copy.write_bytes(changed if at == number else data)
        try:
            read_directory(self._home)
        except (KraftError, OSError):
            return True
        return False


def read_directory(home: Path) -> None:
    """Open a directory, read its log and its snapshots, and close it."""
    opened = open_directory(RaftConfig(node_id=1, directory=home, disk_reserve_bytes=0))
    try:
        log = opened.log
        offset = log.start_offset
        while offset < log.end_offset:
            found = log.read(offset, 1 << 10)
            offset = found[-1].end_offset
        for snapshot_id in log.snapshots():
            with contextlib.closing(log.open_snapshot(snapshot_id)) as source:
                source.read_at(0, source.size)
    finally:
        opened.close()
