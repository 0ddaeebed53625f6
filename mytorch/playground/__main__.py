"""Serve a local web page that shows the training of a small network, and open it in a browser."""

import sys
import webbrowser

from ..cli.arguments import ArgumentParser
from .server import serve


def main(argv=None):
    """Serve until Ctrl-C.

    Args:
        argv: command line (default: `sys.argv`).
    """
    parser = ArgumentParser(prog="python -m mytorch.playground", description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="port on 127.0.0.1; 0 selects a free port")
    parser.add_argument("--no_browser", action="store_true", help="do not open a browser")
    args = parser.parse_args(argv)
    try:
        server = serve(args.port)
    except (OSError, OverflowError) as error:
        sys.exit(f"python -m mytorch.playground: cannot use port {args.port}: {error}. Use --port 0 for a free port.")
    print(f"The playground is at {server.url}. Press Ctrl-C to stop.", flush=True)
    if not args.no_browser:
        webbrowser.open(server.url)
    server.serve_until_interrupted()


if __name__ == "__main__":
    main()
