"""Causes that stand in the device's program in `benchmarks/findings.py`: layout, small kernels, precision, growth."""

from collections.abc import Callable
from typing import Any

from findings_plan import FIVE_STRENGTHS, JAX, JAX_SYNC, TORCH, TORCH_FIVE, Cause, Job, Plan, Plant

_SIDE = 512
_TINY = 16
_CHUNK = 16_384
"""Elements by which the array grows that a chain of elementwise operations goes through."""

_LOW_ROWS = 64


def _keep(images: Any, value: Any) -> Any:
    """The images as they were, and a reason for the compiler to compute the value."""
    return images + 1e-30 * value


def transposes(plan: Plan) -> Plant:
    """The images are copied into another order and back, many times over."""
    if not plan.planted or not plan.repeats:
        return Plant()
    if plan.framework == "torch":
        return Plant(device=lambda images, step: _torch_transposed(images, plan.repeats))
    import jax
    import jax.numpy as jnp

    block = jnp.arange(_SIDE * _SIDE, dtype=jnp.float32)

    def turn(_: Any, flat: Any) -> Any:  # one transpose after another the compiler would make into one read
        return flat.reshape(_SIDE, _SIDE).T.reshape(-1)

    def device(images: Any, step: Any) -> Any:
        flat = jax.lax.fori_loop(0, plan.repeats, turn, block + jax.lax.stop_gradient(images[0, 0]))
        return _keep(images, flat[1])

    return Plant(device=device)


def _torch_transposed(images: Any, repeats: int) -> Any:
    import torch

    block = torch.zeros(_SIDE, _SIDE) + images[0, 0]
    for _ in range(repeats):
        block = block.t().contiguous()
    return _keep(images, block[0, 1])


def tiny_kernels(plan: Plan) -> Plant:
    """Small products row by row; without the cause one product of all rows."""
    if not plan.repeats:
        return Plant()
    import torch

    weight, rows = torch.eye(_TINY) * 0.5, torch.ones(plan.repeats, _TINY)

    def device(images: Any, step: Any) -> Any:
        mine = rows + images[0, 0]
        if plan.planted:
            return _keep(images, torch.stack([torch.tanh(row @ weight) for row in mine]).sum())
        return _keep(images, torch.tanh(mine @ weight).sum())

    return Plant(device=device)


def unfused_chain(plan: Plan) -> Plant:
    """GELU written out operation by operation; without the cause in one kernel."""
    if not plan.repeats:
        return Plant()
    return (_jax_chain if plan.framework == "jax" else _torch_chain)(plan)


def _torch_chain(plan: Plan) -> Plant:
    import torch

    values = torch.linspace(-3, 3, _CHUNK * plan.repeats)

    def device(images: Any, step: Any) -> Any:
        x = values
        if plan.planted:
            y = 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))
        else:
            y = torch.nn.functional.gelu(x, approximate="tanh")
        return _keep(images, y[0])

    return Plant(device=device)


def _jax_chain(plan: Plan) -> Plant:
    import jax
    import jax.numpy as jnp

    values = jnp.linspace(-3, 3, _CHUNK * plan.repeats)
    links: list[Callable[[Any], Any]] = [lambda x: x * 0.999, lambda x: x + 0.001, jnp.abs, lambda x: x * x]
    links += [lambda x: jnp.maximum(x, 0.1), jnp.negative, lambda x: x - 1.0, lambda x: x * 0.5]

    def chain(x: Any) -> Any:
        for link in links:
            x = link(x)
        return x

    each, fused = [jax.jit(link) for link in links], jax.jit(chain)
    for link in [*each, fused]:
        link(values).block_until_ready()  # compiled before the loop

    def after(step: int, job: Job) -> None:
        x = values
        for link in each if plan.planted else [fused]:
            x = link(x)
        x.block_until_ready()

    return Plant(after=after)


def wide_type(plan: Plan) -> Plant:
    """Products in a wider type than the device is fast in: f64."""
    if not plan.repeats:
        return Plant()
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    kind = jnp.float64 if plan.planted else jnp.float32
    weight = jnp.eye(_SIDE, dtype=kind)

    def device(images: Any, step: Any) -> Any:
        x = images[:_LOW_ROWS, :_SIDE].astype(kind)
        for _ in range(plan.repeats):
            x = jax.lax.optimization_barrier(x @ weight)
        return _keep(images, x[0, 0].astype(jnp.float32)).astype(jnp.float32)

    return Plant(device=device)


def growing(plan: Plan) -> Plant:
    """Work that grows from nothing at the first step to twice its mean at the last."""
    if not plan.planted or not plan.repeats:
        return Plant()
    if plan.framework == "torch":
        return _torch_growing(plan)
    import jax
    import jax.numpy as jnp

    weight = jnp.eye(_SIDE)

    def device(images: Any, step: Any) -> Any:
        times = 2 * plan.repeats * step // plan.steps
        return _keep(images, jax.lax.stop_gradient(_repeated(images, weight, times)))

    def _repeated(images: Any, weight: Any, times: Any) -> Any:
        still = jax.lax.stop_gradient(images[:_TINY, :_SIDE])
        return jax.lax.fori_loop(0, times, lambda _, x: x @ weight, still)[0, 0]

    return Plant(device=device)


def _torch_growing(plan: Plan) -> Plant:
    import torch

    weight = torch.eye(_SIDE)

    def device(images: Any, step: Any) -> Any:
        x = images[:_TINY, :_SIDE]
        for _ in range(2 * plan.repeats * step // plan.steps):
            x = x @ weight
        return _keep(images, x[0, 0])

    return Plant(device=device)


CAUSES = (
    Cause("DATA-MOVEMENT", transposes, (*JAX, *TORCH_FIVE), per="step", probe_repeats=60, also=("MEMORY-BOUND",)),
    Cause(
        "TINY-KERNELS",
        tiny_kernels,
        TORCH_FIVE,
        shared=False,
        per="step",
        probe_repeats=1000,
        also=("HOST-DISPATCH",),
        times=4,
    ),
    Cause(
        "MEMORY-BOUND",
        unfused_chain,
        (*JAX_SYNC, *TORCH),
        shared=False,
        per="step",
        probe_repeats=200,
        also=("TINY-KERNELS", "HOST-DISPATCH"),
    ),
    Cause(
        "LOW-PRECISION",
        wide_type,
        tuple(("jax", True, strength) for strength in FIVE_STRENGTHS),
        shared=False,
        per="step",
        probe_repeats=40,
    ),
    Cause("DRIFT", growing, (*JAX, *TORCH), per="step", probe_repeats=60),
)
