"""Forward mode, which is not here: every name of PyTorch's module says so."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise NotImplementedError(
        f"autograd.forward_ad.{name}: there is no forward mode; autograd.functional.jvp gives the same numbers by "
        "differentiating backward twice."
    )
