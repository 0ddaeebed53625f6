"""The playground's server: one page, and a session that it steers; for this machine's own browsers alone.

    GET  /              the page
    GET  /state         the session's state, with its points
    GET  /graph.svg     the graph of the loss
    POST /new           {settings…}: another network or other data
    POST /train         {"steps": 10}

A request that can't be is answered with its code and {"error": a sentence}.
"""

import json
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from .session import Session

MOST_BYTES = 10_000  # of a request
PAGE = Path(__file__).with_name("page.html")


class Refused(Exception):
    """A request that is answered with a code and a sentence."""

    def __init__(self, code: int, sentence: str):
        super().__init__(sentence)
        self.code = code


class Handler(BaseHTTPRequestHandler):
    """Answers a request; the server holds the session and a lock for it."""

    server: Any
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self):
        """The page, the state or the graph."""
        self._answer({"/": self._page, "/state": self._state, "/graph.svg": self._graph}, {"/new", "/train"})

    def do_POST(self):
        """Another session, or some steps of this one."""
        self._answer({"/new": self._new, "/train": self._train}, {"/", "/state", "/graph.svg"})

    def _answer(self, known, other):
        path = self.path.partition("?")[0]
        try:
            self._check_host()
            if path not in known:
                raise Refused(405 if path in other else 404, f"{self.command} {path}: there is no such thing here")
            with self.server.lock:
                kind, body = known[path]()
            self._send(200, kind, body)
        except Refused as error:
            self._send(error.code, "application/json", json.dumps({"error": str(error)}))
        except ValueError as error:
            self._send(400, "application/json", json.dumps({"error": str(error)}))

    def _check_host(self):
        """Pages of other sites may send requests to this machine, too: their browser says so."""
        names = {f"{name}:{self.server.server_port}" for name in ("127.0.0.1", "localhost")}
        origin = self.headers.get("Origin")
        if self.headers.get("Host") not in names or (origin and origin.removeprefix("http://") not in names):
            raise Refused(403, f"only pages of {self.server.url} may ask")

    def _send(self, code, kind, body):
        data = body.encode()
        self.send_response(code)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        if code >= 400:  # what is left of its body is not read
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def _body(self):
        """The request's JSON object."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise Refused(411, "a request needs a Content-Length")
        if int(length) > MOST_BYTES:
            raise Refused(413, f"a request of {length} bytes is given, at most {MOST_BYTES} are expected")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (UnicodeDecodeError, RecursionError, json.JSONDecodeError) as error:
            raise ValueError(f"the request is no JSON: {error}") from None
        if not isinstance(body, dict):
            raise ValueError(f"the request must be a JSON object, got {type(body).__name__}")
        return body

    def _page(self):
        return "text/html", PAGE.read_text(encoding="utf-8")

    def _state(self):
        return self._json({**self.server.session.state(), "points": self.server.session.all_points()})

    def _graph(self):
        return "image/svg+xml", self.server.session.graph()

    def _new(self):
        self.server.session = Session(self._body())
        return self._state()

    def _train(self):
        body = self._body()
        if set(body) - {"steps"}:
            raise ValueError(f"train takes steps, got {', '.join(map(str, body))}")
        self.server.session.train(body.get("steps", 1))
        return self._json(self.server.session.state())

    def _json(self, value):
        return "application/json", json.dumps(_finite(value))

    def log_message(self, format, *args):
        """Say nothing."""


def _finite(value):
    """A value with None for what JSON has no word for: a loss that ran away."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Server(ThreadingHTTPServer):
    """Serves one session, on 127.0.0.1."""

    daemon_threads = True

    def __init__(self, port: int):
        super().__init__(("127.0.0.1", port), Handler)
        self.session, self.lock = Session(), threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}/"


def serve(port: int = 0) -> Server:
    """A server on 127.0.0.1 that waits for `serve_forever`.

    Raises:
        OSError: the port is taken.
    """
    return Server(port)


__all__ = ["Server", "serve"]
