"""The playground's server: one page, and a session that it steers; for this machine's own browsers alone.

    GET  /              the page
    GET  /state         the session's state, with its points and what may be chosen
    GET  /graph.svg     the graph of the loss
    POST /new           {settings…}: another network or other data
    POST /train         {"steps": 10}

A request that can't be is answered with its code and {"error": a sentence}.
"""

import json
import math
import threading
from pathlib import Path

from ..cli.local_server import LocalHandler, LocalServer, Refused
from .session import CHOICES, Session

PAGE = Path(__file__).with_name("page.html")


class Handler(LocalHandler):
    """Answers a request; the server holds the session and a lock for it."""

    protocol_version = "HTTP/1.1"
    json_type, most_bytes = "application/json; charset=utf-8", 10_000

    def do_GET(self):
        """The page, the state or the graph."""
        self.guarded(
            self._answer, {"/": self._page, "/state": self._state, "/graph.svg": self._graph}, {"/new", "/train"}
        )

    def do_POST(self):
        """Another session, or some steps of this one."""
        self.guarded(self._answer, {"/new": self._new, "/train": self._train}, {"/", "/state", "/graph.svg"})

    def _answer(self, known, other):
        path = self.path.partition("?")[0]
        if path not in known:
            raise Refused(405 if path in other else 404, f"{self.command} {path}: there is no such thing here")
        try:
            with self.server.lock:
                kind, text = known[path]()
        except ValueError as error:
            raise Refused(400, str(error)) from None
        self.send(200, f"{kind}; charset=utf-8", text.encode())

    def _page(self):
        return "text/html", PAGE.read_text(encoding="utf-8")

    def _state(self):
        session = self.server.session
        return self._json({**session.state(), "points": session.all_points(), "choices": CHOICES})

    def _graph(self):
        return "image/svg+xml", self.server.session.graph()

    def _new(self):
        self.server.session = Session(self.json_object())
        return self._state()

    def _train(self):
        body = self.json_object()
        if set(body) - {"steps"}:
            raise ValueError(f"train takes steps, got {', '.join(map(str, body))}")
        self.server.session.train(body.get("steps", 1))
        return self._json(self.server.session.state())

    def _json(self, value):
        return "application/json", json.dumps(_finite(value))


def _finite(value):
    """A value with None for what JSON has no word for: a loss that ran away."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Server(LocalServer):
    """Serves one session."""

    def __init__(self, port: int):
        super().__init__(port, Handler)
        self.session, self.lock = Session(), threading.Lock()


def serve(port: int = 0) -> Server:
    """A server on 127.0.0.1 that waits for `serve_forever`.

    Raises:
        OSError: the port is taken.
    """
    return Server(port)


__all__ = ["Server", "serve"]
