"""`mytorchrun chat serve`: a local web page for talking to the model.

    GET /        the page
    POST /chat   {"messages": [{"role": "user", "content": "…"}, …], "temperature": 0.3, "max_tokens": 128}
                 returns lines of JSON while text is generated: {"text": "…"}, …, {"done": true}

An invalid request gets an error status and the JSON object {"error": "…"}.
"""

import json
import threading
from pathlib import Path
from urllib.parse import urlsplit

from mytorch.cli.local_server import LocalHandler, LocalServer, Refused
from mytorch.models.chat import check, reply

PAGE = Path(__file__).with_name("page.html")
MOST_TOKENS = 512  # maximum length of an answer


def _number(request, name, usual, low, high, kind):
    value = request.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
        raise Refused(400, f"{name}: expected a number from {low} to {high}, got {value!r}")
    return value


def parse(request, temperature):
    """Return (messages, options of `reply`) from a request, which is a dict.

    Raises:
        Refused: if the request is invalid.
    """
    if unknown := request.keys() - {"messages", "temperature", "max_tokens"}:
        raise Refused(400, f"expected messages, temperature and max_tokens, got {min(unknown)}")
    try:
        check(request.get("messages"))
    except ValueError as error:
        raise Refused(400, str(error)) from None
    temperature = _number(request, "temperature", temperature, 0, 2, (int, float))
    count = _number(request, "max_tokens", 128, 1, MOST_TOKENS, int)
    return request["messages"], {"temperature": temperature, "max_new_tokens": count}


class Handler(LocalHandler):
    """Handles one request; the server holds the model."""

    timeout = 30

    def do_GET(self):
        self.guarded(self._page, urlsplit(self.path).path)

    def do_POST(self):
        self.guarded(self._chat, urlsplit(self.path).path)

    def _page(self, path):
        if path == "/favicon.ico":
            self.send(204, "image/x-icon", b"")
        elif path != "/":
            raise Refused(405 if path == "/chat" else 404, f"expected GET / or POST /chat, got GET {path}")
        else:
            self.send(200, "text/html; charset=utf-8", PAGE.read_bytes())

    def _chat(self, path):
        if path != "/chat":
            raise Refused(404, f"expected GET / or POST /chat, got POST {path}")
        if (
            self.headers.get_content_type() != "application/json"
        ):  # other sites' pages cannot send it without permission
            raise Refused(415, f"expected Content-Type application/json, got {self.headers.get_content_type()}")
        messages, options = parse(self.json_object(), self.server.temperature)
        answer = reply(self.server.model, messages, **options)
        with self.server.busy:  # one answer at a time
            try:
                piece = next(answer, "")
            except ValueError as error:  # for example a message that is too long
                raise Refused(400, str(error)) from None
            self.send_response(200)
            self.send_header("Content-Type", "application/x-ndjson")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()  # closing the connection ends the answer
            while piece:
                self._line(text=piece)
                piece = next(answer, "")
        self._line(done=True)

    def _line(self, **values):
        self.wfile.write(json.dumps(values).encode() + b"\n")
        self.wfile.flush()


class Server(LocalServer):
    """A server with a model that answers one request at a time."""

    def __init__(self, model, port, temperature):
        self.model, self.temperature, self.busy = model, temperature, threading.Lock()
        super().__init__(port, Handler)


def make_server(model, port=8000, temperature=0.3):
    """Return a bound server; call `serve_forever` to start it.

    Args:
        model: chat model.
        port: port on 127.0.0.1; 0 selects a free port.
        temperature: sampling temperature of requests without one.

    Raises:
        OSError: if the port is in use.
        ValueError: if the port is not from 0 to 65535.
    """
    if not 0 <= port < 1 << 16:
        raise ValueError(f"--port: expected a number from 0 to 65535, got {port}")
    try:
        return Server(model, port, temperature)
    except OSError as error:
        raise OSError(
            f"--port: cannot use port {port} on 127.0.0.1 ({error.strerror}). Use --port 0 for a free port."
        ) from None
