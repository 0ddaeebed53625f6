"""Policies that select the submodules to shard, as in `torch.distributed.fsdp.wrap`."""

from collections.abc import Callable, Iterable
from typing import Any

from ...nn.containers import ModuleDict, ModuleList
from ...nn.module import Module
from ...nn.transformer import MultiheadAttention

Policy = Callable[..., bool]


class ModuleWrapPolicy:
    """Selects the modules of some classes."""

    def __init__(self, module_classes: Iterable[type[Module]]):
        self.classes = tuple(module_classes)

    def __call__(self, module: Module, recurse: bool = False, *args: Any, **kwargs: Any) -> bool:
        return recurse or isinstance(module, self.classes)


def transformer_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: Iterable[type[Module]]
) -> bool:
    """Selects the modules of some classes. Use it with `functools.partial`.

    Args:
        recurse: True to ask about the submodules of the module.
        nonwrapped_numel: number of elements of the parameters that are not selected yet.
        transformer_layer_cls: the classes.
    """
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, min_num_params: int = int(1e8),
    force_leaf_modules: set[type[Module]] | None = None, exclude_wrap_modules: set[type[Module]] | None = None,
) -> bool:  # fmt: skip
    """Selects modules with many parameters. Use it with `functools.partial`.

    Args:
        recurse: True to ask about the submodules of the module.
        nonwrapped_numel: number of elements of the parameters that are not selected yet.
        min_num_params: least number of elements (default: 100 million).
        force_leaf_modules: classes whose submodules are not selected (default: MultiheadAttention, which uses the
            parameters of its submodules without calling them).
        exclude_wrap_modules: classes that are not selected (default: ModuleList and ModuleDict, which are not called).
    """
    leaves = {MultiheadAttention} if force_leaf_modules is None else force_leaf_modules
    excluded = {ModuleList, ModuleDict} if exclude_wrap_modules is None else exclude_wrap_modules
    return nonwrapped_numel >= min_num_params and not isinstance(module, tuple(leaves if recurse else excluded))


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Selects every module."""
    return True


def selected(module: Module, policy: Policy | None) -> list[Module]:
    """Returns the submodules that a policy selects, inner modules first.

    Args:
        module: the model.
        policy: function of (module, recurse, nonwrapped_numel). None selects the items of each `nn.ModuleList`, such as the
            blocks of a transformer.
    """
    found: list[Module] = []
    seen: set[int] = set()

    def visit(part, is_root):
        if id(part) in seen:
            return
        seen.add(id(part))
        if policy is None:
            for child in part.children():
                if isinstance(child, ModuleList):
                    found.extend(c for c in child if any(True for _ in c.parameters()) and c not in found)
                else:
                    visit(child, False)
            return
        numel = sum(p.numel() for p in part.parameters())
        if policy(module=part, recurse=True, nonwrapped_numel=numel):
            for child in part.children():
                visit(child, False)
        taken = {id(p) for f in found for p in f.parameters()}
        numel = sum(p.numel() for p in part.parameters() if id(p) not in taken)
        if not is_root and numel and policy(module=part, recurse=False, nonwrapped_numel=numel):
            found.append(part)

    visit(module, True)
    return found


__all__ = [
    "ModuleWrapPolicy", "always_wrap_policy", "size_based_auto_wrap_policy", "transformer_auto_wrap_policy",
]  # fmt: skip
