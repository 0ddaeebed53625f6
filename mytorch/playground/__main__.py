"""`python -m mytorch.playground`: serve the page and open it."""

import sys
import webbrowser

from ..cli.arguments import ArgumentParser
from .server import serve


def main(argv=None):
    """Serve until Ctrl-C."""
    parser = ArgumentParser(prog="python -m mytorch.playground", description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free (default: %(default)s)")
    parser.add_argument("--no_browser", action="store_true", help="only say where the page is")
    args = parser.parse_args(argv)
    try:
        server = serve(args.port)
    except (OSError, OverflowError) as error:
        sys.exit(f"playground: port {args.port} can't be used: {error}; --port 0 takes any that is free.")
    print(f"the playground is at {server.url} until you press Ctrl-C", flush=True)
    if not args.no_browser:
        webbrowser.open(server.url)
    server.serve_until_interrupted()


if __name__ == "__main__":
    main()
