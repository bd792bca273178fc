"""Module path of an operation, from the name the framework gave it.

JAX writes the stack of scopes into every instruction: `jit(step)/transpose(jvp(M))/Conv_0/conv_general_dilated`. Scopes
are the user's modules and `named_scope`s; what JAX adds itself (jit, transformations, loop bodies, the primitive at the
end) says how an operation came about and not where it belongs.

The compiler makes instructions of its own, without a name: layout changes, rewritten convolutions. They serve those
that read their result, and have their layer if these agree.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from phasepoint.hlo.categories import WRAPPERS
from phasepoint.hlo.cost import Cost, ModuleCost
from phasepoint.hlo.module import Computation, Instruction, Module

_PLUMBING = frozenset(
    {"body", "branch", "checkpoint", "closed_call", "cond", "core_call", "custom_jvp_call", "custom_vjp_call"}
    | {"custom_vjp_call_jaxpr", "eval_jaxpr", "jvp", "main", "named_call", "pjit", "remat", "remat2"}
    | {"rematted_computation", "scan", "shard_map", "transpose", "vmap", "while"}
)
"""Scope names that JAX puts there itself."""

_FUNCTION_WRAPPERS = frozenset({"jit", "pjit", "pmap", "xla_call", "xla_pmap", "core_call", "custom_jvp", "custom_vjp"})
"""Wrappers whose argument names a function of the program, not a module: `jit(relu)`."""


_NEVER_SERVING = frozenset({"constant", "parameter", "tuple"})
"""Opcodes whose values are not made for whoever reads them."""

_OPTIMIZER_FILE = re.compile(r"[\\/](?:optax|optimizers?)[\\/](?!losses[\\/])|[\\/]optimizers?\.py$")
_OPTIMIZER_SCOPE = re.compile(r"(?:^|[/(])(?:optimizer|optax|apply_updates|apply_gradients|update(?:_params)?)(?=[/)])")
"""Files and scopes that update parameters, whoever calls them."""

_BRANCH = re.compile(r"branch_\d+(_fun)?")


@lru_cache(maxsize=100_000)
def layer_of_op_name(op_name: str) -> str | None:
    """Module path in a framework's operation name, None where it names no module.

    `jit(step)/jvp(M)/Conv_0/conv_general_dilated` and its backward `jit(step)/transpose(jvp(M))/Conv_0/…` are both
    `M/Conv_0`. The last part is the primitive and is never a layer.

    Args:
        op_name: `op_name` of the HLO metadata.
    """
    scopes: list[str] = []
    for part in _split_scopes(op_name)[:-1]:
        found = _unwrap(part)
        if scopes and "(" in part and found[:1] == scopes[:1]:
            scopes = []  # rematerialised: the stack starts again inside the backward pass, transpose(jvp(M))/jvp(M)/…
        scopes += found
    return "/".join(scopes) or None


@lru_cache(maxsize=100_000)
def direction_of_op_name(op_name: str | None) -> str | None:
    """`backward` for what `transpose` made, `forward` for the rest of what `jvp` made, None where neither had a part.

    Args:
        op_name: `op_name` of the HLO metadata.

    Source: JAX's automatic differentiation names its scopes by the transformation: `transpose(jvp(M))` is the
    transposed, so backward, pass.
    """
    if not op_name:
        return None
    parts = _split_scopes(op_name)
    if any(part.startswith("transpose(") for part in parts):
        return "backward"
    return "forward" if any(part.startswith("jvp(") for part in parts) else None


def directions_of_module(module: Module) -> list[str | None]:
    """Direction of each instruction of `module.computations`, in their order; None where it is not known.

    Its own name decides: what `transpose` made is backward, what else `jvp` made forward; what an optimizer's file or
    scope made is the optimizer's. A fusion without a name has the direction in which all instructions of its body
    agree; with one, it has that of its root, whatever else was fused into it. What else the compiler made without a
    name serves those that read it, if these agree. What is left and reads, itself or through others, a result of the
    backward pass is the optimizer's, gradients become updates; but backward's where the compiler made it without a
    name, as it copies gradients, and no update is read. In a loop's body, what reads the loop's state is not
    known to read a gradient. A program in which but one direction is known has it throughout.

    Args:
        module: the program.
    """
    found: list[str | None] = []
    of_body: dict[Computation, str | None] = {}
    for computation in module.computations:
        own = _directions_of_computation(computation, of_body)
        told = zip(computation.instructions, own, strict=True)
        named = {direction for one, direction in told if one.opcode not in _NEVER_SERVING}
        of_body[computation] = named.pop() if len(named) == 1 else None
        found += own
    known = set(found) - {None}
    return [known.pop()] * len(found) if len(known) == 1 else found


def _directions_of_computation(computation: Computation, of_body: Mapping[Computation, str | None]) -> list[str | None]:
    known: dict[int, str | None] = {}
    readers: dict[int, set[str | None]] = {}
    for one in reversed(computation.instructions):
        direction = direction_of_op_name(one.op_name) or _direction_of_source(one)
        if not one.op_name and one.called:
            direction = of_body[one.called[0]]
        if direction is None and not one.op_name and one.opcode not in _NEVER_SERVING:
            read_by = readers.get(id(one), set())
            direction = next(iter(read_by)) if len(read_by) == 1 else None
        known[id(one)] = direction
        for operand in one.operands:
            readers.setdefault(id(operand), set()).add(direction)
    for one in computation.instructions:  # each stands behind what it reads
        if known[id(one)] is None and one.opcode not in _NEVER_SERVING:
            reads = {known[id(operand)] for operand in one.operands} & {"backward", "optimizer"}
            of_backward = reads == {"backward"} and not _is_named(one)
            known[id(one)] = ("backward" if of_backward else "optimizer") if reads else None
    return [known[id(one)] for one in computation.instructions]


def _is_named(one: Instruction) -> bool:
    """Whether the program's author asked for an instruction, or for part of a fusion: the framework names these."""
    return bool(one.op_name) or any(inner.op_name for body in one.called for inner in body.instructions)


def _direction_of_source(one: Instruction) -> str | None:
    """`optimizer` where an optimizer's file or scope made it."""
    is_update = (one.source and _OPTIMIZER_FILE.search(one.source[0])) or _OPTIMIZER_SCOPE.search(one.op_name)
    return "optimizer" if is_update else None


def layers_of_module(module: Module, cost: ModuleCost) -> list[str | None]:
    """Layer of each instruction of `module.computations`, in their order.

    An instruction's own name decides. A fusion or call without one has the layer of its body's root, else of the named
    instruction with most operations inside; whatever else has none has the layer of those that read it, if they agree.

    Args:
        module: the program.
        cost: its cost, to tell which instruction of a body is the heaviest.
    """
    costs = iter(cost.instructions)
    layers: list[str | None] = []
    bodies: dict[Computation, str | None] = {}
    for computation in module.computations:
        own_costs = [next(costs) for _ in computation.instructions]
        own = _layers_of_computation(computation, bodies)
        bodies[computation] = _layer_of_body(computation, own, own_costs)
        layers += own
    return layers


def _layers_of_computation(computation: Computation, bodies: dict[Computation, str | None]) -> list[str | None]:
    """Readers stand after what they read, so one pass from the end knows them all."""
    layers: list[str | None] = []
    readers: dict[int, set[str | None]] = {}
    for one in reversed(computation.instructions):
        layer = layer_of_op_name(one.op_name)
        if not one.op_name and one.opcode in WRAPPERS and one.called:
            layer = bodies[one.called[0]]
        if layer is None and not one.op_name and one.opcode not in _NEVER_SERVING:
            found = readers.get(id(one), set())
            layer = next(iter(found)) if len(found) == 1 else None
        layers.append(layer)
        for operand in one.operands:
            readers.setdefault(id(operand), set()).add(layer)
    return layers[::-1]


def _layer_of_body(computation: Computation, layers: list[str | None], costs: list[Cost]) -> str | None:
    root = layers[computation.instructions.index(computation.root)]
    if root is not None or computation.root.op_name:
        return root
    named = [(layer, cost) for layer, cost in zip(layers, costs, strict=True) if layer]
    heaviest = max(named, key=lambda pair: _weight(pair[1]), default=(None, None))
    return heaviest[0]


def _weight(cost: Cost) -> tuple[int, int]:
    """Operations, transcendental ones among them, then bytes."""
    return (cost.flop or 0) + (cost.transcendentals or 0), cost.bytes or 0


def _split_scopes(path: str) -> list[str]:
    """Split at the slashes that stand outside brackets: a parameter is named `p['net/linear']['w']`."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(path):
        if letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        elif letter == "/" and depth <= 0:
            parts.append(path[start:place])
            start = place + 1
    parts.append(path[start:])
    return parts


def _unwrap(part: str) -> list[str]:
    """The user's scopes in one part: `transpose(jvp(M))` → `["M"]`, `jvp(jit(relu))` → `[]`."""
    wrapper, parenthesis, rest = part.partition("(")
    if not parenthesis or not rest.endswith(")"):
        return [] if _is_plumbing(part) else [part]
    if wrapper in _FUNCTION_WRAPPERS:
        return []
    return [scope for inner in _split_scopes(rest[:-1]) for scope in _unwrap(inner)]


def _is_plumbing(part: str) -> bool:
    """A scope that JAX put there: a loop's body, a branch, an einsum's equation."""
    return not part or part in _PLUMBING or "->" in part or _BRANCH.fullmatch(part) is not None
