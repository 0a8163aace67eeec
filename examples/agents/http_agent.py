"""An agent behind HTTP: a service that gets an item by POST, and calls its model at the address that comes with the item."""

import json
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Agent(BaseHTTPRequestHandler):
    """Answers one item per request."""

    def do_POST(self):
        """Ask the model, and send what it says as ``{"answer": …}``."""
        given = json.loads(self.rfile.read(int(self.headers["content-length"])))
        asked = {"model": "gpt-4.1-mini", "input": given["prompt"], "temperature": given["temperature"]}
        headers = {"authorization": f"Bearer {given['api_key']}", "content-type": "application/json"}
        request = urllib.request.Request(f"{given['base_url']}/responses", json.dumps(asked).encode(), headers)
        with urllib.request.urlopen(request) as reply:
            text = json.load(reply)["output"][0]["content"][0]["text"]
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"answer": text}).encode())


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8765), Agent).serve_forever()
