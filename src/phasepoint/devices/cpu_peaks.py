"""Peak rates of the CPU that this process runs on: measured once by a small benchmark, then read from a cache.

No table of makers' figures tells what a share of a virtual machine can do, so it is measured: products of matrices for
flop/s, a triad over arrays larger than the caches for bytes/s, on all CPUs that the process may use, the best of
several repeats. Where other work had the CPUs meanwhile, the figures are too low: they are used, said to be so, and not
kept.
"""

import contextlib
import datetime
import hashlib
import os
import platform
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np

from phasepoint.core.workers import usable_cores
from phasepoint.devices.cpu_now import cpu_model
from phasepoint.devices.specs import DeviceSpec, Rate, Source

METHOD = "best of the repeats; f32, f64: NumPy's matrix product; bytes: triad a = b + s * c, 24 bytes an element"
_VERSION = 1
"""Of the cache file's layout and of the way of measuring; another one is measured again."""
_MATRIX = 1536
"""Rows and columns: 7.2 Gflop a product, three matrices of 9 MiB in f32, long past the size where BLAS gets faster."""
_REPEATS = 12
"""Of each measurement, a choice: the best counts."""
_ARRAY_BYTES_PER_CPU = 32 * 2**20
"""Four times the 8 MiB of last-level cache that a core of today's servers has at most, so that it holds little."""
_MEMORY_SHARE = 16
"""The three arrays of the triad take at most this part (1/16) of the memory."""
_BLOCK = 16 * 1024
"""Elements that one thread does at a time; the product stays in its cache (128 KiB)."""
_LEAST_CPU_RATIO = 0.9
"""Of the CPUs' time during the best product. Beside other busy processes it was 0.3–0.8 on two cores, and the rates a
third to three quarters of those without (2026-11-21)."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class CpuIdentity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What decides whether a measurement is of this CPU.

    Attributes:
        model: as the system names it.
        cpus: how many the process may use.
        memory_bytes: size of the memory, bytes.
        numpy: version of NumPy, which brings the BLAS.
        threads: settings of the BLAS's threads in the environment.
    """

    model: str
    cpus: int
    memory_bytes: int
    numpy: str
    threads: dict[str, str]


class CpuPeaks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was measured: a cache file's content.

    Attributes:
        version: layout of the file.
        identity: of which CPU.
        date: when, ISO.
        method: how.
        repeats: of each measurement.
        flop_per_s: by element type, flop/s.
        bytes_per_s: of the triad, bytes/s.
        cpu_ratio: part of the CPUs' time that the process had during the best product; below 1 other work had the rest.
    """

    version: int
    identity: CpuIdentity
    date: str
    method: str
    repeats: int
    flop_per_s: dict[str, float]
    bytes_per_s: float
    cpu_ratio: float


def measured_cpu_spec(
    *,
    cache_folder: Path | None = None,
    say: Callable[[str], None] | None = None,
    measure: Callable[[CpuIdentity], CpuPeaks] | None = None,
) -> DeviceSpec:
    """The specification of the CPU that this process runs on, measured (about two seconds) unless the cache has it.

    Args:
        cache_folder: where the measurement is kept; the user's cache (`$XDG_CACHE_HOME/phasepoint`) if left out.
        say: gets a sentence when it is measured, and when the cache could not be used and why.
        measure: the benchmark.

    Returns:
        A spec whose source is the measurement, with its date; peaks of f32 and f64.
    """
    tell = say or (lambda text: None)
    identity = cpu_identity()
    fingerprint = hashlib.sha256(msgspec.json.encode(identity, order="sorted")).hexdigest()[:16]
    path = (cache_folder or default_cache_folder()) / f"cpu-{fingerprint}.json"
    peaks = _read(path, identity, tell)
    if peaks is None:
        tell("measuring the peak rates of this CPU, once (about 2 s)")
        peaks = (measure or measure_cpu_peaks)(identity)
        if peaks.cpu_ratio < _LEAST_CPU_RATIO:
            tell(f"other work had {1 - peaks.cpu_ratio:.0%} of the CPUs meanwhile: the peaks are too low, and not kept")
        else:
            _write(path, peaks, tell)
    return _spec(peaks)


def default_cache_folder() -> Path:
    """`$XDG_CACHE_HOME/phasepoint`, or `~/.cache/phasepoint`; of a user without a home, the temporary files' folder."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "phasepoint"
    except RuntimeError:  # no HOME, and a user of whom the system knows nothing
        return Path(tempfile.gettempdir()) / f"phasepoint-{os.getuid()}"


def cpu_identity() -> CpuIdentity:
    """The CPU that this process may use."""
    cpus = usable_cores()
    threads = {name: os.environ[name] for name in _THREADS if name in os.environ}
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return CpuIdentity(cpu_model(), cpus, memory_bytes, np.__version__, threads)


def measure_cpu_peaks(
    identity: CpuIdentity,
    *,
    matrix: int = _MATRIX,
    repeats: int = _REPEATS,
    array_bytes: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
    cpu_clock: Callable[[], float] = time.process_time,
) -> CpuPeaks:
    """Measure what the CPU reaches.

    Args:
        identity: which CPU it is.
        matrix: rows and columns of the matrices.
        repeats: of each measurement; the best counts.
        array_bytes: of each of the triad's arrays; by the number of CPUs if left out.
        clock: seconds.
        cpu_clock: seconds of CPU time that the process had, of all CPUs together.
    """
    if array_bytes is None:
        array_bytes = min(_ARRAY_BYTES_PER_CPU * identity.cpus, identity.memory_bytes // _MEMORY_SHARE // 3)
    elements = array_bytes // 8
    with ThreadPoolExecutor(identity.cpus) as pool:
        works = (_product(matrix, np.float32), _product(matrix, np.float64), _triad(elements, identity.cpus, pool))
        (f32_s, _), (f64_s, f64_cpu_s), (triad_s, _) = _best_s(works, repeats, clock, cpu_clock)
    flop_per_s = {"f32": 2 * matrix**3 / f32_s, "f64": 2 * matrix**3 / f64_s}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    cpu_ratio = min(f64_cpu_s / f64_s / _product_threads(identity), 1.0)
    return CpuPeaks(_VERSION, identity, today, METHOD, repeats, flop_per_s, 3 * 8 * elements / triad_s, cpu_ratio)


def _product(matrix: int, dtype: type) -> Callable[[], object]:
    left: np.ndarray = np.full((matrix, matrix), 0.5, dtype)
    product = left @ left  # starts the BLAS's threads and touches the result's pages
    return lambda: np.matmul(left, left, out=product)


def _triad(elements: int, threads: int, pool: ThreadPoolExecutor) -> Callable[[], object]:
    result, left, right = (np.full(elements, value) for value in (0.0, 1.0, 2.0))
    edges = np.linspace(0, elements, threads + 1).astype(int).tolist()

    def part(begin: int, end: int) -> None:
        scaled = np.empty(_BLOCK)
        for start in range(begin, end, _BLOCK):
            stop = min(start + _BLOCK, end)
            np.multiply(right[start:stop], 3.0, out=scaled[: stop - start])
            np.add(left[start:stop], scaled[: stop - start], out=result[start:stop])

    return lambda: list(pool.map(part, edges[:-1], edges[1:]))


def _best_s(
    works: Sequence[Callable[[], object]], repeats: int, clock: Callable[[], float], cpu_clock: Callable[[], float]
) -> list[tuple[float, float]]:
    """The shortest time of each and its CPU time, in turns, so that a bad moment of the machine costs no one alone."""
    best = [(float("inf"), 0.0)] * len(works)
    for _ in range(repeats):
        for index, work in enumerate(works):
            cpu_start, start = cpu_clock(), clock()
            work()
            best[index] = min(best[index], (clock() - start, cpu_clock() - cpu_start))
    return best


def _product_threads(identity: CpuIdentity) -> int:
    """Threads of the BLAS: those of the CPUs, or fewer where the environment says so."""
    asked = [int(text) for text in identity.threads.values() if text.isdigit() and int(text) > 0]
    return min([identity.cpus, *asked])


def _spec(peaks: CpuPeaks) -> DeviceSpec:
    source = Source(f"measured on this machine, {peaks.date}: {peaks.method}", "", peaks.date)
    identity = peaks.identity

    def rate(value: float, unit: str, scale: float) -> Rate:
        return Rate(value, f"{value / scale:.4g} {unit}", source)

    system = Source(f"this machine's operating system, {peaks.date}", "", peaks.date)
    return DeviceSpec(
        name=f"{identity.model}, {identity.cpus} CPUs",
        vendor=identity.model.split()[0],
        devices_per_chip=1,
        memory_bytes=Rate(float(identity.memory_bytes), f"{identity.memory_bytes / 2**30:.4g} GiB", system),
        memory_bytes_per_s=rate(peaks.bytes_per_s, "GB/s", 1e9),
        flop_per_s={kind: rate(value, "TFLOP/s", 1e12) for kind, value in peaks.flop_per_s.items()},
        architecture=platform.machine(),
    )


def _read(path: Path, identity: CpuIdentity, tell: Callable[[str], None]) -> CpuPeaks | None:
    try:
        peaks = msgspec.json.decode(path.read_bytes(), type=CpuPeaks)
    except FileNotFoundError:
        return None
    except OSError as error:
        tell(f"{path}: cannot be read ({error.strerror}), so the CPU is measured")
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        tell(f"{path}: holds no measurement ({error}), so the CPU is measured again")
        return None
    rates = (*peaks.flop_per_s.values(), peaks.bytes_per_s)
    if peaks.version != _VERSION or peaks.identity != identity or not all(0 < rate < float("inf") for rate in rates):
        tell(f"{path}: holds no measurement of this CPU, so it is measured again")
        return None
    return peaks


def _write(path: Path, peaks: CpuPeaks, tell: Callable[[str], None]) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(peaks)))
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        tell(f"{path}: cannot be written ({error.strerror}), so the CPU will be measured again next time")
