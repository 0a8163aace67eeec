"""An OpenAI-compatible endpoint on a port of this process that answers by a function."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Reply = str | int | dict[str, Any] | tuple[int, Any]
"""The text of an answer, an HTTP status, a whole ``choices`` entry, or a status with its whole body."""


class ChatServer:
    """Records requests; ``answer`` is called with the number of the request, from 0, and its body."""

    def __init__(self, answer: Callable[[int, dict[str, Any]], Reply]) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self._lock = threading.Lock()
        chat = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._send(200, {"object": "list", "data": [{"id": "m"}]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with chat._lock:
                    number = len(chat.bodies)
                    chat.bodies.append(body)
                    chat.headers.append(dict(self.headers))
                reply = answer(number, body)
                if isinstance(reply, tuple):
                    self._send(*reply)
                    return
                if isinstance(reply, int):
                    self._send(reply, {"error": {"message": "out of order"}})
                    return
                choice = (
                    reply
                    if isinstance(reply, dict)
                    else {"index": 0, "message": {"role": "assistant", "content": reply}, "finish_reason": "stop"}
                )
                usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
                self._send(200, {"id": "r", "model": "m", "choices": [choice], "usage": usage})

            def _send(self, status: int, value: object) -> None:
                raw = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: object) -> None:
                """Log no requests."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def prompts(self) -> list[str]:
        """Return the last message of every request."""
        return [body["messages"][-1]["content"] for body in self.bodies]
