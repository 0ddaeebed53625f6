"""Small web pages for this computer's own browsers: what their servers share.

A server listens on 127.0.0.1 alone. That keeps other computers away, not pages of other sites that are open in a browser here, so
requests that name another host, or come from a page of one, are refused.
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Refused(Exception):
    """A request that is answered with a status and a sentence."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


class LocalHandler(BaseHTTPRequestHandler):
    """Answers requests, those that are refused with {"error": a sentence}.

    Attributes:
        json_type: the Content-Type of an error. most_bytes: of a request. timeout: seconds without a byte.
    """

    server: Any
    server_version, sys_version = "mytorch", ""
    json_type, most_bytes, timeout = "application/json", 1 << 16, 60

    def log_message(self, format, *args):
        """Nothing: the terminal is for the address."""

    def guarded(self, act, *args):
        """act(*args), unless the request comes from elsewhere, and an answer to what it refuses."""
        try:
            self._check_origin()
            act(*args)
        except Refused as refusal:
            self.send(refusal.status, self.json_type, json.dumps({"error": str(refusal)}).encode())
        except (ConnectionError, TimeoutError):  # the browser has gone
            self.close_connection = True

    def _check_origin(self):
        names = [f"{name}:{self.server.server_port}" for name in ("127.0.0.1", "localhost")]
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if host not in names:
            raise Refused(403, f"the host {host!r} is not this computer")  # a foreign page's name for this address
        if origin and origin.removeprefix("http://") not in names:
            raise Refused(403, f"only pages of {self.server.url} may ask, not those of {origin}")

    def send(self, status: int, kind: str, content: bytes) -> None:
        """Answer with all of `content`."""
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", len(content)), ("Cache-Control", "no-store")):
            self.send_header(name, str(value))
        if status >= 400:  # what is left of the request's body is not read
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(content)

    def body(self) -> bytes:
        """The request's body.

        Raises:
            Refused: its length is not said, or too large, or not what comes.
        """
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise Refused(411, "Content-Length: a number is expected")
        if len(length) > 9 or int(length) > self.most_bytes:
            raise Refused(413, f"the body has {length} bytes; at most {self.most_bytes} are taken")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise Refused(400, "the body is shorter than Content-Length says")
        return body

    def json_object(self) -> dict[str, Any]:
        """The JSON object that is the request's body.

        Raises:
            Refused: it is none, or as `body`.
        """
        try:
            found = json.loads(self.body())
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"the request is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise Refused(400, f"the request must be a JSON object, got {type(found).__name__}")
        return found


class LocalServer(ThreadingHTTPServer):
    """A server on 127.0.0.1.

    Attributes:
        url: where its page is.
    """

    daemon_threads = True

    def __init__(self, port: int, handler: type[LocalHandler]):
        super().__init__(("127.0.0.1", port), handler)
        self.url = f"http://127.0.0.1:{self.server_port}/"

    def serve_until_interrupted(self) -> None:
        """Serve until Ctrl-C."""
        try:
            self.serve_forever()
        except KeyboardInterrupt:
            print()
        finally:
            self.server_close()
