"""The operations of one inference in PyTorch: what each takes by itself, computes and moves, and whose layer it is.

Each is timed around the call of its kernel, so that what Python and the dispatcher take between operations is not in
it. Flop are those of PyTorch's own table (`torch.utils.flop_counter`).

What an operation would take in another setting is measured on copies of its own inputs: with other threads, in another
element type, with a batch put together of the same sample.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import mean, median
from typing import Any, NamedTuple

from phasepoint.core.units import PS_PER_NS

RUNS = 3
"""Of the network, after one that does not count; the median of each operation's times is taken."""

TINY_CALLS = 200
"""Of an operation on one number, before each run: their mean is what any operation takes before it works."""

MOST_TINY = TINY_CALLS * 95 // 100
"""By time, the tiny call that no operation without work exceeds: beside other programs some calls take twice as long as
the rest, and what an operation takes up to here is not told from nothing."""

MOVES = frozenset(
    {"copy_", "clone", "_to_copy", "cat", "stack", "roll", "constant_pad_nd", "repeat", "pixel_shuffle", "index"}
    | {"_reshape_copy", "_unsafe_index", "gather", "slice_copy", "channel_shuffle", "native_channel_shuffle"}
    | {"embedding", "index_select", "flip", "pixel_unshuffle"}
    | {"Concat", "DepthToSpace", "Expand", "Gather", "GatherElements", "GatherND", "Identity", "Pad", "ReorderInput"}
    | {
        "ReorderOutput",
        "Reshape",
        "ScatterElements",
        "ScatterND",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Tile",
        "Transpose",
    }
)
"""Operations that put numbers elsewhere and change none: of PyTorch, then of ONNX."""


class TimedOperation(NamedTuple):
    """One operation.

    Attributes:
        name: `addmm`.
        layer: path of the innermost module; empty outside all.
        kind: class of that module.
        work_ps: its time, less what any operation takes before it works; 0 where it takes no longer than one without.
        flop: of products and convolutions; 0 of others.
        moved_bytes: of its inputs and outputs.
    """

    name: str
    layer: str
    kind: str
    work_ps: int
    flop: int
    moved_bytes: int


class Alternative(NamedTuple):
    """A setting in which an operation is run instead.

    Attributes:
        threads: of a CPU; None leaves them as they are.
        precision: of floating-point inputs.
        batch: samples, put together of one.
    """

    threads: int | None
    precision: str
    batch: int = 1


LEAST_SHARE, MOST_REPLAYED = 0.002, 150
"""Operations that are run in other settings: those with a five-hundredth of all work, and no more than so many."""

PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm"})
"""Operations whose inputs, weights apart, have rows of samples in their first dimension, perhaps several of each."""

REPLAYS = 3
"""Of an operation in each setting, after one that does not count; the fastest counts."""


def profile_operations(
    network: Any, run: Callable[[], object], wait: Callable[[], object]
) -> tuple[list[TimedOperation], int]:
    """Run a network and time its operations; and in turns with that, what it takes without their timer, ps.

    Args:
        network: the module, whose submodules are the layers.
        run: runs it once, with no gradients.
        wait: returns when the device is done.
    """
    mode = _mode(wait)
    first = next(network.parameters(), None)
    device = "cpu" if first is None else first.device
    tiny_ns: list[list[int]] = []
    beside_ns: list[int] = []
    runs: list[list[tuple[TimedOperation, int]]] = []
    with _layers_told(network, mode):
        for _ in range(RUNS + 1):
            beside_ns.append(best_ns(run, wait, 1))
            tiny_ns.append(_tiny_ns(mode, device))
            mode.rows = []
            with mode:
                run()
            runs.append(mode.rows)
    counted = [rows for rows in runs[1:] if len(rows) == len(runs[-1])]
    tiny = sorted(median(calls) for calls in zip(*tiny_ns[1:], strict=True))
    operations = []
    for place, (facts, _) in enumerate(counted[-1]):
        taken_ns = median(rows[place][1] for rows in counted)
        work_ns = int(taken_ns - mean(tiny)) if taken_ns > tiny[MOST_TINY] else 0
        operations.append(facts._replace(work_ps=work_ns * PS_PER_NS))
    return operations, int(median(beside_ns[1:])) * PS_PER_NS


def replay_operations(
    network: Any,
    run: Callable[[], object],
    wait: Callable[[], object],
    operations: Sequence[TimedOperation],
    alternatives: Sequence[Alternative],
) -> dict[int, list[float | None]]:
    """Run a network once more, and its heavy operations in other settings besides.

    Args:
        network, run, wait: as `profile_operations`.
        operations: what it gave.
        alternatives: the settings.

    Returns:
        By an operation's place: for each setting, what it takes over what it takes as it is; None where it cannot run.
    """
    worked_ps = sum(one.work_ps for one in operations)
    heavy = sorted(range(len(operations)), key=lambda place: -operations[place].work_ps)[:MOST_REPLAYED]
    chosen = {place for place in heavy if operations[place].work_ps > LEAST_SHARE * worked_ps}
    parameters = {parameter.data_ptr() for parameter in network.parameters()}
    found: dict[int, list[float | None]] = {}

    def replay(place: int, function: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        found[place] = _ratios(_Call(function, args, kwargs, parameters), alternatives, wait)

    with _mode(wait, replay, chosen):
        run()
    return found


class _Call(NamedTuple):
    """An operation as it was called, and which of its tensors are parameters, by address."""

    function: Any
    args: Any
    kwargs: Mapping[str, Any]
    parameters: set[int]


def _ratios(call: _Call, alternatives: Sequence[Alternative], wait: Callable[[], object]) -> list[float | None]:
    import torch

    threads = torch.get_num_threads()
    base_ns = _replay_ns(call, Alternative(None, ""), wait)
    ratios: list[float | None] = []
    for one in alternatives:
        try:
            torch.set_num_threads(one.threads or threads)
            taken_ns = _replay_ns(call, one, wait)
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
            taken_ns = None
        finally:
            torch.set_num_threads(threads)
        ratios.append(None if taken_ns is None or not base_ns else taken_ns / base_ns)
    return ratios


def _replay_ns(call: _Call, setting: Alternative, wait: Callable[[], object]) -> int | None:
    """The fastest of some calls on copies of the inputs."""
    import torch
    from torch.utils._pytree import tree_map

    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}.get(setting.precision)

    is_product = call.function.overloadpacket.__name__ in PRODUCTS
    grown = 0

    def changed(value: Any) -> Any:
        nonlocal grown
        if not isinstance(value, torch.Tensor):
            return value
        is_weight = value.data_ptr() in call.parameters
        holds_samples = (value.ndim > 0 and value.shape[0] == 1) or (is_product and value.ndim > 1)
        if setting.batch > 1 and not is_weight and holds_samples:
            grown += 1
            value = value.repeat(setting.batch, *[1] * (value.ndim - 1))
        elif not is_weight:
            value = value.clone()
        return value.to(dtype) if dtype is not None and value.is_floating_point() else value

    with torch.no_grad():
        args, kwargs = tree_map(changed, (call.args, dict(call.kwargs)))
        if setting.batch > 1 and not grown:
            raise ValueError("no input holds one sample in its first dimension")
        return best_ns(lambda: call.function(*args, **kwargs), wait, REPLAYS)


def best_ns(work: Callable[[], object], wait: Callable[[], object], calls: int) -> int:
    """The fastest of some calls, after one that does not count."""
    times = []
    for _ in range(calls + 1):
        began_ns = time.perf_counter_ns()
        work()
        wait()
        times.append(time.perf_counter_ns() - began_ns)
    return min(times[1:])


def _tiny_ns(mode: Any, device: Any) -> list[int]:
    """What the smallest operations take at this moment, as `mode` times them: beside other programs all take longer."""
    import torch

    one = torch.ones(1, device=device)
    mode.rows = []
    with torch.no_grad(), mode:
        for _ in range(TINY_CALLS):
            one.add_(1)
    return [taken for _, taken in mode.rows]


def _mode(
    wait: Callable[[], object],
    replay: Callable[[int, Any, Any, Mapping[str, Any]], object] | None = None,
    chosen: Collection[int] = (),
) -> Any:
    """A dispatch mode that keeps a row of each operation, and has the chosen ones replayed before they run."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import flop_registry

    class Timer(TorchDispatchMode):  # type: ignore[misc]  # torch's, of whatever type
        def __init__(self) -> None:
            super().__init__()
            self.rows: list[tuple[TimedOperation, int]] = []
            self.stack: list[tuple[str, str]] = [("", "")]

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            kwargs = kwargs or {}
            if replay is not None and len(self.rows) in chosen:
                replay(len(self.rows), func, args, kwargs)
            began_ns = time.perf_counter_ns()
            result = func(*args, **kwargs)
            wait()
            taken_ns = time.perf_counter_ns() - began_ns
            name = func._schema.name.partition("::")[2]
            tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
            results = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
            is_view = getattr(func, "is_view", False)
            count = flop_registry.get(func.overloadpacket)
            flop = 0
            if count is not None:
                flop = int(count(*args, **kwargs, out_val=result))
            elif name == "mkldnn_rnn_layer":  # input [steps, batch, features], then the weights of input and state
                flop = 2 * args[0].shape[0] * args[0].shape[1] * (args[1].numel() + args[2].numel())
            facts = TimedOperation(
                name,
                *self.stack[-1],
                0,
                flop,
                0 if is_view else sum(x.numel() * x.element_size() for x in [*tensors, *results]),
            )
            self.rows.append((facts, taken_ns))
            return result

    return Timer()


@contextmanager
def _layers_told(network: Any, mode: Any) -> Iterator[None]:
    """Within it the mode knows in which module it is."""
    hooks = []
    for path, module in network.named_modules():
        kind = type(module).__name__
        hooks.append(
            module.register_forward_pre_hook(
                lambda _module, _inputs, path=path, kind=kind: mode.stack.append((path, kind))
            )
        )
        hooks.append(
            module.register_forward_hook(lambda _module, _inputs, _outputs: mode.stack.pop() and None, always_call=True)
        )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
