"""A training run with checkpoints that can be killed during a step and resumed; run under the launcher.

Arguments: folder, steps, [rank and micro-step at which that rank kills itself].
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

import mytorch
from mytorch import nn
from mytorch.accelerate import Accelerator
from mytorch.accelerate.training_state import newest_checkpoint
from mytorch.utils.data import DataLoader, TensorDataset

folder, steps = Path(sys.argv[1]), int(sys.argv[2])
victim, moment = (int(a) for a in sys.argv[3:5]) if len(sys.argv) > 3 else (None, None)
accelerator = Accelerator(gradient_accumulation_steps=2, total_limit=2)
mytorch.manual_seed(1)
draw = np.random.default_rng(0)
data = TensorDataset(*(mytorch.from_numpy(draw.normal(size=(480, 6)).astype(np.float32)) for _ in range(2)))
model = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 6))
optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = mytorch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
loader = DataLoader(data, batch_size=4, shuffle=True)
model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
mytorch.manual_seed(100 + accelerator.rank)
found = newest_checkpoint(folder)
if found is not None:
    accelerator.load_state(found)
accelerator.wait_for_everyone()
while accelerator.step_counter < 2 * steps:
    for x, y in loader:
        if (accelerator.rank, accelerator.step_counter) == (victim, moment):
            os.kill(os.getpid(), signal.SIGKILL)
        loss = nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        value = accelerator.gather_for_metrics(loss)
        if accelerator.is_main_process:
            print(f"LOSS {accelerator.step_counter} {value.hex()}", flush=True)
        if accelerator.sync_grad and accelerator.step_counter % 10 == 0:
            accelerator.save_state(folder / f"checkpoint_{accelerator.step_counter}")
        if accelerator.step_counter >= 2 * steps:
            break
accelerator.end_training()
