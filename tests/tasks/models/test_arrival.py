"""Chunks are handed over as they arrive, from every kind of connection, and the connection serves the next call."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tfgrpo.tasks.models.transport import chunks_of, client_over, open_transport

PARTS = [b"one ", b"two ", b"three"]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"


class Server:
    """Answers every request with the parts, each when the one before has been seen."""

    def __init__(self, head, parts, end=b"", *, closes=False):
        self.head, self.parts, self.end, self.closes = head, parts, end, closes
        self.connections = 0
        self.seen: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(self, reader, writer):
        self.connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(HEAD + self.head + b"\r\n")
                for part in self.parts:
                    writer.write(part)
                    await self.seen.get()
                writer.write(self.end)
                if self.closes:
                    break
        except asyncio.IncompleteReadError:  # the client has closed the connection
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def listening(self, context=None):
        async with await asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=context) as listener:
            yield f"http{'s' if context else ''}://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"


def chunked():
    parts = [b"%x\r\n%b\r\n" % (len(part), part) for part in PARTS]
    return Server(b"transfer-encoding: chunked\r\n", parts, b"0\r\n\r\n")


async def received(client, url, seen, *, last=b""):
    """Return whether the body was stopped, at the chunk ``last``."""

    def take(chunk):
        seen(chunk)
        return chunk != last

    response = await client.send(httpx.Request("GET", url), stream=True)
    try:
        return await asyncio.wait_for(chunks_of(response)(take), 10)
    finally:
        await response.aclose()


@pytest.mark.parametrize(
    "server",
    [chunked(), Server(b"content-length: 13\r\n", PARTS), Server(b"connection: close\r\n", PARTS, closes=True)],
    ids=["chunked", "with a length", "until the connection closes"],
)
async def test_a_chunk_is_handed_over_before_the_next_one_is_sent(server):
    async with server.listening() as url, open_transport(trust_env=False) as client:
        for calls in (1, 2):
            chunks: list[bytes] = []
            assert not await received(client, url, lambda chunk: (chunks.append(chunk), server.seen.put_nowait(chunk)))  # noqa: B023
            assert chunks == PARTS
            assert server.connections == (calls if server.closes else 1)


async def test_no_task_is_woken_for_a_chunk():
    server, tasks = chunked(), []
    async with server.listening() as url, open_transport(trust_env=False) as client:
        await received(client, url, lambda chunk: (tasks.append(asyncio.current_task()), server.seen.put_nowait(chunk)))
    assert tasks[1:] == [None, None]  # the first came with the headers


async def test_an_encrypted_connection_is_no_different(tmp_path, monkeypatch):
    server, file = chunked(), tmp_path / "certificate.pem"
    file.write_bytes(certificate())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    async with server.listening(context) as url, open_transport() as client:
        for _ in range(2):
            chunks: list[bytes] = []
            assert not await received(client, url, lambda chunk: (chunks.append(chunk), server.seen.put_nowait(chunk)))  # noqa: B023
            assert chunks == PARTS
        assert server.connections == 1


async def test_encoded_bodies_and_other_transports_are_handed_over_too():
    packed = gzip.compress(b"".join(PARTS))
    server = Server(b"content-encoding: gzip\r\ncontent-length: %d\r\n" % len(packed), [packed])
    chunks: list[bytes] = []
    async with server.listening() as url, open_transport(trust_env=False) as client:
        server.seen.put_nowait(b"")
        assert not await received(client, url, chunks.append)
    async with client_over(httpx.MockTransport(lambda request: httpx.Response(200, content=b" four"))) as client:
        assert await received(client, "http://any/", chunks.append, last=b" four")
    assert b"".join(chunks) == b"one two three four"


def certificate():
    """Return a certificate for loopback that signs itself, with its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.PKCS8
    return signed.public_bytes(pem) + key.private_bytes(pem, form, serialization.NoEncryption())
