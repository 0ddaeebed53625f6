"""The playground's server: one page and one training session, for browsers on this machine.

    GET  /              the page
    GET  /state         state of the session, its points and the available settings
    GET  /graph.svg     autograd graph of the loss
    POST /new           {settings…}: start a new session
    POST /train         {"steps": 10}

An invalid request gets an error status and the JSON object {"error": message}.
"""

import json
import math
import threading
from pathlib import Path

from ..cli.local_server import LocalHandler, LocalServer, Refused
from .session import CHOICES, Session

PAGE = Path(__file__).with_name("page.html")


class Handler(LocalHandler):
    """Handles a request; the server holds the session and its lock."""

    protocol_version = "HTTP/1.1"
    json_type, most_bytes = "application/json; charset=utf-8", 10_000

    def do_GET(self):
        """Send the page, the state or the graph."""
        self.guarded(
            self._answer, {"/": self._page, "/state": self._state, "/graph.svg": self._graph}, {"/new", "/train"}
        )

    def do_POST(self):
        """Start a new session, or train the current session."""
        self.guarded(self._answer, {"/new": self._new, "/train": self._train}, {"/", "/state", "/graph.svg"})

    def _answer(self, known, other):
        path = self.path.partition("?")[0]
        if path not in known:
            raise Refused(405 if path in other else 404, f"{self.command} {path} does not exist")
        body = self.json_object() if self.command == "POST" else None  # before the lock: the client may stall
        try:
            with self.server.lock:
                kind, text = known[path](*[] if body is None else [body])
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

    def _new(self, settings):
        self.server.session = Session(settings)
        return self._state()

    def _train(self, body):
        if set(body) - {"steps"}:
            raise ValueError(f"train: expected steps, got {', '.join(map(str, body))}")
        self.server.session.train(body.get("steps", 1))
        return self._json(self.server.session.state())

    def _json(self, value):
        return "application/json", json.dumps(_finite(value))


def _finite(value):
    """Replace infinite and NaN values by None, because JSON has no such values."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Server(LocalServer):
    """A server with one session.

    Args:
        port: port on 127.0.0.1; 0 selects a free port.
    """

    def __init__(self, port: int):
        super().__init__(port, Handler)
        self.session, self.lock = Session(), threading.Lock()


def serve(port: int = 0) -> Server:
    """Returns a server on 127.0.0.1; call `serve_forever` to start it.

    Args:
        port: port; 0 selects a free port.

    Raises:
        OSError: if the port is in use.
    """
    return Server(port)


__all__ = ["Server", "serve"]
