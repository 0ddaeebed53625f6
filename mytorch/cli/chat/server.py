"""`mytorchrun chat serve`: a page that talks with the model, on this computer alone.

    GET /        the page
    POST /chat   {"messages": [{"role": "user", "content": "…"}, …], "temperature": 0.3, "max_tokens": 128}
                 answers with lines of JSON as text is made: {"text": "…"}, …, {"done": true}

What is wrong with a request is said in JSON, {"error": "…"}, with its status.
"""

import json
import threading
from pathlib import Path
from urllib.parse import urlsplit

from mytorch.cli.local_server import LocalHandler, LocalServer, Refused
from mytorch.models.chat import check, reply

PAGE = Path(__file__).with_name("page.html")
MOST_TOKENS = 512  # of an answer


def _number(request, name, usual, low, high, kind):
    value = request.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
        raise Refused(400, f"{name}: a number from {low} to {high} is expected")
    return value


def parse(request, temperature):
    """(messages, options of `reply`) of a request, an object.

    Raises:
        Refused: with what is wrong.
    """
    if unknown := request.keys() - {"messages", "temperature", "max_tokens"}:
        raise Refused(400, f"{min(unknown)} is not known; messages, temperature and max_tokens are")
    try:
        check(request.get("messages"))
    except ValueError as error:
        raise Refused(400, str(error)) from None
    temperature = _number(request, "temperature", temperature, 0, 2, (int, float))
    count = _number(request, "max_tokens", 128, 1, MOST_TOKENS, int)
    return request["messages"], {"temperature": temperature, "max_new_tokens": count}


class Handler(LocalHandler):
    """Answers one request; the server has the model."""

    timeout = 30

    def do_GET(self):
        self.guarded(self._page, urlsplit(self.path).path)

    def do_POST(self):
        self.guarded(self._chat, urlsplit(self.path).path)

    def _page(self, path):
        if path == "/favicon.ico":
            self.send(204, "image/x-icon", b"")
        elif path != "/":
            raise Refused(405 if path == "/chat" else 404, "GET / is the page; POST /chat talks with the model")
        else:
            self.send(200, "text/html; charset=utf-8", PAGE.read_bytes())

    def _chat(self, path):
        if path != "/chat":
            raise Refused(404, "GET / is the page; POST /chat talks with the model")
        if self.headers.get_content_type() != "application/json":  # which pages of other sites can't send unasked
            raise Refused(415, "Content-Type: application/json is expected")
        messages, options = parse(self.json_object(), self.server.temperature)
        answer = reply(self.server.model, messages, **options)
        with self.server.busy:  # one answer at a time
            try:
                piece = next(answer, "")
            except ValueError as error:  # a message that is too long
                raise Refused(400, str(error)) from None
            self.send_response(200)
            self.send_header("Content-Type", "application/x-ndjson")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()  # the connection's end is the answer's
            while piece:
                self._line(text=piece)
                piece = next(answer, "")
        self._line(done=True)

    def _line(self, **values):
        self.wfile.write(json.dumps(values).encode() + b"\n")
        self.wfile.flush()


class Server(LocalServer):
    """A server with a model, which answers one conversation at a time."""

    def __init__(self, model, port, temperature):
        self.model, self.temperature, self.busy = model, temperature, threading.Lock()
        super().__init__(port, Handler)


def make_server(model, port=8000, temperature=0.3):
    """A server that is bound, and serves when `serve_forever` is called.

    Args:
        model: one that chats. port: of 127.0.0.1, 0 for any that is free. temperature: where a request has none.

    Raises:
        OSError: the port is taken. ValueError: it is none.
    """
    if not 0 <= port < 1 << 16:
        raise ValueError(f"--port {port}: a number from 0 to 65535 is expected")
    try:
        return Server(model, port, temperature)
    except OSError as error:
        raise OSError(
            f"--port {port} can't be had on 127.0.0.1 ({error.strerror}); --port 0 takes one that is free"
        ) from None
