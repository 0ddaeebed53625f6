"""What `mytorchrun config` remembers: a few settings in a small YAML file.

The file is flat, `name: value` a line, so it is read and written here without a YAML library; anything else in
it is an error that names the line.
"""

import json
import os
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from ..distributed.environment import DEFAULT_ADDRESS, DEFAULT_PORT
from ..serialization import atomic_write

PRECISIONS = ("no", "fp16", "bf16")
FUSED = ("auto", "on", "off")
AUTOTUNE = ("none", "medium", "max")


def default_path():
    """Where the configuration is kept: under XDG_CONFIG_HOME, or ~/.config."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "mytorch" / "config.yaml"


@dataclass
class Configuration:
    """How to train on this machine.

    Attributes:
        device: "gpu" or "cpu".
        num_processes: on this machine; one for each GPU.
        gpu_indices: which GPUs; empty for the first ones.
        num_machines, machine_rank, master_addr, master_port: for several machines.
        mixed_precision: "no", "fp16" or "bf16".
        fused: whether ops run by fused kernels: "auto", "on" or "off".
        autotune: how much Triton tries: "none", "medium" or "max".
        log_wandb: log to Weights & Biases.
        timeout: seconds that a rank may wait in a collective; 0 for the backend's default.
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
        """Whether there is more than one process."""
        return self.num_processes * self.num_machines > 1

    def check(self):
        """Refuse what cannot be.

        Raises:
            ValueError: naming the setting, its value, and what is wanted.
        """
        words = {"device": ("cpu", "gpu"), "mixed_precision": PRECISIONS, "fused": FUSED, "autotune": AUTOTUNE}
        for name, choices in words.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected one of {', '.join(choices)}")
        machines = {"num_machines": (1, 65536), "machine_rank": (0, self.num_machines - 1)}
        ranges = {"num_processes": (1, 65536), **machines, "master_port": (1, 65535)}
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise ValueError(f"{name} is {value!r}; expected a whole number in [{low}, {high}]")
        if not isinstance(self.log_wandb, bool):
            raise ValueError(f"log_wandb is {self.log_wandb!r}; expected true or false")
        if not isinstance(self.timeout, (int, float)) or self.timeout < 0:
            raise ValueError(f"timeout is {self.timeout!r}; expected seconds, or 0")
        if not isinstance(self.gpu_indices, list) or any(type(i) is not int or i < 0 for i in self.gpu_indices):
            raise ValueError(f"gpu_indices is {self.gpu_indices!r}; expected a list of numbers such as [0, 1]")
        if len(set(self.gpu_indices)) != len(self.gpu_indices):
            raise ValueError(f"gpu_indices is {self.gpu_indices}; a GPU is named twice")
        if self.gpu_indices and self.device == "gpu" and len(self.gpu_indices) != self.num_processes:
            raise ValueError(
                f"gpu_indices is {self.gpu_indices}; expected {self.num_processes} of them, one for each process"
            )
        if self.num_machines > 1 and self.master_addr in ("127.0.0.1", "localhost"):
            raise ValueError(f"master_addr is {self.master_addr}, which other machines cannot reach")
        return self

    def environment(self):
        """The variables that a launched script reads its settings from."""
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
        """The file's content."""
        return "".join(f"{name}: {_value(value)}\n" for name, value in asdict(self).items())

    def write(self, path):
        """Write the file, and the folder it is in."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, ("# How to train here; written by `mytorchrun config`.\n" + self.text()).encode())

    @classmethod
    def read(cls, path):
        """The configuration in a file.

        Raises:
            FileNotFoundError: there is none. ValueError: a line that is no setting, or a wrong value.
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
                    f"{path}, line {number}: {line.strip()!r} is no setting; expected one of {', '.join(sorted(known))}"
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
