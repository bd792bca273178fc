"""Decoders whose memory on a slice is told in closed form, in JAX as MaxText lays them out, one for each case.

Everything is divided among the chips of the slice (`fsdp`), matrices and heads among `tensor` of them; layers run in a
loop, what they keep for the backward pass is what `remat` says; attention is the kernel that ships with JAX, which
keeps no scores.

    phasepoint scale plan benchmarks/pod_decoder.py:step_a0 --args-from args_a0 --to tpu-v5e:4x4
"""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention
from jax.sharding import NamedSharding, PartitionSpec

from phasepoint.learn.predict.tpu.topology import parse_topology
from phasepoint.scale.steps.memory import tpu_memory
from phasepoint.scale.steps.transformer import Transformer

BF16 = jnp.bfloat16
LIMITS = {"v4": 30.75, "v5e": 15.75, "v5p": 95.0, "v6e": 31.25}
"""GiB of a chip that the compiler of each generation gives out."""


@dataclass(frozen=True)
class Case:
    """A decoder on a slice."""

    slice: str
    model: Transformer
    sequences: int
    remat: str
    tensor: int = 1

    @property
    def chips(self) -> int:
        return parse_topology(self.slice).chips

    @property
    def told_bytes(self) -> float:
        """In closed form, on one chip, without what the compiler keeps from every program."""
        parts = tpu_memory(
            self.model,
            chips=self.chips,
            slices=1,
            tensor=self.tensor,
            sequences_per_chip=self.sequences,
            remat=self.remat,
        )
        return sum(value for name, value in parts.items() if name != "runtime")

    @property
    def limit_bytes(self) -> float:
        return LIMITS[self.slice.split(":")[0]] * 2**30


def decoder(dim, heads, key_heads, mlp, vocab, seq):
    return Transformer(1, dim, heads, 128, key_heads, mlp, vocab, seq)


BASES = {
    "a": Case("v5e:4x4", decoder(2048, 16, 16, 8192, 32_000, 2048), 4, "full"),
    "b": Case("v5e:4x4", decoder(3072, 24, 24, 12_288, 50_304, 2048), 1, "none"),
    "c": Case("v5e:8x8", decoder(5120, 40, 8, 13_824, 100_352, 4096), 2, "full"),
    "d": Case("v5e:8x8", decoder(5120, 40, 40, 13_824, 32_000, 2048), 2, "minimal"),
    "e": Case("v6e:4x4", decoder(4096, 32, 8, 14_336, 128_256, 8192), 1, "minimal"),
    "f": Case("v6e:8x8", decoder(8192, 64, 8, 28_672, 32_000, 4096), 1, "full"),
    "g": Case("v4:2x2x4", decoder(4096, 32, 32, 11_008, 32_000, 2048), 2, "none"),
    "h": Case("v4:4x4x4", decoder(6144, 48, 48, 24_576, 50_304, 2048), 2, "minimal"),
    "i": Case("v5p:2x2x4", decoder(4096, 32, 8, 14_336, 128_256, 8192), 2, "full"),
    "j": Case("v5p:4x4x4", decoder(8192, 64, 8, 28_672, 128_256, 4096), 2, "minimal", 4),
}


def cases():
    """Each base with as many layers as just fit by the closed form, and with a tenth more than the memory takes."""
    found = {}
    for name, base in BASES.items():

        def told(layers, base=base):
            return replace(base, model=replace(base.model, layers=layers))

        sizes = range(1, 2000)
        below = max((n for n in sizes if told(n).told_bytes <= 0.9 * base.limit_bytes), default=1)
        above = next(n for n in sizes if told(n).told_bytes >= 1.1 * base.limit_bytes)
        found |= {f"{name}0": told(below), f"{name}1": told(above)}
    return found


def calibration():
    """Cases on which the closed form was made: two decoders, in each way of keeping what the backward pass needs."""
    plain, grouped = decoder(2048, 16, 16, 8192, 32_000, 2048), decoder(3072, 24, 8, 8192, 128_256, 4096)
    found = {}
    for number, remat in enumerate(("full", "minimal", "none")):
        found[f"plain{number}"] = Case("v5e:4x4", replace(plain, layers=12), 2, remat)
        found[f"grouped{number}"] = Case("v6e:4x4", replace(grouped, layers=8), 2, remat)
    return found


CASES = cases() | calibration()


def matrices(model):
    dim, width, keys = model.dim, model.heads * model.head_dim, model.key_heads * model.head_dim
    rows = {
        "q": (dim, width),
        "k": (dim, keys),
        "v": (dim, keys),
        "gate": (dim, model.mlp_dim),
        "up": (dim, model.mlp_dim),
    }
    return rows, {"o": (width, dim), "down": (model.mlp_dim, dim)}


def shapes_and_places(case):
    """Weights: matrices that widen are divided by columns among `tensor`, those that narrow by rows."""
    model, layers = case.model, case.model.layers
    widen, narrow = matrices(model)
    found = {name: ((layers, *shape), (None, "fsdp", "tensor")) for name, shape in widen.items()}
    found |= {name: ((layers, *shape), (None, "tensor", "fsdp")) for name, shape in narrow.items()}
    found |= dict.fromkeys(("before", "between"), ((layers, model.dim), (None, None)))
    return found | {
        "words": ((model.vocab, model.dim), ("tensor", "fsdp")),
        "out": ((model.dim, model.vocab), ("fsdp", "tensor")),
    }


def norm(x, scale):
    wide = x.astype(jnp.float32)
    return (wide * lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-6) * scale).astype(BF16)


def attention(mesh, q, k, v):
    """The kernel on each chip's sequences and heads."""
    spec = PartitionSpec("fsdp", "tensor", None, None)
    kernel = partial(flash_attention, causal=True, sm_scale=q.shape[-1] ** -0.5)
    return jax.shard_map(kernel, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec, check_vma=False)(q, k, v)


def block(case, mesh, x, weights):
    model = case.model
    weights = {name: value.astype(BF16) for name, value in weights.items()}
    divided = NamedSharding(mesh, PartitionSpec("fsdp", None, None))

    def heads(value, count):
        value = value.reshape(*value.shape[:2], count, model.head_dim).transpose(0, 2, 1, 3)
        return value.repeat(model.heads // count, axis=1)

    y = norm(x, weights["before"])
    mixed = attention(
        mesh,
        *(
            heads(y @ weights[name], n)
            for name, n in (("q", model.heads), ("k", model.key_heads), ("v", model.key_heads))
        ),
    )
    mixed = mixed.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
    x = lax.with_sharding_constraint(x + mixed @ weights["o"], divided)
    y = norm(x, weights["between"])
    y = jax.nn.silu(y @ weights["gate"]) * (y @ weights["up"])
    return lax.with_sharding_constraint(x + y @ weights["down"], divided), None


POLICIES = {
    "full": jax.checkpoint_policies.nothing_saveable,
    "minimal": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "none": jax.checkpoint_policies.everything_saveable,
}


def loss_of(case, mesh, weights, tokens):
    layers = {name: value for name, value in weights.items() if name not in ("words", "out")}
    one = jax.checkpoint(partial(block, case, mesh), policy=POLICIES[case.remat], prevent_cse=False)
    x, _ = lax.scan(one, weights["words"].astype(BF16)[tokens], layers)
    logits = (x @ weights["out"].astype(BF16)).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens).mean()


ADAM = optax.adam(1e-3)


def step_of(case):
    mesh = mesh_of(case)

    def step(weights, state, tokens):
        value, slopes = jax.value_and_grad(partial(loss_of, case, mesh))(weights, tokens)
        updates, state = ADAM.update(slopes, state, weights)
        return optax.apply_updates(weights, updates), state, value

    return jax.jit(step, donate_argnums=(0, 1))


def mesh_of(case):
    return jax.sharding.Mesh(np.array(jax.devices()).reshape(-1, case.tensor), ("fsdp", "tensor"))


def args_of(case):
    mesh = mesh_of(case)

    def placed(shape, places, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, PartitionSpec(*places)))

    described = shapes_and_places(case)
    weights = {name: placed(*one) for name, one in described.items()}
    places = {name: weights[name].sharding for name in weights}
    state = jax.eval_shape(ADAM.init, weights)

    def like(path, leaf):
        name = next((part.key for part in reversed(path) if hasattr(part, "key")), None)
        sharding = places.get(name, NamedSharding(mesh, PartitionSpec()))
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    state = jax.tree_util.tree_map_with_path(like, state)
    batch = case.sequences * case.chips
    return weights, state, placed((batch, case.model.seq), ("fsdp", None), jnp.int32)


def __getattr__(name):
    """`step_a0` and `args_a0` are those of case a0: the mesh is made of the devices of the moment."""
    kind, _, case = name.partition("_")
    if kind in ("step", "args") and case in CASES:
        return step_of(CASES[case]) if kind == "step" else args_of(CASES[case])
    raise AttributeError(name)
