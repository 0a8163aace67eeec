"""An OTLP endpoint in a process of its own: prints its URL, ends on SIGTERM.

It keeps nothing of what it takes, so that a long benchmark meets the same receiver at its end as at its beginning.
"""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Taker(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has in the base class
        """Say nothing."""


def main() -> None:
    """Take whatever comes."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Taker) as server:
        server.daemon_threads = True
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever(0.05)


if __name__ == "__main__":
    main()
