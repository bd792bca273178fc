"""Module path of an operation, from the name the framework gave it.

JAX writes the stack of scopes into every instruction: `jit(step)/transpose(jvp(M))/Conv_0/conv_general_dilated`. Scopes
are the user's modules and `named_scope`s; what JAX adds itself (jit, transformations, loop bodies, the primitive at the
end) says how an operation came about and not where it belongs.
"""

import re
from functools import lru_cache

_PLUMBING = frozenset(
    {
        "body",
        "branch",
        "checkpoint",
        "closed_call",
        "cond",
        "core_call",
        "custom_jvp_call",
        "custom_vjp_call",
        "custom_vjp_call_jaxpr",
        "jvp",
        "main",
        "named_call",
        "pjit",
        "remat",
        "remat2",
        "rematted_computation",
        "scan",
        "shard_map",
        "transpose",
        "vmap",
        "while",
    }
)
"""Scope names that JAX puts there itself."""

_FUNCTION_WRAPPERS = frozenset({"jit", "pjit", "pmap", "xla_call", "xla_pmap", "core_call", "custom_jvp", "custom_vjp"})
"""Wrappers whose argument names a function of the program, not a module: `jit(relu)`."""


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
