"""Names that earlier versions of mytorch had, with their replacements, which the error for such a name shows."""

# PyTorch's packages that run on mytorch -> how to install them. mytorch's packages "vision" and "audio" have small parts of them.
INSTALL = {
    f"torch{name}": f"pip install --no-deps torch{name}=={v}" for name, v in (("vision", "0.28.0"), ("audio", "2.11.0"))
}
# Path below `mytorch` of a removed module or name -> what to use.
REMOVED = {
    "distributed.PrefixStore": "Write the prefix into the keys of a store: store.set('prefix/key', value)",
    "fx.feature_extraction": f"Use torchvision.models.feature_extraction: {INSTALL['torchvision']}",
}


def advice(path):
    """Returns how to get a removed name below `mytorch`, such as "vision.models.swin_t"; "" for other names.

    Any unknown name of `vision` and `audio` may be one of PyTorch's packages.
    """
    if path in REMOVED:
        return REMOVED[path]
    first, _, rest = path.partition(".")
    if f"torch{first}" not in INSTALL:
        return ""
    module = f"torch{first}.{rest}".rpartition(".")[0]
    return f"{module} may have it: {INSTALL[f'torch{first}']}, and run the program with python -m mytorch"
