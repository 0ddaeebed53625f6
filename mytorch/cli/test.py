"""`mytorchrun test`: a real run under the launcher with the user's configuration; a table, and PASS or what failed."""

import sys

from .launch import job, parser


def main(argv):
    """Run the command; 0 if everything passed."""
    prog = "mytorchrun test"
    p = parser(prog)
    for action in p._actions:
        if action.dest in ("script", "args"):
            action.nargs, action.help = "?", "==SUPPRESS=="
    args = p.parse_args(argv)
    if args.script is not None or args.module or args.no_python:
        p.error("it runs its own checks; leave the script out")
    args.script, args.args, args.module = "mytorch.cli.check", [], True
    args.output = args.output or "main"
    if args.timeout is None:
        args.timeout = 60.0
    try:
        code = job(args).run()
    except (OSError, ValueError, RuntimeError) as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    if code:
        print("FAIL: see above.", file=sys.stderr)
    return code


