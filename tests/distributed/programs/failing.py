"""A program that goes wrong in the way its argument names; run under the launcher."""

import os
import signal
import subprocess
import sys
import time

import mytorch
import mytorch.distributed as dist
from mytorch import nn

how, path = sys.argv[1:3]
dist.init_process_group()
rank = dist.get_rank()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])  # such as a loader's worker
with open(f"{path}/{rank}.pids", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
if how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if how == "graceful":

    def save(number, frame):
        os.write(1, f"saved by {rank}\n".encode())  # the interrupted call may be a print
        sys.exit(128 + number)

    signal.signal(signal.SIGINT, save)
    signal.signal(signal.SIGTERM, save)
for step in range(1000):
    loss = model(mytorch.ones(2, 4)).sum()
    if step == 3 and rank == 1:
        if how in ("kill", "stubborn"):
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "raise":
            raise KeyError("the cause")
        elif how == "exit":
            sys.exit(7)
        elif how == "sleep":
            time.sleep(600)
    loss.backward()
    if how == "graceful":
        os.write(1, f"step {step}\n".encode())
        time.sleep(0.1)
