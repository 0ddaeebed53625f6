"""Workloads: a step of each optimizer on 20 parameters of 256 × 256, and on 200 parameters of 16 × 16."""


def _optimizer(name, count, shape, **options):
    def case(L):
        params = [L.nn.Parameter(L.randn(*shape)) for _ in range(count)]
        for p in params:
            p.grad = L.randn(*shape)
        optimizer = getattr(L.optim, name)(params, **options)
        return optimizer.step

    return case


_RULES = {
    "SGD": {"lr": 1e-2},
    "SGD_momentum": {"lr": 1e-2, "momentum": 0.9},
    "Adam": {},
    "AdamW": {},
    "RMSprop": {},
    "Adagrad": {},
    "Adadelta": {},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
}
WORKLOADS = {
    f"{rule}_{count}": _optimizer(rule.partition("_")[0], count, shape, **options)
    for rule, options in _RULES.items()
    for count, shape in ((20, (256, 256)), (200, (16, 16)))
}
