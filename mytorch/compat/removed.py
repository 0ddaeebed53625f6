"""Names that earlier versions of mytorch had, with their replacements, which the error for such a name shows."""

# PyTorch's packages that run on mytorch -> how to install them. mytorch's packages "vision" and "audio" have small parts of them.
INSTALL = {
    f"torch{name}": f"pip install --no-deps torch{name}=={v}" for name, v in (("vision", "0.28.0"), ("audio", "2.11.0"))
}
# Path below `mytorch` of a removed module or name -> what to use.
REMOVED = {
    "distributed.PrefixStore": "Write the prefix into the keys of a store: store.set('prefix/key', value)",
    "fx.passes.infra": "Write the pass as a function of a GraphModule",
    "fx.experimental.optimization.remove_dropout": "Call model.eval(), which turns dropout off",
    "vision.io.decode_image": "Use PIL.Image.open(io.BytesIO(data)) and vision.transforms.functional.pil_to_tensor",
    "vision.io.encode_png": "Use vision.transforms.functional.to_pil_image(x).save(buffer, 'PNG')",
    "utils.data.TokenBlocks": "Use utils.data.RandomBlocks, whose item i is a batch that depends only on the seed and on i",
    "utils.watch": "Call writer.add_histogram(name, p, step) for each of model.named_parameters()",
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
