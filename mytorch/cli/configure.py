"""`mytorchrun config`: ask how to train on this machine, and write it down."""

import os
import socket
import sys

from ..backend import device_count
from .arguments import ArgumentParser
from .configuration import AUTOTUNE, FUSED, PRECISIONS, Configuration, default_path


def found():
    """What this machine suggests: a process for each GPU, or one on the CPU."""
    n = device_count()
    where, precision = ("gpu", "bf16") if n else ("cpu", "no")
    return Configuration(where, max(n, 1), list(range(n)), mixed_precision=precision)


def ask(question, default, understand):
    """The answer to a question, asked again until `understand` makes something of it; Enter takes the default.

    Raises:
        EOFError: the input has ended.
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
    """True or False for yes or no."""
    word = answer.lower()
    if word in ("y", "yes", "true", "1"):
        return True
    if word in ("n", "no", "false", "0"):
        return False
    raise ValueError(f"{answer!r} is neither yes nor no")


def one_of(choices):
    """A reader of one of some words."""

    def understand(answer):
        if answer.lower() not in choices:
            raise ValueError(f"{answer!r} is none of {', '.join(choices)}")
        return answer.lower()

    return understand


def number(low, high):
    """A reader of a whole number in a range."""

    def understand(answer):
        if not answer.lstrip("-").isdigit() or not low <= int(answer) <= high:
            raise ValueError(f"{answer!r} is no whole number in [{low}, {high}]")
        return int(answer)

    return understand


def indices(n, there):
    """A reader of n different GPU numbers."""

    def understand(answer):
        parts = [p.strip() for p in answer.strip("[]").split(",")]
        if len(parts) != n or any(not p.isdigit() or int(p) >= there for p in parts) or len(set(parts)) != n:
            raise ValueError(f"expected {n} different numbers below {there}, such as {','.join(map(str, range(n)))}")
        return [int(p) for p in parts]

    return understand


def address(answer):
    """A host name or address that can be looked up from here."""
    try:
        socket.getaddrinfo(answer, None)
    except (OSError, UnicodeError):
        raise ValueError(f"{answer!r} is no host name or address that is known here") from None
    return answer


def questions(suggested):
    """Ask everything; returns a Configuration."""
    there = device_count()
    c = suggested
    if there:
        c.device = ask("Train on GPUs or on the CPU? (gpu/cpu)", c.device, one_of(("gpu", "cpu")))
    else:
        print("No usable GPU was found, so training is on the CPU.")
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
        c.machine_rank = ask("Which of them is this one?", 0, number(0, c.num_machines - 1))
    if c.distributed:
        while True:
            c.master_addr = ask("Address of the first machine", c.master_addr, address)
            if c.num_machines == 1 or c.master_addr not in ("127.0.0.1", "localhost"):
                break
            print("  other machines cannot reach that address.")
        c.master_port = ask("A free port there", c.master_port, number(1, 65535))
    c.mixed_precision = ask(f"Mixed precision? ({'/'.join(PRECISIONS)})", c.mixed_precision, one_of(PRECISIONS))
    c.fused = ask("Fused kernels? (auto takes them where they are faster; auto/on/off)", c.fused, one_of(FUSED))
    if c.device == "gpu":
        c.autotune = ask(f"How much may Triton try out? ({'/'.join(AUTOTUNE)})", c.autotune, one_of(AUTOTUNE))
    c.log_wandb = ask("Log to Weights & Biases? (yes/no)", c.log_wandb, yes_or_no)
    return c.check()


def main(argv):
    """Run the command; its exit code."""
    p = ArgumentParser(prog="mytorchrun config", description="Ask how to train on this machine, and write it down.")
    where = f"where to write (default {default_path()})"
    p.add_argument("--config_file", "--config-file", "--config", default=None, help=where)
    p.add_argument("--default", action="store_true", help="no questions: what the machine suggests")
    p.add_argument("--show", action="store_true", help="show what is configured, and change nothing")
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
        print("\nmytorchrun config: no more answers; nothing was written. --default asks nothing.", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"mytorchrun config: {error}", file=sys.stderr)
        return 1
    if args.default:
        print(configuration.text(), end="")
    print(f"Written to {path}.")
    return 0
