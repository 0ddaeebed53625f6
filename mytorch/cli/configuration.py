"""Settings of `mytorchrun config`, stored in a small YAML file.

The file has one `name: value` per line, so it needs no YAML library. Other content raises an error with the line.
"""

import json
import os
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from ..distributed.environment import DEFAULT_ADDRESS, DEFAULT_PORT
from ..files.serialization import atomic_write

PRECISIONS = ("no", "fp16", "bf16")
FUSED = ("auto", "on", "off")
AUTOTUNE = ("none", "medium", "max")


def default_path():
    """Return the path of the settings: under XDG_CONFIG_HOME, or ~/.config."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "mytorch" / "config.yaml"


@dataclass
class Configuration:
    """Training settings of this machine.

    Attributes:
        device: "gpu" or "cpu".
        num_processes: number of processes on this machine, one per GPU.
        gpu_indices: numbers of the GPUs to use; empty for the first ones.
        num_machines: number of machines.
        machine_rank: number of this machine.
        master_addr: address of the first machine.
        master_port: port on the first machine.
        mixed_precision: "no", "fp16" or "bf16".
        fused: use of fused kernels: "auto", "on" or "off".
        autotune: number of configurations that Triton tries: "none", "medium" or "max".
        log_wandb: log to Weights & Biases.
        timeout: timeout of a collective in seconds; 0 for the backend's default.
    """

    device: str = "cpu"
    num_processes: int = 1
    gpu_indices: list = field(default_factory=list)
    num_machines: int = 1
    machine_rank: int = 0
    master_addr: str = DEFAULT_ADDRESS
    master_port: int = DEFAULT_PORT
    mixed_precision: str = "no"
    fused: str = "auto"
    autotune: str = "none"
    log_wandb: bool = False
    timeout: float = 0

    @property
    def distributed(self):
        """True for more than one process."""
        return self.num_processes * self.num_machines > 1

    def check(self):
        """Check all settings.

        Raises:
            ValueError: if a setting is invalid; the message contains its name and value.
        """
        words = {"device": ("cpu", "gpu"), "mixed_precision": PRECISIONS, "fused": FUSED, "autotune": AUTOTUNE}
        for name, choices in words.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}: expected one of {', '.join(choices)}, got {getattr(self, name)!r}")
        machines = {"num_machines": (1, 65536), "machine_rank": (0, self.num_machines - 1)}
        ranges = {"num_processes": (1, 65536), **machines, "master_port": (1, 65535)}
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise ValueError(f"{name}: expected an integer from {low} to {high}, got {value!r}")
        if not isinstance(self.log_wandb, bool):
            raise ValueError(f"log_wandb: expected true or false, got {self.log_wandb!r}")
        if not isinstance(self.timeout, (int, float)) or self.timeout < 0:
            raise ValueError(f"timeout: expected seconds or 0, got {self.timeout!r}")
        if not isinstance(self.gpu_indices, list) or any(type(i) is not int or i < 0 for i in self.gpu_indices):
            raise ValueError(f"gpu_indices: expected a list of numbers such as [0, 1], got {self.gpu_indices!r}")
        if len(set(self.gpu_indices)) != len(self.gpu_indices):
            raise ValueError(f"gpu_indices: expected different numbers, got {self.gpu_indices}")
        if self.gpu_indices and self.device == "gpu" and len(self.gpu_indices) != self.num_processes:
            raise ValueError(
                f"gpu_indices: expected {self.num_processes} numbers, one per process, got {self.gpu_indices}"
            )
        if self.num_machines > 1 and self.master_addr in ("127.0.0.1", "localhost"):
            raise ValueError(f"master_addr: expected an address that other machines can reach, got {self.master_addr}")
        return self

    def environment(self):
        """Return the environment variables of a launched script."""
        env = {
            "MYTORCHRUN_MIXED_PRECISION": self.mixed_precision,
            "MYTORCH_FUSED": {"auto": "auto", "on": "1", "off": "0"}[self.fused],
            "TRITON_AUTOTUNE_MODE": self.autotune,
            "TRITON_FLASH_AUTOTUNE_MODE": self.autotune,
        }
        if self.log_wandb:
            env["MYTORCHRUN_LOG_WANDB"] = "1"
        return env

    def text(self):
        """Return the content of the file."""
        return "".join(f"{name}: {_value(value)}\n" for name, value in asdict(self).items())

    def write(self, path):
        """Write the file, and create its folder if necessary."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, ("# Training settings, written by `mytorchrun config`.\n" + self.text()).encode())

    @classmethod
    def read(cls, path):
        """Read a file.

        Raises:
            FileNotFoundError: if the file is missing.
            ValueError: if a line is not a setting, or a value is invalid.
        """
        known = {f.name for f in fields(cls)}
        values = {}
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            name, colon, value = line.partition(":")
            name = name.strip()
            if not colon or name not in known:
                raise ValueError(
                    f"{path}, line {number}: expected one of the settings {', '.join(sorted(known))}, got {line.strip()!r}"
                )
            values[name] = _parse(value.strip())
        try:
            return cls(**values).check()
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


def _value(value):
    is_word = isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w.-]*", value)
    return value if is_word and value not in ("no", "on", "off", "yes", "true", "false") else json.dumps(value)


def _parse(text):
    text = re.sub(r"\s+#.*$", "", text)
    try:
        return json.loads(text)
    except ValueError:
        return text.strip("'\"")
