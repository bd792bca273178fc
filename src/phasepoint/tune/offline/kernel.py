"""`kernel`: tiles, layouts and the like of a kernel that the user brings, searched by the autotuner, and the fastest
confirmed against the kernel as written, by turns, with the certificate of a live trial.

A kernel is whatever a configuration makes: a function of JAX (Pallas), a Triton kernel's launch, plain PyTorch.
"""

import math
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from phasepoint.core.units import NS_PER_S, PS_PER_NS
from phasepoint.learn.choosing.autotuner import Config, make_space, tune
from phasepoint.tune.certificate import Certificate, Gain
from phasepoint.tune.journal import TuneVerdict
from phasepoint.tune.knobs import describe_setting

LEAST_CALLS, MEASURED_S = 5, 0.05
"""A configuration is called so often, and for so long, behind a first call that may compile: both at least."""

BLOCK_S = 0.02
"""A choice: calls of a block that confirms, together: long beside a scheduler's tick on a GPU's host."""

MOST_PAIRS = 60
"""A choice: what sixty pairs do not show is little."""

LEAST_GAIN = 0.01
"""A choice: what wins less in the search is not worth confirming."""

TOLERANCE = 1e-3
"""A choice: by which part of its largest value a result may differ from that of the kernel as written."""


@dataclass(frozen=True)
class KernelTrial:
    """A configuration that was run.

    Attributes:
        config: it.
        call_ns: median time of a call; None where it failed or gave another result.
        difference: of its result, as a part of the largest value; None where it failed.
        problem: what is wrong with it, in words.
    """

    config: Config
    call_ns: float | None
    difference: float | None
    problem: str = ""


@dataclass(frozen=True)
class KernelOutcome:
    """What a search came to.

    Attributes:
        verdict: tuned, nothing to tune or undecided.
        reason: in one sentence.
        as_written: the kernel as it is.
        chosen: the configuration to use, which was itself run.
        gain: of it against the kernel as written; None where nothing was confirmed.
        pairs: of blocks that confirmed it.
        difference: of its result, as a part of the largest value.
        trials: what was run, in order.
        configs: in the space.
        spent_s: time of all.
    """

    verdict: TuneVerdict
    reason: str
    as_written: Config
    chosen: Config
    gain: Gain | None
    pairs: int
    difference: float
    trials: tuple[KernelTrial, ...]
    configs: int
    spent_s: float


def kernel(
    make: Callable[..., Callable[..., Any]],
    parameters: Mapping[str, Sequence[int]],
    arguments: Sequence[Any],
    *,
    as_written: Mapping[str, int],
    allowed: Callable[[Config], bool] = lambda _config: True,
    budget: int = 20,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> KernelOutcome:
    """Find a faster configuration of a kernel.

    Args:
        make: makes the kernel from a configuration: `make(block=128, stages=2)` gives what is called.
        parameters: values of each parameter.
        arguments: it is called with.
        as_written: configuration of the kernel as it is.
        allowed: whether a combination may be tried.
        budget: configurations that are run at most.
        tolerance: by which part of its largest value the result may differ from that of the kernel as written.
        seed: of the order of the blocks that confirm.

    Raises:
        ValueError: the space is empty, or `as_written` has other parameters; and what the kernel as written raises.

    Example:
        >>> import numpy as np
        >>> def make(block):
        ...     return lambda x: np.concatenate([np.sqrt(x[i : i + block]) for i in range(0, len(x), block)])
        >>> found = kernel(make, {"block": (8, 64, 4096)}, [np.arange(4096.0)], as_written={"block": 8})
        >>> str(found.verdict), found.chosen, found.gain.low > 1
        ('tuned', {'block': 4096}, True)
    """
    if set(as_written) != set(parameters):
        raise ValueError(
            f"as_written has {sorted(as_written)}, and parameters are {sorted(parameters)}; expected the same"
        )
    space = make_space(parameters, allowed=allowed)
    began_ns = time.perf_counter_ns()
    written: Config = dict(as_written)
    base = make(**written)
    expected = [_numbers(leaf) for leaf in _leaves(_call(base, arguments))]
    base_ns = _call_ns(base, arguments)
    trials: list[KernelTrial] = []

    def measure(config: Config) -> int | None:
        trials.append(_try(make, config, arguments, expected, tolerance))
        call_ns = trials[-1].call_ns
        return None if call_ns is None else round(call_ns * PS_PER_NS)

    tune(space, measure, budget=budget)

    def outcome(
        verdict: TuneVerdict, reason: str, trial: KernelTrial | None = None, certificate: Certificate | None = None
    ) -> KernelOutcome:
        return KernelOutcome(
            verdict=verdict,
            reason=reason,
            as_written=written,
            chosen=written if trial is None else trial.config,
            gain=None if certificate is None else certificate.gain(),
            pairs=0 if certificate is None else len(certificate.log_ratios),
            difference=(trial and trial.difference) or 0.0,
            trials=tuple(trials),
            configs=len(space.configs),
            spent_s=(time.perf_counter_ns() - began_ns) / NS_PER_S,
        )

    running = [(trial.call_ns, number) for number, trial in enumerate(trials) if trial.call_ns is not None]
    base_ns = min([base_ns, *(call_ns for call_ns, number in running if trials[number].config == written)])
    running = [(call_ns, number) for call_ns, number in running if trials[number].config != written]
    if not running or min(running)[0] > base_ns / (1 + LEAST_GAIN):
        return outcome(TuneVerdict.NOTHING, "no configuration that was run is faster")
    best = trials[min(running)[1]]
    certificate = _confirm(base, make(**best.config), arguments, base_ns, seed)
    pairs = f"{len(certificate.log_ratios)} pairs of blocks"
    words = describe_setting(best.config)
    if certificate.is_better:
        return outcome(TuneVerdict.TUNED, f"{words}: faster beyond doubt in {pairs}", best, certificate)
    if certificate.is_below(LEAST_GAIN):
        return outcome(TuneVerdict.NOTHING, f"{words}: less than {LEAST_GAIN:.0%} to win, beyond doubt, in {pairs}")
    reason = f"{words} was the fastest that was run, but not beyond doubt in {pairs}"
    return outcome(TuneVerdict.UNDECIDED, reason, None, certificate)


def _try(
    make: Callable[..., Any], config: Config, arguments: Sequence[Any], expected: Sequence[Any], tolerance: float
) -> KernelTrial:
    """Run a configuration; whatever it raises is its problem."""
    try:
        made = make(**config)
        difference = _difference(expected, [_numbers(leaf) for leaf in _leaves(_call(made, arguments))])
        if difference > tolerance:
            return KernelTrial(config, None, difference, f"its result differs by {difference:.2g} of the largest value")
        return KernelTrial(config, _call_ns(made, arguments), difference)
    except Exception as error:  # noqa: BLE001 - as it says
        return KernelTrial(config, None, None, f"{type(error).__name__}: {error}"[:300])


def _confirm(
    base: Callable[..., Any], best: Callable[..., Any], arguments: Sequence[Any], base_ns: float, seed: int
) -> Certificate:
    """Blocks of calls by turns, in an order drawn by chance; of each its median call, as some wait for a busy core."""
    certificate, chance = Certificate(), random.Random(seed)
    calls = max(math.ceil(BLOCK_S * NS_PER_S / base_ns), 1)
    _call(best, arguments)  # it was made anew
    while (
        len(certificate.log_ratios) < MOST_PAIRS and not certificate.is_better and not certificate.is_below(LEAST_GAIN)
    ):
        took: dict[bool, float] = {}
        for is_new in (True, False) if chance.getrandbits(1) else (False, True):
            took[is_new] = _call_ns(best if is_new else base, arguments, calls=calls, seconds=0)
        certificate.add(math.log(took[False] / took[True]))
    return certificate


def _call_ns(
    made: Callable[..., Any], arguments: Sequence[Any], *, calls: int = LEAST_CALLS, seconds: float | None = None
) -> float:
    """Median time of a call, of at least so many, and for at least so many seconds: `MEASURED_S`."""
    least_ns = (MEASURED_S if seconds is None else seconds) * NS_PER_S
    times: list[int] = []
    began_ns = time.perf_counter_ns()
    while len(times) < calls or time.perf_counter_ns() - began_ns < least_ns:
        call_ns = time.perf_counter_ns()
        _call(made, arguments)
        times.append(time.perf_counter_ns() - call_ns)
    return max(median(times), 1.0)


def _call(made: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """The result, once the device has it."""
    result = made(*arguments)
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    if jax is not None:
        jax.block_until_ready(result)
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return result


def _leaves(result: Any) -> list[Any]:
    """The arrays of a result."""
    if isinstance(result, Mapping):
        result = list(result.values())
    if isinstance(result, list | tuple):
        return [leaf for one in result for leaf in _leaves(one)]
    return [result]


def _numbers(leaf: Any) -> Any:
    """An array on the host, in double precision."""
    if hasattr(leaf, "detach"):
        leaf = leaf.detach().cpu().double().numpy()
    return np.asarray(leaf, np.float64)


def _difference(expected: Sequence[Any], found: Sequence[Any]) -> float:
    """Largest difference as a part of the largest value; infinite where shapes differ or something is no number."""
    if [one.shape for one in expected] != [one.shape for one in found]:
        return math.inf
    worst = 0.0
    for old, new in zip(expected, found, strict=True):
        if old.size:
            apart = np.max(np.abs(new - old) / max(float(np.max(np.abs(old))), np.finfo(np.float64).tiny))
            worst = max(worst, float(apart)) if math.isfinite(apart) else math.inf
    return worst
