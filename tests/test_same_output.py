"""Short programs that print the same text with PyTorch and in PyTorch mode."""

import subprocess
import sys

import pytest

PROGRAMS = {
    "legacy constructors": """
        import numpy as np
        print(torch.Tensor(np.array([0, 1])).dtype, torch.Tensor(np.array([True])).dtype, torch.Tensor([1, 2]).dtype)
        print(torch.FloatTensor(torch.Size([2, 3])).shape, torch.LongTensor(torch.Size([4])).shape, torch.IntTensor([1, 2]))
    """,
    "data has its own version": """
        x = torch.ones(3)
        x.data[0] = 5
        x.data.add_(1)
        print(x, x._version)
        x.detach().add_(1)
        print(x._version)
    """,
    "assignments": """
        x = torch.zeros(2, 3)
        x[0, 1] = torch.ones(1)
        x[1] = torch.ones(1, 1, 3)
        x[False] = torch.ones(7)
        print(x)
        v = torch.ones(1, 1, requires_grad=True)
        y = torch.zeros(3) + 0
        y[1] = v
        y.sum().backward()
        print(y.detach(), v.grad)
    """,
    "result types": """
        import copy, pickle
        found = torch.max(torch.eye(2), 0)
        print(found, type(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found)))
        print(torch.return_types.max([1, 2]), isinstance(found, torch.return_types.max), found.n_fields)
        print(torch.linalg.qr(torch.eye(1)), torch.qr(torch.eye(1)), torch.sort(torch.ones(1)), torch.linalg.eigh(torch.eye(1)))
    """,
    "printing": """
        print(torch.tensor([1 + 0j, 2 - 3j]), torch.tensor([1.5 + 1e-6j, 2]), torch.tensor(1j))
        print(torch.full((27,), 100, dtype=torch.int32), torch.zeros(13, dtype=torch.float64))
        print(torch.ones(27, requires_grad=True, dtype=torch.float64), torch.empty(2, 0, dtype=torch.int32))
        torch.set_printoptions(edgeitems=0, threshold=3)
        print(torch.ones(5))
    """,
    "hooks and optimizer state are tensors": """
        x = torch.ones(2, requires_grad=True)
        seen = []
        y = x * x
        x.register_hook(lambda g: seen.append(type(g) is torch.Tensor))
        y.register_hook(lambda g: seen.append(type(g) is torch.Tensor))
        y.grad_fn.register_hook(lambda a, b: seen.append(type(a[0]) is type(b[0]) is torch.Tensor))
        y.sum().backward()
        print(seen, type(x.grad) is torch.Tensor)
        for rule in "Adam AdamW SGD RMSprop Adagrad Adadelta Adamax NAdam RAdam Rprop ASGD".split():
            p = torch.nn.Parameter(torch.ones(2))
            options = {"momentum": 0.9} if rule == "SGD" else {}
            optimizer = getattr(torch.optim, rule)([p], lr=0.1, **options)
            for _ in range(3):
                optimizer.zero_grad()
                (p * p).sum().backward()
                optimizer.step()
            state = {k: type(v) is torch.Tensor for k, v in sorted(optimizer.state[p].items()) if v is not None}
            again = getattr(torch.optim, rule)([p], lr=0.1, **options)
            again.load_state_dict(optimizer.state_dict())
            (p * p).sum().backward()
            again.step()
            print(rule, state.get("step"), all(state.values()), p.detach())
    """,
    "small differences": """
        print(torch.ones(1, 1, 2).squeeze(0, 1).shape, torch.histogram(torch.arange(9.0), density=True)[0].shape)
        x = torch.tensor([0.5, 1.0, 3.0])
        print(torch.histc(x, 5, min=x.min(), max=x.max()), torch.legacy_contiguous_format)
        print(torch.nn.GRU(2, 2)._flat_weights_names, torch.nn.LSTM(2, 2, bidirectional=True)._all_weights)
        n = float("nan")
        for kind in (torch.bfloat16, torch.float16):
            t = torch.tensor([n, 1.0, -2.0, n, 0.0, float("inf")], dtype=kind)
            print(t.sort().values, t.sort(descending=True).values, t.topk(4).values, t.topk(3, largest=False).values, t.argsort())
        print({torch.complex32: 1}[torch.complex32], torch.complex32 == torch.complex64)
        print(torch.asarray(torch.utils.dlpack.to_dlpack(torch.ones(2))))
    """,
    "errors": """
        for call in (
            lambda: torch.numel(3),
            lambda: torch.ones(2, 2).topk(1, True),
            lambda: torch.take_along_dim(torch.ones(2, 2), torch.zeros(2, 2), 0),
            lambda: torch.take_along_dim(torch.ones(2, 2), torch.zeros(2, dtype=torch.long), 0),
            lambda: torch.ones(2, dtype=torch.int32).index_fill_(0, torch.tensor([0]), 1j),
            lambda: torch.add(torch.ones(2), torch.ones(2), alpha=1j),
        ):
            try:
                print(call())
            except Exception as error:
                print(type(error).__name__)
    """,
    "absent names": """
        print(hasattr(torch._C, "no_such_name"), getattr(torch._dynamo, "no_such_name", 3), hasattr(torch.fx, "no_such_name"))
        print(isinstance(torch.nn.Linear(1, 1), torch._dynamo.eval_frame.OptimizedModule), torch.onnx.is_in_onnx_export())
        import torch.__future__, torch.testing._internal.common_utils, torch.multiprocessing.spawn, torch.amp.autocast_mode
        from torch.nn.parallel.scatter_gather import gather
        print(torch.futures.Future[int] is None, torch.serialization.DEFAULT_PROTOCOL, torch.multiprocessing.start_processes.__name__)
        with torch.autograd.set_multithreading_enabled(False):
            print(torch.autograd.is_multithreading_enabled())
        print(torch.autograd.is_multithreading_enabled())
        print(torch.__future__.get_swap_module_params_on_conversion(), gather.__name__)
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_print_the_same(name, torch):
    lines = [line.removeprefix("        ") for line in PROGRAMS[name].splitlines()]
    program = "import torch\n" + "\n".join(lines)
    outputs = []
    for start in ("", "import mytorch; mytorch.install_as_torch()\n"):
        found = subprocess.run([sys.executable, "-c", start + program], capture_output=True, text=True, timeout=120)
        assert found.returncode == 0, found.stderr[-1500:]
        outputs.append(found.stdout)
    assert outputs[0] == outputs[1]
