"""From what a user asks for to a suite's request: which models on what, each word checked before anything runs."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

import msgspec

from phasepoint.bench.runtimes.runtimes import RUNTIMES, usual_runtime
from phasepoint.bench.suite.result import Pair, SuiteRequest
from phasepoint.bench.suite.subject import form_of
from phasepoint.core.errors import UsageError
from phasepoint.core.workers import usable_cores
from phasepoint.learn.predict.tpu.topology import parse_topology
from phasepoint.zoo.architectures.catalogue import QUICK, all_architectures
from phasepoint.zoo.graphs.packaged import packaged_graphs

TPU = "tpu-"
"""How devices begin that are compiled for and not run."""

ROUNDS, QUICK_ROUNDS = 3, 1
SECONDS, QUICK_SECONDS = 10.0, 2.0
BATCHES, QUICK_BATCHES = (1, 4, 16), (1, 8)
"""Choices: three processes show how much two of them differ; 64 latencies of 100 ms, which a 90th percentile needs, fit
into ten seconds, and a quick look at twenty models into five minutes."""


def ask_suite(
    models: Sequence[str],
    *,
    devices: Sequence[str] = (),
    runtimes: Sequence[str] = (),
    precisions: Sequence[str] = ("f32",),
    is_quick: bool = False,
    rounds: int | None = None,
    seconds: float | None = None,
    limit_s: float = 300.0,
    seed: int = 0,
    sustained_s: float = 0.0,
    explains: bool = False,
    proves: bool = False,
    is_elsewhere: bool = False,
) -> SuiteRequest:
    """A request, with every pair of a model and a setting.

    Args:
        models: names, `module:function` or a file `.onnx` or `.tflite`; none: all of the zoo, or the quick ones.
        devices: `cpu:2`, `cuda:0`; none: the CPU with all cores that this process may use.
        runtimes: by name; none: for each model the first that runs it.
        precisions: by name.
        is_quick: fewer models, processes and seconds, where these are not given.
        rounds: processes for each pair.
        seconds: of latencies in each.
        limit_s: silence after which a process is ended.
        seed: of the order.
        sustained_s: of a run without a break in each process.
        explains: say what holds each pair back, where its runtime tells operations apart.
        proves: the same, and measure each pair in the other settings too that should relieve it.
        is_elsewhere: the suite is run on another machine, whose cores are not known.

    Raises:
        UsageError: there is no such model, device, runtime or precision.
    """
    zoo = [*all_architectures(), *packaged_graphs()]
    names = list(models) or list(QUICK if is_quick else zoo)
    for name in names:
        if name not in zoo and form_of(name) == "module" and ":" not in name:
            near = get_close_matches(name, zoo, 3)
            like = f"did you mean {', '.join(near)}? Else" if near else f"there are {len(zoo)}, such as resnet50;"
            raise UsageError(
                f"no model named {name!r}; {like} give your own as module:function, FILE.onnx or FILE.tflite"
            )
    cores = usable_cores()
    where = list(devices) or ["cpu" if is_elsewhere else f"cpu:{cores}"]
    for device in where:
        _check_device(device, None if is_elsewhere else cores)
    _check("runtime", runtimes, tuple(RUNTIMES))
    every = dict.fromkeys(precision for runtime in RUNTIMES.values() for precision in runtime.precisions)
    _check("precision", precisions, tuple(every))
    pairs = [
        Pair(name, device, runtime, precision)
        for name in dict.fromkeys(names)
        for device in where
        for runtime in _runtimes_of(name, device, runtimes)
        for precision in precisions
    ]
    if proves:
        told = [pair for pair in pairs if RUNTIMES[pair.runtime].explains]
        pairs += [other for pair in told for other in _other_settings(pair, cores)]
    return SuiteRequest(
        pairs=tuple(dict.fromkeys(pairs)),
        rounds=rounds or (QUICK_ROUNDS if is_quick else ROUNDS),
        seconds=seconds or (QUICK_SECONDS if is_quick else SECONDS),
        batches=QUICK_BATCHES if is_quick else BATCHES,
        limit_s=limit_s,
        seed=seed,
        sustained_s=sustained_s,
        explains=explains or proves,
    )


def _other_settings(pair: Pair, cores: int) -> Iterator[Pair]:
    """A pair with all cores, and in the other element types of its runtime."""
    if pair.device.startswith("cpu"):
        yield msgspec.structs.replace(pair, device=f"cpu:{cores}")
    for precision in RUNTIMES[pair.runtime].precisions:
        yield msgspec.structs.replace(pair, precision=precision)


def _runtimes_of(model: str, device: str, asked: Sequence[str]) -> Sequence[str]:
    """Those that were asked for, else the usual one; on a device that is not there, its compiler."""
    if device.startswith(TPU):
        return ("libtpu",)
    return asked or (usual_runtime(form_of(model)),)


def _check(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    for word in given:
        if word not in known:
            raise UsageError(f"no {what} named {word!r}; there are {', '.join(known)}")


def _check_device(device: str, cores: int | None) -> None:
    if device.startswith(TPU):
        if parse_topology(device).chips > 1:
            raise UsageError(f"{device}: is a slice of several chips, see phasepoint scale plan; give one, as tpu-v5p")
        return
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise UsageError(f"no device named {device!r}; expected cpu:N (N threads), cuda:N or a TPU as tpu-v5p")
    if kind == "cpu" and number and cores is not None and not 1 <= int(number) <= cores:
        raise UsageError(f"{device}: this process may use {cores} cores; more threads than cores take turns")
