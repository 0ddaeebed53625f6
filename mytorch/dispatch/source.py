"""The text of the callers (callers.py): pieces of Python, put together for a record with its own arguments by name.

`print(source_of(mytorch.ops.reduction._sum))` shows one, and it is what to read: each step is one of `Op.run`'s.
"""

from inspect import Parameter

from ..kernels.registry import SMALL
from .record import PSEUDO

_BEGIN = """\
def {name}({parameters}, **kwargs):
    mode = get_mode()
    if {unusual}:
        return {general}
"""
_INPUT = """\
    if isinstance({input}, Tensor):
        array{i} = {input}._data
        x{i} = array{i}._array
        if {unfit}:
            return {general}
        view = {input}._view
        if view is not None and view[0]._edge is not view[1]:
            refresh({input})
        edge{i} = {input}._edge
    elif {number}:
        x{i} = {input}
        array{i} = edge{i} = None
    else:
        return {general}
"""
_INPUTS = """\
    raws, edges, wanting = [], [], 0
    for tensor in {first}:
        raw = tensor._data._array if isinstance(tensor, Tensor) else None
        if type(raw) is not ndarray or raw.dtype.kind == 'V' or (raws and raw.dtype is not raws[0].dtype):
            return {general}
        edge = tensor._edge if tensor._view is None else tensor.edge
        if edge is not None:
            wanting |= 1 << len(raws)
        raws.append(raw)
        edges.append(edge)
"""
_KERNEL = """\
    if fused is not False and (x0.size >= {small} or policy()):
        module = find("cpu", fused, ({raws}), {options})
        if module is not None:
            collected = ({raws}), ({edges}), ({arrays}), {wanting}, xp
            return apply(by_kernel(module), collected, {options}, mode, ({first},))
"""
_RUN = """\
    try:
        {results} = forward(xp, {raws}{named})
    except Exception as error:
        raise explained(op, ({raws}), error) from None
    if type(out) is not ndarray and (isinstance(out, generic) or not is_raw(out)):
        out = asarray(out)
    data = new(Array)
    data._array = out
    data._cell = None
    result = new(Face)
    result._data = data
    result._edge = None
    result._view = None
"""
_RUN_SEVERAL = """\
    collected = ({raws}), ({edges}), ({arrays}), {wanting}, xp
    return apply(reference, collected, {options}, mode, ({first},))
"""
_VIEW = """\
    base = out.base
    if out is x0 or (base is not None and (base is x0 or base is x0.base or memory_owner(out) is memory_owner(x0))):
        cell = array0._cell
        if cell is None:
            cell = array0._cell = [0]
        data._cell = cell
        view = {first}._view
        if view is None:
            result._view = ({first}, edge0, ((op, {options}),))
        else:
            result._view = (view[0], view[0]._edge, view[2] and (*view[2], (op, {options})))
"""
_RECORD = """\
    if {wanted} and mode.grad{floats}:
"""
_SAVE_INPUT = """\
        cell0 = array0._cell
        if cell0 is None:
            cell0 = array0._cell = [0]
"""
_SAVE_OUT = """\
        cell1 = data._cell
        if cell1 is None:
            cell1 = data._cell = [0]
"""
_NODE = """\
        result._edge = Node(op, plan, (edge0,), ({values}), ({cells}), out.shape, out.dtype)
"""
_NODE_OF_SEVERAL = """\
        wanting = {wanting}
        plan = plans.get(wanting)
        if plan is None:
            plan = plans[wanting] = plan_of(wanting)
        if plan.wanted:
            versions = []
            for i in plan.inputs:
                array = ({arrays})[i]
                if array is not None:
                    cell = array._cell
                    if cell is None:
                        cell = array._cell = [0]
                    versions.append((cell, cell[0]))
            if plan.out:
                data._cell = cell = [0]
                versions.append((cell, 0))
            saved = plan.pick(({values})) if plan.names else ()
            result._edge = Node(op, plan, ({edges}), saved, versions, out.shape, out.dtype)
"""
_RECORD_INPUTS = """\
    if wanting and mode.grad:
        record((result,), (out,), reference, (), (raws, edges, [t._data for t in {first}], wanting, xp), {options}, mode)
"""


def source_of(op):
    """The text of a record's caller."""
    further = ("fused", "auto") if op.fused_on else ()
    own = [*(f"{n}=None" for n in op.inputs[op.required :]), *(f"{n}=default_{n}" for n in op.attrs)]
    unusual = ["args", "kwargs", "not mode.plain"]
    unusual += ["fused is not None and fused is not False or auto"] if further else []
    unusual += [f"{n} is missing" for n, value in op.defaults.items() if value is Parameter.empty]
    fields = {
        "name": op.name,
        "first": op.inputs[0],
        "parameters": ", ".join([*op.inputs[: op.required], *own, "*args", *(f"{n}=default_{n}" for n in further)]),
        "unusual": " or ".join(unusual),
        "general": f"general(({', '.join(op.inputs)},), {_options((*op.attrs, *further))}, args, kwargs)",
        "named": ", ".join(f"{n}={n}" for n in op.attrs),
        "results": ", ".join(("out", *op.residuals)),
    }
    fields |= {"raws": _each(op, "x{}, "), "edges": _each(op, "edge{}, "), "arrays": _each(op, "array{}, ")}
    fields |= {"wanting": _wanting(op), "small": SMALL, "options": _options(op.attrs)}
    if op.variadic:
        return _source_of_variadic(op, fields)
    text = _BEGIN.format(**fields)
    for i, name in enumerate(op.inputs):
        unfit, number = _conditions(op, i, name)
        text += _INPUT.format(i=i, input=name, unfit=unfit, number=number, **fields)
    text += (_KERNEL if "cpu" in op.fused_on else "").format(**fields)
    if op.outputs:
        return text + _RUN_SEVERAL.format(**fields)
    text += (_RUN + (_VIEW if op.view else "")).format(**fields)
    return text + (_recorded(op) if op.is_differentiable else "") + "    return result\n"


def _source_of_variadic(op, fields):
    """The text of the caller of an op of any number of inputs, such as cat."""
    fields["parameters"] = ", ".join([f"*{op.inputs[0]}", *(f"{n}=default_{n}" for n in op.attrs)])
    fields |= {"general": f"general({op.inputs[0]}, {_options(op.attrs)}, (), kwargs)", "raws": "*raws, "}
    fields |= {"unusual": fields["unusual"].removeprefix("args or ")}
    return (_BEGIN + _INPUTS + _RUN + _RECORD_INPUTS + "    return result\n").format(**fields)


def _options(names):
    return "{" + ", ".join(f"{n!r}: {n}" for n in names) + "}"


def _each(op, piece):
    """A piece of text for each input."""
    return "".join(piece.format(i) for i in range(len(op.inputs)))


def _wanting(op):
    """A bit for each input that has an edge."""
    return " + ".join(f"{1 << i} * (edge{i} is not None)" for i in range(len(op.inputs)))


def _conditions(op, i, name):
    """When the raw array of a tensor at place i is not for a caller, and when something else than a tensor is."""
    promoted = op.promoted or range(len(op.inputs))
    numbers, unfit = [], [f"type(x{i}) is not ndarray"]
    if op.dtype != "same" and i in promoted:
        first = promoted[0]
        if i != first:
            unfit.append(f"x{i}.dtype is not x{first}.dtype")
            numbers.append(f"(type({name}) is float or type({name}) is int) and x{first}.dtype.char in 'fd'")
            numbers.append(f"type({name}) is int and x{first}.dtype.kind == 'i' and 0 <= {name} < 128")
        elif op.dtype == "float":
            unfit.append(f"x{i}.dtype.char not in 'fdFD'")
        elif (
            op.attrs or op.fused_on or len(op.inputs) > 2 or not op.xp_name
        ):  # half precision, whose steps are float32's
            unfit.append(f"x{i}.itemsize == 2")
    if i >= op.required:
        numbers.append(f"{name} is None")
    return " or ".join(unfit), " or ".join(numbers) or "False"


def _recorded(op):
    """The text that attaches a Node to the result: what `Op.record` does."""
    n = len(op.inputs)
    plan = op.reference.plan((1 << n) - 1)
    if not plan.wanted:
        return ""
    edges = _each(op, "edge{}, ")
    values = {
        **{name: f"x{i}" for i, name in enumerate(op.inputs)},
        **{name: name for name in ("out", *op.residuals, *op.attrs, "xp")},
        "shape": "x0.shape",
        "shapes": "(" + _each(op, "getattr(x{}, 'shape', ()), ") + ")",
        "dtypes": "(" + _each(op, "getattr(x{}, 'dtype', None), ") + ")",
        "needs": "plan.needs",
        "float32_accum": f"(cast_from_float32(({edges})) if x0.itemsize == 2 else plan.no_accum)",
    }
    if n == 1:
        saves, node = (_SAVE_INPUT if plan.inputs else "") + (_SAVE_OUT if plan.out else ""), _NODE
        places = plan.names
    else:
        saves, node, places = "", _NODE_OF_SEVERAL, op.reference.names
        values.update({name: "None" for name in PSEUDO if name not in plan.names})
    return (_RECORD + saves + node).format(
        wanted="(" + " or ".join(f"edge{i} is not None" for i in range(n)) + ")",
        floats=" and out.dtype.kind in 'fcV'" if op.attrs else "",
        values="".join(f"{values[name]}, " for name in places),
        cells=("(cell0, cell0[0]), " if plan.inputs else "") + ("(cell1, cell1[0]), " if plan.out else ""),
        wanting=_wanting(op),
        arrays=_each(op, "array{}, "),
        edges=edges,
    )
