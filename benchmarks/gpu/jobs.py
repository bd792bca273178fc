"""The training jobs of the suite: a transformer and a convolutional network in bfloat16, in PyTorch and in JAX.

Each can put its state back to where it was after warming up, so that the same steps are trained over and over in one
process and must give the same bits each time.
"""

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

POOL = 8
"""Batches made beforehand, used in turn."""

WARM_STEPS = 6
"""Before anything is measured: kernels are chosen, programs compiled, memory taken."""

DETERMINISTIC = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # cuBLAS gives equal bits only with such a workspace
    "XLA_FLAGS": "--xla_gpu_deterministic_ops=true",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}
"""Environment in which the frameworks give the same bits each time."""


@dataclass(frozen=True)
class Sizes:
    """How large the networks are."""

    width: int
    heads: int
    layers: int
    length: int
    rows: int
    words: int
    image: int
    images: int
    channels: int


LARGE = Sizes(1024, 16, 8, 512, 16, 16384, 64, 256, 64)
"""Steps of some 15 to 40 ms on a card of 2022."""
SMALL = Sizes(32, 2, 1, 16, 2, 64, 8, 4, 8)
"""Of a test on a CPU."""


@dataclass(frozen=True)
class Job:
    """A job that is warm.

    Attributes:
        step: trains on the batch of a number; returns the loss, which may still be on its way.
        wait: wait for all that was issued.
        reset: put the state back to where it was when the job was made.
        state: the parameters' bytes.
        mark: note this moment on the device's own timeline; None where that cannot be.
        between_ms: times on that timeline between marks that follow each other.
        memory: bytes given out now, and the most so far, by the framework's allocator; None on a CPU.
    """

    step: Callable[[int], Any]
    wait: Callable[[], None]
    reset: Callable[[], None]
    state: Callable[[], bytes]
    mark: Callable[[], Any] | None = None
    between_ms: Callable[[list[Any]], list[float]] = lambda marks: []
    memory: Callable[[], tuple[int, int] | None] = lambda: None


def make_job(framework: str, net: str, *, mode: str = "eager", device: str = "cpu", small: bool = False) -> Job:
    """A job, trained for `WARM_STEPS`.

    Args:
        framework: "torch" or "jax".
        net: "transformer" or "cnn".
        mode: of PyTorch: "eager", "compile", "graph" (one CUDA graph a step), "ddp" (of one process), "wide" (f32, its
            products not rounded to tf32).
        device: "cuda" or "cpu".
        small: the sizes of a test.
    """
    sizes = SMALL if small else LARGE
    return _torch_job(net, mode, device, sizes) if framework == "torch" else _jax_job(net, sizes)


def _torch_job(net: str, mode: str, device: str, sizes: Sizes) -> Job:
    import torch

    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.enable_cudnn_sdp(False)  # its backward pass gives other bits each time
    model = TORCH_NETS[net](sizes).to(device)
    if net == "cnn":
        model = model.to(memory_format=torch.channels_last)
    on_card = device == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=on_card, capturable=on_card)
    pool = [tuple(part.to(device) for part in batch) for batch in torch_batches(net, sizes)]
    forward = torch.compile(model) if mode == "compile" else _parallel(model, device) if mode == "ddp" else model

    def train(x: Any, y: Any) -> Any:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=mode != "wide", cache_enabled=mode != "graph"):
            loss = torch_loss(forward(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = _captured(train, pool) if mode == "graph" else lambda index: train(*pool[index % POOL])
    for index in range(WARM_STEPS):
        step(index)
    of_optimizer = [value for mine in optimizer.state.values() for value in mine.values() if torch.is_tensor(value)]
    tensors = [*model.state_dict().values(), *of_optimizer]
    kept = [tensor.clone() for tensor in tensors]

    def reset() -> None:
        with torch.no_grad():
            for tensor, before in zip(tensors, kept, strict=True):
                tensor.copy_(before)

    def mark() -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    return Job(
        step,
        wait=torch.cuda.synchronize if on_card else lambda: None,
        reset=reset,
        state=lambda: b"".join(tensor.float().cpu().numpy().tobytes() for tensor in model.state_dict().values()),
        mark=mark if on_card else None,
        between_ms=lambda marks: [a.elapsed_time(b) for a, b in itertools.pairwise(marks)],
        memory=(lambda: (torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()))
        if on_card
        else lambda: None,
    )


def _captured(train: Callable[[Any, Any], Any], pool: list[tuple[Any, ...]]) -> Callable[[int], Any]:
    """One CUDA graph that trains a step, replayed over inputs that are copied into place."""
    import torch

    inputs = [part.clone() for part in pool[0]]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # lazy initialisation must not fall into the capture
        for _ in range(3):
            train(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = train(*inputs)

    def step(index: int) -> Any:
        for place, part in zip(inputs, pool[index % POOL], strict=True):
            place.copy_(part)
        graph.replay()
        return loss

    return step


def _parallel(model: Any, device: str) -> Any:
    """Data parallel over one process."""
    import torch
    from torch import distributed

    if not distributed.is_initialized():
        meeting = Path(tempfile.mkdtemp(prefix="phasepoint-ddp-")) / "store"
        backend = "nccl" if device == "cuda" else "gloo"
        distributed.init_process_group(backend, init_method=f"file://{meeting}", rank=0, world_size=1)
    return torch.nn.parallel.DistributedDataParallel(model)


def torch_transformer(sizes: Sizes) -> Any:
    """Embedding, causal layers of attention and a feed-forward part, a head."""
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(sizes.width), nn.LayerNorm(sizes.width)
            self.qkv, self.out = nn.Linear(sizes.width, 3 * sizes.width), nn.Linear(sizes.width, sizes.width)
            self.up, self.down = nn.Linear(sizes.width, 4 * sizes.width), nn.Linear(4 * sizes.width, sizes.width)

        def forward(self, x: Any) -> Any:
            rows, length, width = x.shape
            parts = self.qkv(self.before(x)).view(rows, length, 3, sizes.heads, -1).permute(2, 0, 3, 1, 4)
            attended = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.out(attended.transpose(1, 2).reshape(rows, length, width))
            return x + self.down(nn.functional.gelu(self.up(self.between(x))))

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(sizes.words, sizes.width)
            self.place = nn.Parameter(torch.zeros(sizes.length, sizes.width))
            self.layers = nn.ModuleList(Layer() for _ in range(sizes.layers))
            self.head = nn.Linear(sizes.width, sizes.words)

        def forward(self, tokens: Any) -> Any:
            x = self.embed(tokens) + self.place
            for layer in self.layers:
                x = layer(x)
            return self.head(x)

    return Transformer()


def torch_cnn(sizes: Sizes) -> Any:
    """Three stages of two residual blocks, each stage of half the size and twice the channels."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, before: int, after: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
            self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
            self.norms = nn.ModuleList((nn.BatchNorm2d(after), nn.BatchNorm2d(after)))
            self.beside = nn.Conv2d(before, after, 1, stride, bias=False)

        def forward(self, x: Any) -> Any:
            inner = nn.functional.relu(self.norms[0](self.first(x)))
            return nn.functional.relu(self.norms[1](self.second(inner)) + self.beside(x))

    blocks, before = [], 3
    for stage in range(3):
        after = sizes.channels << stage
        blocks += [Block(before, after, 2 if stage else 1), Block(after, after, 1)]
        before = after
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


TORCH_NETS: dict[str, Callable[[Sizes], Any]] = {"transformer": torch_transformer, "cnn": torch_cnn}


def torch_loss(logits: Any, labels: Any) -> Any:
    """Mean cross entropy, in f32."""
    import torch

    return torch.nn.functional.cross_entropy(logits.float().flatten(0, -2), labels.flatten())


def torch_batches(net: str, sizes: Sizes) -> list[tuple[Any, Any]]:
    """`POOL` random batches on the host."""
    import torch

    if net == "transformer":
        shape = (sizes.rows, sizes.length)
        return [(torch.randint(sizes.words, shape), torch.randint(sizes.words, shape)) for _ in range(POOL)]
    images = (sizes.images, 3, sizes.image, sizes.image)
    return [
        (torch.randn(images).to(memory_format=torch.channels_last), torch.randint(10, (sizes.images,)))
        for _ in range(POOL)
    ]


def _jax_job(net: str, sizes: Sizes) -> Job:
    import jax
    import jax.numpy as jnp

    parameters, logits_of, batches = JAX_NETS[net](sizes)

    def loss_of(parameters: Any, x: Any, y: Any) -> Any:
        half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), parameters)
        chances = jax.nn.log_softmax(logits_of(half, x).astype(jnp.float32))
        return -jnp.take_along_axis(chances, y[..., None], -1).mean()

    @jax.jit
    def update(state: Any, x: Any, y: Any) -> Any:
        parameters, momentum = state
        loss, slopes = jax.value_and_grad(loss_of)(parameters, x, y)
        momentum = jax.tree.map(lambda speed, slope: 0.9 * speed + slope, momentum, slopes)
        return (jax.tree.map(lambda p, m: p - 1e-3 * m, parameters, momentum), momentum), loss

    parameters = jax.tree.map(jnp.asarray, parameters)
    pool = [jax.tree.map(jnp.asarray, batch) for batch in batches]
    now = [(parameters, jax.tree.map(jnp.zeros_like, parameters))]

    def step(index: int) -> Any:
        now[0], loss = update(now[0], *pool[index % POOL])
        return loss

    for index in range(WARM_STEPS):
        step(index)
    kept = now[0]

    def memory() -> tuple[int, int] | None:
        told = jax.local_devices()[0].memory_stats() or {}
        return (told["bytes_in_use"], told["peak_bytes_in_use"]) if "peak_bytes_in_use" in told else None

    return Job(
        step,
        wait=lambda: jax.block_until_ready(now[0]) and None,
        reset=lambda: now.__setitem__(0, kept),
        state=lambda: b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(now[0][0])),
        memory=memory,
    )


def jax_transformer(sizes: Sizes) -> tuple[Any, Callable[..., Any], list[Any]]:
    """As `torch_transformer`, its layers by `scan`."""
    import jax
    import jax.numpy as jnp

    rng, width = np.random.default_rng(0), sizes.width
    shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    parameters = {
        "embed": _normal(rng, sizes.words, width),
        "layers": {name: _normal(rng, sizes.layers, *shape) for name, shape in shapes.items()},
        "head": _normal(rng, width, sizes.words),
    }

    def scaled(x: Any) -> Any:
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)

    def layer(x: Any, weights: Any) -> Any:
        with jax.named_scope("attention"):
            parts = (scaled(x) @ weights["qkv"]).reshape(*x.shape[:2], sizes.heads, -1)
            attended = jax.nn.dot_product_attention(*jnp.split(parts, 3, axis=-1), is_causal=True)
            x = x + attended.reshape(x.shape) @ weights["out"]
        with jax.named_scope("feed-forward"):
            return x + jax.nn.gelu(scaled(x) @ weights["up"]) @ weights["down"], None

    def logits_of(parameters: Any, tokens: Any) -> Any:
        x, _ = jax.lax.scan(layer, parameters["embed"][tokens], parameters["layers"])
        return scaled(x) @ parameters["head"]

    shape = (sizes.rows, sizes.length)
    batches = [tuple(rng.integers(0, sizes.words, (2, *shape)).astype(np.int32)) for _ in range(POOL)]
    return parameters, logits_of, batches


def jax_cnn(sizes: Sizes) -> tuple[Any, Callable[..., Any], list[Any]]:
    """Six convolutions in three stages, without norms."""
    import jax
    import jax.numpy as jnp

    rng, kernels, before = np.random.default_rng(0), [], 3
    for stage in range(3):
        after = sizes.channels << stage
        kernels += [_normal(rng, 3, 3, before, after) / 3, _normal(rng, 3, 3, after, after) / 3]
        before = after
    parameters = {"kernels": kernels, "head": _normal(rng, before, 10)}

    def logits_of(parameters: Any, x: Any) -> Any:
        for place, kernel in enumerate(parameters["kernels"]):
            stride = (2, 2) if place in (2, 4) else (1, 1)
            layout = ("NHWC", "HWIO", "NHWC")
            x = jax.nn.relu(jax.lax.conv_general_dilated(x, kernel, stride, "SAME", dimension_numbers=layout))
        return x.mean((1, 2)) @ parameters["head"]

    shape = (sizes.images, sizes.image, sizes.image, 3)
    batches = [
        (jnp.asarray(rng.standard_normal(shape), jnp.bfloat16), rng.integers(0, 10, sizes.images).astype(np.int32))
        for _ in range(POOL)
    ]
    return parameters, logits_of, batches


def _normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) / np.sqrt(shape[-2])).astype(np.float32)


JAX_NETS: dict[str, Callable[[Sizes], tuple[Any, Callable[..., Any], list[Any]]]] = {
    "transformer": jax_transformer,
    "cnn": jax_cnn,
}


def environ_of(device: str) -> dict[str, str]:
    """Variables of a process that runs such a job."""
    return DETERMINISTIC if device == "cuda" else {"JAX_PLATFORMS": "cpu"}
