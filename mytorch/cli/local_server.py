"""HTTP servers for small web pages in browsers on this computer.

A server listens on 127.0.0.1 only, so other computers cannot connect. Web pages of other sites in a local browser could
still send requests. A request with another Host or Origin header is therefore refused.
"""

import base64
import hashlib
import io
import json
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MOST_CONNECTIONS = 32  # each uses a thread


class Refused(Exception):
    """An invalid request, which gets a status and a message.

    Args:
        status: HTTP status.
        sentence: error message.
    """

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


class _Reader(io.RawIOBase):
    """Reads from the handler's socket until the handler's deadline."""

    def __init__(self, handler):
        self.handler = handler

    def readable(self):
        return True

    def readinto(self, buffer):
        connection, left = self.handler.connection, self.handler.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request is incomplete")
        connection.settimeout(left)
        try:
            return connection.recv_into(buffer)
        finally:
            connection.settimeout(self.handler.timeout)  # for the response


def content_policy(page: bytes) -> str:
    """Return the Content-Security-Policy of a page: its own scripts, and requests to its own server.

    Args:
        page: the HTML text.
    """
    scripts = re.findall(rb"<script>(.*?)</script>", page.replace(b"\r\n", b"\n"), re.DOTALL)
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'" for script in scripts]
    return (
        "default-src 'none'; script-src " + " ".join(hashes or ["'none'"]) + "; style-src 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class LocalHandler(BaseHTTPRequestHandler):
    """Handles requests; a refused request gets the JSON object {"error": message}.

    Attributes:
        json_type: Content-Type of an error.
        most_bytes: maximum size of a request in bytes.
        timeout: seconds for a complete request, after which the connection is closed.
    """

    server: Any
    server_version, sys_version = "mytorch", ""
    json_type, most_bytes, timeout = "application/json", 1 << 16, 60

    def setup(self):
        """Replace the reader of the connection by a reader with a deadline."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Reader(self))

    def handle_one_request(self):
        """Handle one request, which must be complete within `timeout` seconds."""
        self.deadline = time.monotonic() + self.timeout
        super().handle_one_request()

    def log_message(self, format, *args):
        """Print nothing, so that only the address appears in the terminal."""

    def guarded(self, act, *args):
        """Call act(*args) for a local request, and answer a refused request."""
        try:
            self._check_origin()
            act(*args)
        except Refused as refusal:
            try:
                self.send(refusal.status, self.json_type, json.dumps({"error": str(refusal)}).encode())
            except (ConnectionError, TimeoutError):
                self.close_connection = True
        except (ConnectionError, TimeoutError):  # the browser closed the connection
            self.close_connection = True

    def _check_origin(self):
        names = [f"{name}:{self.server.server_port}" for name in ("127.0.0.1", "localhost")]
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if host not in names:
            raise Refused(403, f"expected Host {names[0]} or {names[1]}, got {host!r}")  # DNS rebinding
        if origin and origin.removeprefix("http://") not in names:
            raise Refused(403, f"expected a request from a page of {self.server.url}, got one from {origin}")

    def send(self, status: int, kind: str, content: bytes) -> None:
        """Send a response with all of `content`.

        Args:
            status: HTTP status.
            kind: Content-Type.
            content: body.
        """
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", len(content)), ("Cache-Control", "no-store")):
            self.send_header(name, str(value))
        if kind.startswith("text/html"):
            self.send_header("Content-Security-Policy", content_policy(content))
        if status >= 400:  # the rest of the request's body stays unread
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(content)

    def body(self) -> bytes:
        """Read the body of the request.

        Raises:
            Refused: if the length is missing, too large or wrong.
        """
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise Refused(411, "expected a Content-Length header with a number")
        if len(length) > 9 or int(length) > self.most_bytes:
            raise Refused(413, f"expected a body of at most {self.most_bytes} bytes, got {length}")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise Refused(400, f"expected a body of {length} bytes (Content-Length), got {len(body)}")
        return body

    def json_object(self) -> dict[str, Any]:
        """Read the JSON object in the body of the request.

        Raises:
            Refused: if the body is not a JSON object, or as in `body`.
        """
        try:
            found = json.loads(self.body())
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"expected JSON: {error}") from None
        if not isinstance(found, dict):
            raise Refused(400, f"expected a JSON object, got {type(found).__name__}")
        return found


class LocalServer(ThreadingHTTPServer):
    """A server on 127.0.0.1.

    Args:
        port: port; 0 selects a free port.
        handler: class of the handler.

    Attributes:
        url: address of the page.
    """

    daemon_threads = True

    def __init__(self, port: int, handler: type[LocalHandler]):
        super().__init__(("127.0.0.1", port), handler)
        self.url = f"http://127.0.0.1:{self.server_port}/"
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)

    def process_request(self, request, client_address):
        """Handle a connection in a thread, or close it if MOST_CONNECTIONS are open."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was started
            self._free.release()
            raise

    def process_request_thread(self, request, client_address):
        """Handle a connection, and then count it as closed."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request, client_address):
        """Ignore a connection that the browser closed; print the traceback of other errors."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def serve_until_interrupted(self) -> None:
        """Serve until Ctrl-C."""
        try:
            self.serve_forever()
        except KeyboardInterrupt:
            print()
        finally:
            self.server_close()
