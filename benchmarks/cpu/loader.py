"""Workloads: an epoch of a DataLoader over tensors, with items of 3 KB or 196 KB, and zero or two workers."""


def _loader(workers, rows, shape, **options):
    def case(L):
        data = L.utils.data.TensorDataset(L.randn(rows, *shape), L.randint(0, 10, (rows,)))
        loader = L.utils.data.DataLoader(data, batch_size=64, shuffle=True, num_workers=workers, **options)

        def run():
            for _ in loader:
                pass

        return run

    return case


WORKLOADS = {
    "loader_epoch": _loader(0, 4096, (28, 28)),
    "loader_2_workers": _loader(2, 4096, (28, 28), persistent_workers=True),
    "loader_large": _loader(0, 512, (3, 128, 128)),
    "loader_large_2": _loader(2, 512, (3, 128, 128), persistent_workers=True),
}
