"""Parallel styles: the placements of the parameters, inputs and outputs of one module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ....arrays.tensor import Tensor
from ....nn.embedding import Embedding
from ....nn.linear import Linear
from ....nn.module import Module
from ...device_mesh import DeviceMesh
from ..dtensor import DTensor, checked_placements, set_parameter, shared_parameter
from ..placement_types import Placement, Replicate, Shard, _BlockShard
from ..rules import varying


class ParallelStyle(ABC):
    """The base class of parallel styles. `parallelize_module` calls `_apply`."""

    @abstractmethod
    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Applies the style to a module, in place."""


def _one_dim(mesh):
    if mesh.ndim != 1:
        raise ValueError(
            f"parallelize_module: expected a mesh of 1 dimension, got {mesh}. Take a sub-mesh, mesh['tp']."
        )
    return mesh


def _marked(module):
    """Changes the class of a module to an empty subclass: code for one class of plain layers does not apply to it."""
    cls = type(module)
    if not cls.__name__.startswith("TensorParallel"):
        names = {"__module__": cls.__module__, "__doc__": cls.__doc__}
        module.__class__ = type(f"TensorParallel{cls.__name__}", (cls,), names)
    return module


def _to_dtensor(x, mesh, layout):
    """Returns a plain tensor as a DTensor of equal parts. DTensors do not change."""
    return DTensor.from_local(x, mesh, [layout]) if isinstance(x, Tensor) and not isinstance(x, DTensor) else x


def _to_layout(d, layout, use_local):
    d = (
        d.redistribute(placements=[layout])
        if list(d.placements) != list(checked_placements([layout], d.device_mesh, d.ndim, ""))
        else d
    )
    return d.to_local() if use_local else d


def _place(module, mesh, placements):
    """Replaces the parameters of a module by DTensors; parameters without a placement are replicated."""
    for name, p in list(module._parameters.items()):
        if p is not None:
            set_parameter(module, name, shared_parameter(p, mesh, [placements.get(name, Replicate())]))


def _hook_inputs(module, convert):
    module.register_forward_pre_hook(lambda module, args: (convert(args[0]), *args[1:]))


def _hook_output(module, convert):
    module.register_forward_hook(lambda module, args, out: convert(out))


class _Partitioned(ParallelStyle):
    """The base of the styles of linear layers and embeddings."""

    default_input: Placement
    default_output: Placement

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ):
        self.input_layouts = input_layouts or self.default_input
        self.output_layouts = output_layouts or self.default_output
        self.use_local_output = use_local_output

    def _placements(self, module):
        raise NotImplementedError

    def _input(self, module):
        """Returns the placement that the module requires of its input."""
        raise NotImplementedError

    def _apply(self, module, device_mesh):
        mesh = _one_dim(device_mesh)
        if not isinstance(module, (Linear, Embedding)):
            raise NotImplementedError(
                f"{type(self).__name__}: expected an nn.Linear or nn.Embedding, got {type(module).__name__}."
            )
        _place(_marked(module), mesh, self._placements(module))
        wanted = self._input(module)

        def enter(x):
            x = _to_dtensor(x, mesh, self.input_layouts)
            if x._varying or not isinstance(module, Linear) or not wanted.is_replicate():
                return x if wanted == x.placements[0] else x.redistribute(placements=[wanted])
            return varying(x)  # the layer computes a partial sum of the gradient

        _hook_inputs(module, enter)
        _hook_output(module, lambda out: _to_layout(out, self.output_layouts, self.use_local_output))
        return module


class ColwiseParallel(_Partitioned):
    """Divides the outputs of an `nn.Linear`, or the columns of an `nn.Embedding`.

    Args:
        input_layouts: placement of the input (default: `Replicate()`).
        output_layouts: placement of the output (default: `Shard(-1)`).
        use_local_output: return the local tensor instead of a DTensor (default: True).

    Source: Shoeybi et al., Megatron-LM, 2019.
    """

    default_input, default_output = Replicate(), Shard(-1)

    def _placements(self, module):
        return {"weight": Shard(1)} if isinstance(module, Embedding) else {"weight": Shard(0), "bias": Shard(0)}

    def _input(self, module):
        return Replicate()


class FusedColwiseParallel(ColwiseParallel):
    """Divides each of several projections that one `nn.Linear` contains, such as queries, keys and values.

    Args:
        blocks: number of projections of equal size.
        input_layouts: placement of the input (default: `Replicate()`).
        use_local_output: must be True: the parts of a process are not neighbors in the whole output.
    """

    def __init__(self, blocks: int, *, input_layouts: Placement | None = None, use_local_output: bool = True):
        if not use_local_output:
            raise ValueError("FusedColwiseParallel: expected use_local_output=True, got False.")
        super().__init__(input_layouts=input_layouts)
        self.blocks = blocks

    def _apply(self, module, device_mesh):
        self.output_layouts = _BlockShard(-1, self.blocks)
        return super()._apply(module, device_mesh)

    def _placements(self, module):
        if isinstance(module, Embedding):
            raise NotImplementedError("FusedColwiseParallel: expected an nn.Linear, got an nn.Embedding.")
        return {"weight": _BlockShard(0, self.blocks), "bias": _BlockShard(0, self.blocks)}


class RowwiseParallel(_Partitioned):
    """Divides the inputs of an `nn.Linear`, or the rows of an `nn.Embedding`. The outputs are partial sums.

    Args:
        input_layouts: placement of the input (default: `Shard(-1)`; use `Replicate()` for an embedding).
        output_layouts: placement of the output (default: `Replicate()`). `Shard(1)` divides the sequence.
        use_local_output: return the local tensor instead of a DTensor (default: True).

    Source: Shoeybi et al., Megatron-LM, 2019.
    """

    default_input, default_output = Shard(-1), Replicate()

    def _placements(self, module):
        return {"weight": Shard(0)} if isinstance(module, Embedding) else {"weight": Shard(1), "bias": Replicate()}

    def _input(self, module):
        return Replicate() if isinstance(module, Embedding) else Shard(-1)

    def _apply(self, module, device_mesh):
        if isinstance(module, Embedding) and self.input_layouts == Shard(-1):
            self.input_layouts = Replicate()
        return super()._apply(module, device_mesh)


class SequenceParallel(ParallelStyle):
    """Divides the sequence dimension of the input of a norm, a dropout or another position-wise module.

    Args:
        sequence_dim: the sequence dimension (default: 1, for (B, T, C)).
        use_local_output: return the local tensor instead of a DTensor (default: False).

    Source: Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022.
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False):
        self.layout, self.use_local_output = Shard(sequence_dim), use_local_output

    def _apply(self, module, device_mesh):
        mesh = _one_dim(device_mesh)
        for part in module.modules():
            _place(part, mesh, {})
        _hook_inputs(_marked(module), lambda x: _to_layout(_to_dtensor(x, mesh, self.layout), self.layout, False))
        if self.use_local_output:
            _hook_output(module, lambda out: out.to_local())
        return module


def _tuple(layouts):
    return tuple(layouts) if isinstance(layouts, (list, tuple)) else (layouts,)


class PrepareModuleInput(ParallelStyle):
    """Changes the placements of the inputs of a module.

    Args:
        input_layouts: placement of each positional input; None leaves an input unchanged.
        desired_input_layouts: placement that the module receives for each positional input.
        input_kwarg_layouts: {name: placement} of keyword inputs.
        desired_input_kwarg_layouts: {name: placement} that the module receives.
        use_local_output: pass local tensors instead of DTensors (default: False).

    Raises:
        ValueError: the numbers of layouts differ.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | Sequence[Placement | None] | None = None,
        desired_input_layouts: Placement | Sequence[Placement | None] | None = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_output: bool = False,
    ):
        self.source, self.target = _tuple(input_layouts), _tuple(desired_input_layouts)
        self.keywords, self.desired = input_kwarg_layouts or {}, desired_input_kwarg_layouts or {}
        self.use_local_output = use_local_output
        if len(self.source) != len(self.target) or self.keywords.keys() != self.desired.keys():
            raise ValueError(
                "PrepareModuleInput: expected as many desired layouts as input layouts, got "
                f"{len(self.target)} and {len(self.source)}."
            )

    def _convert(self, x, mesh, source, target):
        if source is None or target is None or not isinstance(x, Tensor):
            return x
        d = _to_dtensor(x, mesh, source)
        if target.is_replicate() and not self.use_local_output:
            return varying(d)  # the layers of the module compute partial sums of the gradient
        return _to_layout(d, target, self.use_local_output)

    def _apply(self, module, device_mesh):
        mesh = _one_dim(device_mesh)

        def enter(module, args, kwargs):
            if len(args) < len([s for s in self.source if s is not None]):
                raise ValueError(
                    f"PrepareModuleInput: expected {len(self.source)} positional inputs of {type(module).__name__}, got "
                    f"{len(args)}."
                )
            layouts = [*zip(self.source, self.target, strict=True), *[(None, None)] * len(args)]
            args = tuple(self._convert(x, mesh, *pair) for x, pair in zip(args, layouts, strict=False))
            for name in self.keywords.keys() & kwargs.keys():
                kwargs[name] = self._convert(kwargs[name], mesh, self.keywords[name], self.desired[name])
            return args, kwargs

        module.register_forward_pre_hook(enter, with_kwargs=True)
        return module


class PrepareModuleOutput(ParallelStyle):
    """Changes the placements of the outputs of a module.

    Args:
        output_layouts: placement of each output; None leaves an output unchanged.
        desired_output_layouts: placement of each output that the module returns.
        use_local_output: return local tensors instead of DTensors (default: True).
    """

    def __init__(
        self,
        *,
        output_layouts: Placement | Sequence[Placement | None],
        desired_output_layouts: Placement | Sequence[Placement | None],
        use_local_output: bool = True,
    ):
        self.source, self.target = _tuple(output_layouts), _tuple(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.source) != len(self.target):
            raise ValueError(
                "PrepareModuleOutput: expected as many desired layouts as output layouts, got "
                f"{len(self.target)} and {len(self.source)}."
            )

    def _apply(self, module, device_mesh):
        mesh = _one_dim(device_mesh)

        def convert(x, source, target):
            if source is None or target is None:
                return x
            return _to_layout(_to_dtensor(x, mesh, source), target, self.use_local_output)

        def leave(module, args, out):
            several = isinstance(out, (tuple, list))
            outs = out if several else (out,)
            if len(outs) != len(self.source):
                raise ValueError(
                    f"PrepareModuleOutput: expected {len(self.source)} outputs of {type(module).__name__}, got {len(outs)}."
                )
            outs = tuple(convert(x, s, t) for x, s, t in zip(outs, self.source, self.target, strict=True))
            return outs if several else outs[0]

        module.register_forward_hook(leave)
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """Changes the placements of the inputs and outputs of a module.

    Args:
        input_layouts: as in `PrepareModuleInput`.
        desired_input_layouts: as in `PrepareModuleInput`.
        use_local_input: pass local tensors instead of DTensors (default: False).
        output_layouts: as in `PrepareModuleOutput`.
        desired_output_layouts: as in `PrepareModuleOutput`.
        use_local_output: return local tensors instead of DTensors (default: True).
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | Sequence[Placement | None] | None = None,
        desired_input_layouts: Placement | Sequence[Placement | None] | None = None,
        use_local_input: bool = False,
        output_layouts: Placement | Sequence[Placement | None],
        desired_output_layouts: Placement | Sequence[Placement | None],
        use_local_output: bool = True,
    ):
        self.before = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts, use_local_output=use_local_input
        )
        self.after = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def _apply(self, module, device_mesh):
        return self.after._apply(self.before._apply(module, device_mesh), device_mesh)


__all__ = [
    "ColwiseParallel", "FusedColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput",
    "PrepareModuleOutput", "RowwiseParallel", "SequenceParallel",
]  # fmt: skip
