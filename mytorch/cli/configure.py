"""`mytorchrun config`: ask for the training settings of this machine and save them."""

import os
import socket
import sys

from ..arrays import device_count
from .arguments import ArgumentParser
from .configuration import AUTOTUNE, FUSED, PRECISIONS, Configuration, default_path


def found():
    """Return the suggested settings: one process per GPU, or one process on the CPU."""
    n = device_count()
    where, precision = ("gpu", "bf16") if n else ("cpu", "no")
    return Configuration(where, max(n, 1), list(range(n)), mixed_precision=precision)


def ask(question, default, understand):
    """Ask a question until `understand` accepts the answer; Enter selects the default.

    Raises:
        EOFError: at the end of the input.
    """
    shown = {True: "yes", False: "no"}.get(default, default) if isinstance(default, bool) else default
    if isinstance(default, list):
        shown = ",".join(map(str, default))
    while True:
        answer = input(f"{question} [{shown}]: ").strip()
        if not answer:
            return default
        try:
            return understand(answer)
        except ValueError as error:
            print(f"  {error}.")


def yes_or_no(answer):
    """Convert "yes" or "no" to a bool."""
    word = answer.lower()
    if word in ("y", "yes", "true", "1"):
        return True
    if word in ("n", "no", "false", "0"):
        return False
    raise ValueError(f"expected yes or no, got {answer!r}")


def one_of(choices):
    """Return a function that accepts one of the given words."""

    def understand(answer):
        if answer.lower() not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}, got {answer!r}")
        return answer.lower()

    return understand


def number(low, high):
    """Return a function that accepts an integer in a range."""

    def understand(answer):
        if not answer.lstrip("-").isdigit() or not low <= int(answer) <= high:
            raise ValueError(f"expected an integer from {low} to {high}, got {answer!r}")
        return int(answer)

    return understand


def indices(n, there):
    """Return a function that accepts n different GPU numbers."""

    def understand(answer):
        parts = [p.strip() for p in answer.strip("[]").split(",")]
        if len(parts) != n or any(not p.isdigit() or int(p) >= there for p in parts) or len(set(parts)) != n:
            raise ValueError(f"expected {n} different numbers below {there}, such as {','.join(map(str, range(n)))}")
        return [int(p) for p in parts]

    return understand


def address(answer):
    """Accept a host name or address that can be resolved."""
    try:
        socket.getaddrinfo(answer, None)
    except (OSError, UnicodeError):
        raise ValueError(f"expected a host name or address that resolves, got {answer!r}") from None
    return answer


def questions(suggested):
    """Ask all questions and return a Configuration."""
    there = device_count()
    c = suggested
    if there:
        c.device = ask("Train on GPUs or on the CPU? (gpu/cpu)", c.device, one_of(("gpu", "cpu")))
    else:
        print("No usable GPU was found; training runs on the CPU.")
        c.device = "cpu"
    if c.device == "gpu":
        c.num_processes = ask(f"How many GPUs? ({there} found)", min(c.num_processes, there), number(1, there))
        c.gpu_indices = ask("Which ones?", list(range(c.num_processes)), indices(c.num_processes, there))
    else:
        cores = os.cpu_count() or 1
        c.num_processes = ask(f"How many processes? ({cores} cores)", 1, number(1, cores))
        c.gpu_indices = []
    if c.device == "gpu":
        c.num_machines = ask("How many machines?", 1, number(1, 65536))
    if c.num_machines > 1:
        c.machine_rank = ask("Number of this machine, starting at 0?", 0, number(0, c.num_machines - 1))
    if c.distributed:
        while True:
            c.master_addr = ask("Address of the first machine", c.master_addr, address)
            if c.num_machines == 1 or c.master_addr not in ("127.0.0.1", "localhost"):
                break
            print("  other machines cannot reach this address.")
        c.master_port = ask("A free port on the first machine", c.master_port, number(1, 65535))
    c.mixed_precision = ask(f"Mixed precision? ({'/'.join(PRECISIONS)})", c.mixed_precision, one_of(PRECISIONS))
    c.fused = ask("Fused kernels? (auto: if faster; auto/on/off)", c.fused, one_of(FUSED))
    if c.device == "gpu":
        c.autotune = ask(f"Triton autotuning effort? ({'/'.join(AUTOTUNE)})", c.autotune, one_of(AUTOTUNE))
    c.log_wandb = ask("Log to Weights & Biases? (yes/no)", c.log_wandb, yes_or_no)
    return c.check()


def main(argv):
    """Run the command and return its exit code."""
    p = ArgumentParser(prog="mytorchrun config", description="Ask for this machine's training settings and save them.")
    where = f"path of the settings file (default: {default_path()})"
    p.add_argument("--config_file", "--config-file", "--config", default=None, help=where)
    p.add_argument("--default", action="store_true", help="save the suggested settings without questions")
    p.add_argument("--show", action="store_true", help="print the saved settings and exit")
    args = p.parse_args(argv)
    path = args.config_file or default_path()
    try:
        if args.show:
            print(f"{path}:\n{Configuration.read(path).text()}", end="")
            return 0
        if args.default:
            configuration = found()
        else:
            configuration = questions(found())
            print(f"\n{configuration.text()}")
            if not ask(f"Write this to {path}?", True, yes_or_no):
                print("Nothing was written.")
                return 1
        configuration.write(path)
    except (EOFError, KeyboardInterrupt):
        print("\nmytorchrun config: input ended, no settings were saved. Use --default.", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"mytorchrun config: {error}", file=sys.stderr)
        return 1
    if args.default:
        print(configuration.text(), end="")
    print(f"Settings saved to {path}.")
    return 0
