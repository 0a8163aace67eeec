"""A webhook on this machine that records what is posted, and can fail or hang."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class Webhook:
    """A context manager. Answers with the next of ``codes``, and then with 200; None: not at all."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.codes: list[int | None] = []
        self._leave = threading.Event()
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                webhook.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                code = webhook.codes.pop(0) if webhook.codes else 200
                if code is None:
                    webhook._leave.wait()
                    return
                self.send_response(code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log no requests."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}/services/T0/B0/xyzzy"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
