"""Training programs that nobody here wrote, unmodified, recorded without a line of code beside plain.

Each program of `strangers_programs.py` runs in turns plain and as `phasepoint record --out RUN -- python …`, and once
more with counters of the benchmark's own (`strangers_hook.py`) that say how many steps there truly were. Compared are
exit code, output and results; steps recorded with the truth; wall and CPU time and the peak memory of the largest
process; beside them stands what the recorder says it cost.

    python benchmarks/strangers.py                         # all, 3 turns
    python benchmarks/strangers.py --list
    python benchmarks/strangers.py --only mnist gat --turns 1
    python benchmarks/strangers.py --resume                # go on where an earlier call stopped
    python benchmarks/strangers.py --verdicts --seconds 40 # each recorded once: what the first sentence says of it
    python benchmarks/strangers.py --clones DIR            # repositories from DIR/OWNER/NAME or DIR/OWNER+NAME/repo

The script makes a virtual environment with pinned packages, fetches the programs at pinned commits and makes their
data, all in a cache folder (`--cache`). The checkout that the script stands in is what is measured.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any

from strangers_programs import COMMITS, PROGRAMS, Program

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
DEFAULT_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "phasepoint" / "strangers"

PACKAGES = (
    "torch==2.13.0+cpu", "jax==0.10.2", "flax==0.12.8", "optax==0.2.8", "numpy==2.4.6", "lightning==2.6.6",
    "transformers==5.23.0", "keras==3.15.1", "accelerate==1.15.0", "tqdm==4.70.1", "absl-py==2.5.1",
    "torch-geometric==2.8.1", "gymnasium==1.4.0", "equinox==0.13.8", "dm-haiku==0.0.17", "numpyro==0.21.0",
    "ml_collections==1.1.0", "einops==0.8.2", "diffrax==0.7.2", "tensorflow-cpu==2.21.0",
    "tensorflow-datasets==4.9.10", "clu==0.0.12", "pytorch-ignite==0.5.5", "torchmetrics==1.9.0", "datasets==5.2.0",
    "evaluate==0.4.6", "jsonargparse[signatures]==4.53.0", "tensorboard==2.21.0", "tyro==1.0.17",
    "stable-baselines3==2.9.2", "dp-accounting==0.6.0", "orbax-export==0.0.8", "trl==1.16.0", "importlib_resources",
    "pillow", "matplotlib",
    "pyarrow==26.0.1", "duckdb==2.0.0", "numba==0.68.1", "msgspec", "isal", "protobuf", "scikit-learn",
    "rich", "typer",
)  # fmt: skip
"""Frameworks at the versions measured, then what Phasepoint itself needs."""

TORCHVISION = "torchvision==0.29.2"
TORCHVISION_OPERATORS = """

if not _has_ops():  # added by strangers.py: this wheel's operators are for CUDA and do not load into a CPU torch
    for _name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{_name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
FORBIDDEN = ("nvidia-", "nvidia_", "libtpu")
"""Packages of other devices, hundreds of MB each: if pip would install one, the script stops."""

EXCESS_RATIO, EXCESS_S = 0.01, 0.3
"""What recording may cost: 1 % of the time and, once, what a job's start and end may pay."""
EXCESS_BYTES = 150 << 20
STEPS_RATIO = 0.01
"""Steps recorded may miss the truth by this, or by one step."""
LIMIT_S = 900
"""A run that takes longer is killed and counts as failed."""

_NUMBER = r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
_TIMES = re.compile(
    rf"{_NUMBER}\s?(?:[muµn]?s|secs?|seconds?|mins?|minutes?|hours?)\b(?:\s?/\s?\w+)?|{_NUMBER}\s?\w+/s(?:ec)?\b"
    rf"|\b[mun]?s/\w+\s+{_NUMBER}|\b[Tt]ime:?\s+{_NUMBER}"
    r"|^[IWE]\d{4} [\d:.]+ +\d+"
    r"|\d+:\d\d(?::\d\d)?(?:\.\d+)?|\d{4}-\d\d-\d\d|0x[0-9a-f]+"
)
"""What in a line of output is a time, a speed, a date, an address or absl's head of a logged line; the rest of the line
is compared."""


@dataclass(frozen=True)
class Ran:
    """One run of a program.

    Attributes:
        exit_code: 128 plus the signal where it was killed by one.
        wall_s: from start to end, with `phasepoint record` around where it was recorded.
        cpu_s: user and system time, children that were waited for included.
        peak_bytes: of the largest process (`ru_maxrss`).
        output: the lines of standard output without what holds times.
        results: a hash of the result files.
        complaints: what Phasepoint said on standard error.
    """

    exit_code: int
    wall_s: float
    cpu_s: float
    peak_bytes: int
    output: list[str]
    results: str
    complaints: list[str]


def main() -> None:
    options = parse()
    named = {program.name: program for program in PROGRAMS}
    unknown = set(options.only) - named.keys()
    if unknown:
        raise SystemExit(f"no such program: {', '.join(sorted(unknown))}; --list names them")
    chosen = [named[name] for name in options.only] or list(PROGRAMS)
    if options.list:
        for program in chosen:
            print(f"{program.name:26s} {program.framework:6s} {program.repository:30s} {program.kind}")
        return
    options.cache.mkdir(parents=True, exist_ok=True)
    if not options.report:
        prepare_environment(options.cache, options.index)
    out = options.out or options.cache / "results.json"
    results = json.loads(out.read_text()) if out.exists() else {}
    for program in [] if options.report else chosen:
        done = results.get(program.name)
        if options.resume and done and done["key"] == key_of(program, options) and not done.get("failed"):
            continue
        try:
            results[program.name] = (verdict_of if options.verdicts else measure)(program, options)
        except StrangerError as error:
            results[program.name] = {"key": key_of(program, options), "failed": str(error)}
        sys.stderr.write(f"{program.name}: {in_short(results[program.name])}\n")
        out.write_text(json.dumps(results, indent=1))
    print((verdicts if options.verdicts else table)(chosen, results))
    if options.json:
        facts = {"machine": machine(), "programs": [program_facts(program, results) for program in chosen]}
        options.json.write_text(json.dumps(facts, indent=2) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="environment, programs, data, logs")
    parser.add_argument("--clones", type=Path, help="folder of local git repositories instead of github.com")
    parser.add_argument("--index", metavar="URL", help="package index of PyTorch's CPU builds, where pip knows none")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--list", action="store_true", help="name the programs and stop")
    parser.add_argument("--turns", type=int, default=3, help="runs plain and recorded, in turning order")
    parser.add_argument("--seconds", type=float, help="scale the programs that take a size to about so long")
    parser.add_argument("--report", action="store_true", help="the table of the results that are there; runs nothing")
    parser.add_argument("--steps-only", action="store_true", help="no plain runs: steps and output against the truth's")
    parser.add_argument("--verdicts", action="store_true", help="no plain runs: record each once and tell its verdict")
    parser.add_argument("--keep-work", action="store_true", help="leave the runs in CACHE/work")
    parser.add_argument("--resume", action="store_true", help="keep the results that are there")
    parser.add_argument("--out", type=Path, help="results, program by program (default: CACHE/results.json)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write machine and results as one document")
    options = parser.parse_args()
    options.cache = options.cache.absolute()
    return options


class StrangerError(Exception):
    """A program that cannot be prepared or run."""


# The environment


def prepare_environment(cache: Path, index: str | None) -> None:
    """The virtual environment, with what must follow the checkout written anew each time."""
    python = python_of(cache)
    stamp = cache / "venv.done"
    wanted = json.dumps([PACKAGES, TORCHVISION, TORCHVISION_OPERATORS])
    if not (stamp.exists() and stamp.read_text() == wanted):
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(cache / "venv")], check=True)
        install(python, index, *PACKAGES)
        subprocess.run(
            [python, "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", TORCHVISION], check=True
        )
        extension = site_packages(python) / "torchvision" / "extension.py"
        extension.write_text(extension.read_text() + TORCHVISION_OPERATORS)
        stamp.write_text(wanted)
    packages = site_packages(python)
    shutil.copyfile(HERE / "strangers_hook.py", packages / "strangers_hook.py")
    (packages / "strangers.pth").write_text(f"{SOURCE}\nimport strangers_hook\n")


def install(python: Path, index: str | None, *packages: str) -> None:
    """Install packages, but not before pip has said that it brings none of `FORBIDDEN`."""
    command = [str(python), "-m", "pip", "install", *(["--extra-index-url", index] if index else [])]
    plan = subprocess.run([*command, "--dry-run", *packages], capture_output=True, text=True, check=False)
    if plan.returncode:
        raise SystemExit(f"pip cannot install: {plan.stderr[-2000:]}")
    heavy = [word for word in plan.stdout.splitlines()[-1].split() if word.startswith(FORBIDDEN)]
    if heavy:
        raise SystemExit(f"pip would install {', '.join(heavy)}; the CPU builds are wanted")
    subprocess.run([*command, "-q", *packages], check=True)


def python_of(cache: Path) -> Path:
    return cache / "venv" / "bin" / "python"


def site_packages(python: Path) -> Path:
    command = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


# A program and its data


def repository_of(program: Program, options: argparse.Namespace) -> Path:
    """A git directory that holds the program's commit."""
    owner, name = program.repository.split("/")
    if options.clones:
        places = [options.clones / f"{owner}+{name}" / "repo", options.clones / owner / name]
        for place in places:
            if place.is_dir():
                return place
        raise StrangerError(f"{program.repository}: in none of {', '.join(str(place) for place in places)}")
    place = options.cache / "clones" / f"{owner}+{name}"
    if not place.is_dir():
        url = f"https://github.com/{program.repository}"
        git = ["git", "clone", "-q", "--bare", "--filter=blob:none", url, str(place)]
        if subprocess.run(git, check=False).returncode:
            raise StrangerError(f"{url} cannot be cloned")
    return place


def place_program(program: Program, options: argparse.Namespace, folder: Path) -> None:
    """The program's files at the pinned commit and its data, fresh."""
    folder.mkdir(parents=True)
    if "/" in program.repository:
        unpack(program, options, folder)
    for notebook in folder.rglob("*.ipynb"):
        notebook.with_suffix(".py").write_text(code_of(json.loads(notebook.read_text())))
    for maker, named in program.data:
        made = made_data(maker, options.cache)
        place = named.format(packages=site_packages(python_of(options.cache)))
        for path in made.rglob("*"):
            target = folder / place / path.relative_to(made)
            if path.is_file() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)


def unpack(program: Program, options: argparse.Namespace, folder: Path) -> None:
    git = ["git", "-C", str(repository_of(program, options)), "archive", "--format=tar", COMMITS[program.repository]]
    specs = [f":(glob){path}" if "*" in path else path for path in program.paths]
    packed = subprocess.run([*git, "--", *specs], capture_output=True, check=False)
    if packed.returncode:
        raise StrangerError(f"{program.repository}: {packed.stderr.decode()[-500:]}")
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")


def code_of(notebook: dict[str, Any]) -> str:
    """The code cells of a notebook one after another, less the lines that are commands to Jupyter."""
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    lines = "\n\n".join(cells).splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!"))) + "\n"


def made_data(maker: str, cache: Path) -> Path:
    """The folder of a data set, made if it is not there."""
    place = cache / "data" / maker
    if not place.is_dir():
        draft = place.with_name(f"{maker}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        command = [str(python_of(cache)), str(HERE / "strangers_data.py"), maker, str(draft)]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise StrangerError(f"data {maker}: {made.stderr[-800:]}")
        draft.rename(place)
    return place


def size_of(program: Program, seconds: float | None) -> int:
    """The program's `n`, scaled so that it takes about so long."""
    return program.n if seconds is None else max(1, round(program.n * seconds / program.plain_s))


# Runs


def run(program: Program, options: argparse.Namespace, mode: str, turn: int) -> tuple[Ran, dict[str, Any]]:
    """One run in a folder of its own: `plain`, `recorded` or `counted`; with it what it left, by mode."""
    folder = options.cache / "work" / f"{program.name}.{mode}"
    shutil.rmtree(folder, ignore_errors=True)
    place_program(program, options, folder / "repo")
    logs = options.cache / "logs"
    logs.mkdir(exist_ok=True)
    cwd = folder / "repo" / program.folder
    command = command_of(program, options)
    if mode == "recorded":
        record = [str(python_of(options.cache)), "-m", "phasepoint", "record", "--out", str(folder / "run"), "--"]
        command = [*record, *command]
    environ = environ_of(program, options.cache, folder)
    if mode == "counted":
        (folder / "counts").mkdir()
        environ["STRANGERS_COUNT"] = str(folder / "counts")
    names = [logs / f"{program.name}.{mode}.{turn}.{stream}" for stream in ("out", "err")]
    code, wall_s, cpu_s, peak_bytes = timed(command, cwd, environ, names)
    ran = Ran(
        exit_code=code,
        wall_s=wall_s,
        cpu_s=cpu_s,
        peak_bytes=peak_bytes,
        output=outputs(program, names, str(folder)),
        results=digest(path for pattern in program.results for path in sorted(cwd.glob(pattern))),
        complaints=[line for line in lines_of(names[1]) if "phasepoint" in line][:20],
    )
    left: dict[str, Any] = {}
    if mode == "counted":
        left = counted(program, options, folder / "counts")
    if mode == "recorded":
        left = recorded(folder / "run", options)
    if not options.keep_work:
        shutil.rmtree(folder, ignore_errors=True)
    return ran, left


def command_of(program: Program, options: argparse.Namespace) -> list[str]:
    python = str(python_of(options.cache))
    words = shlex.split(program.command.format(n=size_of(program, options.seconds)))
    starts = {"python": [python], "torchrun": [python, "-m", "torch.distributed.run"]}
    return [*starts.get(words[0], [words[0]]), *words[1:]]


def environ_of(program: Program, cache: Path, folder: Path) -> dict[str, str]:
    """The caller's environment, less what would change the programs, and all that they would download turned off."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PHASEPOINT_"))}
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    environ |= {
        "PATH": f"{cache / 'venv' / 'bin'}{os.pathsep}{environ.get('PATH', '')}",
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        "MPLBACKEND": "Agg",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hf"),
        "TORCH_HOME": str(folder / "torch"),
        "KERAS_HOME": str(folder / "keras"),
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(temporary),
    }
    if program.seeded:
        environ["STRANGERS_SEED"] = "0"
    data = folder / "repo" / program.data[0][1] if program.data else folder
    return environ | {name: value.format(data=data, folder=folder) for name, value in program.environ.items()}


def timed(
    command: Sequence[str], cwd: Path, environ: dict[str, str], names: Sequence[Path]
) -> tuple[int, float, float, int]:
    """Exit code, wall and CPU seconds and peak bytes of a command whose streams go to two files."""
    with names[0].open("wb") as out, names[1].open("wb") as err:
        began = time.perf_counter()
        shielded = ["timeout", "-k", "10", str(LIMIT_S), *command]
        process = subprocess.Popen(shielded, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return code, wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def lines_of(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines()


def outputs(program: Program, names: Sequence[Path], folder: str) -> list[str]:
    """What is compared of standard output, and of standard error the lines that the program's row asks for."""
    told = [line for line in lines_of(names[1]) if program.said and re.search(program.said, line)]
    return comparable([*lines_of(names[0]), *told], program.drop, folder)


def comparable(lines: Iterable[str], drop: str, folder: str) -> list[str]:
    """Lines of output without times and the name of the run's own folder; of a progress bar its last state."""
    pattern = re.compile(drop) if drop else None
    kept = []
    for line in lines:
        text = re.split(r"[\r\b]+", line.rstrip("\r\b"))[-1].replace(folder, "")
        if pattern is None or not pattern.search(text):
            kept.append(re.sub(r"\s+", " ", _TIMES.sub("<t>", text)).strip())
    return kept


def digest(paths: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for path in paths:
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


def counted(program: Program, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """True steps, and every counter added over processes."""
    parts = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    total: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            total[name] = total.get(name, 0) + count
    if program.truth == "optimizer":
        steps = sum(max((n for name, n in part.items() if name.startswith("optimizer:")), default=0) for part in parts)
    elif program.truth == "optimizers":
        steps = sum(count for name, count in total.items() if name.startswith("optimizer:"))
    elif program.truth in ("backward", "keras") or program.truth.startswith("jit:"):
        steps = total.get(program.truth, 0)
    else:
        steps = int(eval(program.truth, {"n": size_of(program, options.seconds)}))  # an expression of our own table
    return {"truth": steps, "counters": total}


READ_RUN = """
import json, sys
from pathlib import Path
import pyarrow.parquet as pq
parts = sorted(Path(sys.argv[1]).rglob("steps/*.parquet"))
steps = sum(pq.read_metadata(path).num_rows for path in parts)
print(json.dumps({"steps": steps, "shards": len({path.parent for path in parts})}))
"""
"""Counts the rows of the steps tables without Phasepoint's reader."""


def recorded(place: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Steps in the run as they lie on disk, and what the recorder and the summary say of them."""
    python = str(python_of(options.cache))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([python, *words], capture_output=True, text=True, env=environ, check=False)

    found = ask("-c", READ_RUN, str(place))
    facts = json.loads(found.stdout) if found.returncode == 0 else {"steps": 0, "unread": found.stderr[-400:]}
    facts["run_bytes"] = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    if options.steps_only:
        return facts
    said = ask("-m", "phasepoint", "summary", str(place), "--json")
    if said.returncode:
        return facts | {"summary_failed": said.stderr.strip()[-300:]}
    document = json.loads(said.stdout)
    cost = document.get("cost") or {}
    return facts | {
        "stated_share": cost.get("share"),
        "stated_s": cost.get("total_ps", 0) / 1e12,
        "stated_parts_s": {n: v / 1e12 for n, v in cost.items() if n.endswith("_ps") and v and n != "total_ps"},
        "captured_steps": (document.get("categories") or {}).get("captured_steps"),
        "verdict": document.get("verdict"),
    }


# A program's result


def key_of(program: Program, options: argparse.Namespace) -> str:
    """Changes with the row and the size: an older result with another key is measured again."""
    how = [options.seconds, options.turns, options.steps_only, options.verdicts]
    text = json.dumps([asdict(program), *how], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def measure(program: Program, options: argparse.Namespace) -> dict[str, Any]:
    """All runs of a program: counted first, which also warms the files; then plain and recorded in turning order."""
    truth_ran, truth = run(program, options, "counted", 0)
    if truth_ran.exit_code:
        told = lines_of(options.cache / "logs" / f"{program.name}.counted.0.err")[-3:]
        raise StrangerError(f"exit code {truth_ran.exit_code} without the recorder: {' '.join(told)[-400:]}")
    plain, with_recorder, facts = [], [], []
    for turn in range(options.turns):
        modes = ("plain", "recorded") if turn % 2 == 0 else ("recorded", "plain")
        for mode in ("recorded",) if options.steps_only else modes:
            ran, left = run(program, options, mode, turn)
            if mode == "plain":
                plain.append(ran)
            else:
                with_recorder.append(ran)
                facts.append(left)
    judged = judge(truth_ran, truth, plain or [truth_ran], with_recorder, facts)
    return {"key": key_of(program, options), "date": now(), **judged}


def verdict_of(program: Program, options: argparse.Namespace) -> dict[str, Any]:
    """One recorded run: what its summary says first, for a look at each."""
    ran, facts = run(program, options, "recorded", 0)
    if ran.exit_code:
        raise StrangerError(f"exit code {ran.exit_code}: {' '.join(ran.complaints)[-400:]}")
    return {"key": key_of(program, options), "date": now(), "wall_s": ran.wall_s, "recorded": facts}


def judge(
    truth_ran: Ran, truth: dict[str, Any], plain: list[Ran], with_recorder: list[Ran], facts: list[dict[str, Any]]
) -> dict[str, Any]:
    """What the runs say, with the limits they are held against."""
    wall = [median(ran.wall_s for ran in runs) for runs in (plain, with_recorder)]
    cpu = [median(ran.cpu_s for ran in runs) for runs in (plain, with_recorder)]
    peak = [median(ran.peak_bytes for ran in runs) for runs in (plain, with_recorder)]
    steps = [fact["steps"] for fact in facts]
    miss = max(abs(number - truth["truth"]) for number in steps)
    codes = sorted({ran.exit_code for ran in plain}), sorted({ran.exit_code for ran in with_recorder})
    return {
        "truth": truth["truth"],
        "counters": truth["counters"],
        "steps": steps,
        "steps_right": miss <= max(1, STEPS_RATIO * truth["truth"]),
        "exit_codes": codes,
        "same": same(truth_ran, plain, with_recorder) if codes[0] == codes[1] else "exit codes differ",
        "wall_s": wall,
        "wall_excess_s": wall[1] - wall[0],
        "wall_right": wall[1] - wall[0] <= EXCESS_RATIO * wall[0] + EXCESS_S,
        "cpu_s": cpu,
        "cpu_excess_s": cpu[1] - cpu[0],
        "cpu_right": cpu[1] - cpu[0] <= EXCESS_RATIO * cpu[0] + EXCESS_S,
        "peak_bytes": peak,
        "peak_right": peak[1] - peak[0] <= EXCESS_BYTES,
        "stated_share": [fact.get("stated_share") for fact in facts],
        "stated_s": [fact.get("stated_s") for fact in facts],
        "complaints": sorted({line for ran in with_recorder for line in ran.complaints}),
        "recorded": facts,
        "runs": {
            name: [[ran.wall_s, ran.cpu_s, ran.peak_bytes] for ran in runs]
            for name, runs in (("plain", plain), ("recorded", with_recorder), ("counted", [truth_ran]))
        },
    }


def same(truth_ran: Ran, plain: list[Ran], with_recorder: list[Ran]) -> str:
    """`equal`, `differs`, `varies` where the program itself does not repeat its output, `nothing` where it has none."""
    if not any(truth_ran.output) and truth_ran.results == digest(()):
        return "nothing"
    without = {(tuple(ran.output), ran.results) for ran in [truth_ran, *plain]}
    recorded_too = {(tuple(ran.output), ran.results) for ran in with_recorder}
    if without == recorded_too and len(without) == 1:
        return "equal"
    return "varies" if len(without) > 1 else "differs"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def machine() -> str:
    return f"{os.cpu_count()} × {platform.machine()}, {platform.system()} {platform.release()}, {now()[:10]}"


def in_short(result: dict[str, Any]) -> str:
    if "failed" in result:
        return f"FAILED {result['failed'][-600:]}"
    if "truth" not in result:
        return str(result["recorded"].get("verdict"))
    return (
        f"truth {result['truth']}, recorded {result['steps']}, {result['same']}, exit {result['exit_codes']}, "
        f"wall {result['wall_s'][0]:.2f} → {result['wall_s'][1]:.2f} s, CPU {result['cpu_s'][0]:.2f} → "
        f"{result['cpu_s'][1]:.2f} s, peak +{(result['peak_bytes'][1] - result['peak_bytes'][0]) / 1e6:.0f} MB"
    )


HEAD = (
    "program", "framework", "true steps", "recorded", "output", "wall s", "excess s", "CPU s", "excess s",
    "peak MB", "stated", "what is special",
)  # fmt: skip


def table(programs: Sequence[Program], results: dict[str, Any]) -> str:
    """The results in Markdown; bold is what misses its limit."""
    rows = [HEAD, tuple("---" for _ in HEAD)]
    rows += [row_of(program, results[program.name]) for program in programs if program.name in results]
    lines = [f"{machine()}; limits: steps ±1 % or 1, excess 1 % + {EXCESS_S} s, peak +{EXCESS_BYTES >> 20} MiB", ""]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", in_all(programs, results)])


def verdicts(programs: Sequence[Program], results: dict[str, Any]) -> str:
    """First sentences of the recorded programs in Markdown."""
    rows = [("program", "steps", "captured", "s", "verdict"), ("---",) * 5]
    for name, result in ((program.name, results[program.name]) for program in programs if program.name in results):
        facts = result.get("recorded", {})
        told = str(facts.get("verdict") or result.get("failed") or facts.get("summary_failed"))
        captured, wall_s = facts.get("captured_steps") or 0, result.get("wall_s", 0.0)
        rows.append((name, f"{facts.get('steps', 0):,}", f"{captured:,}", f"{wall_s:.0f}", told))
    return "\n".join([machine(), "", *("| " + " | ".join(row) + " |" for row in rows)])


def row_of(program: Program, result: dict[str, Any]) -> tuple[str, ...]:
    if "failed" in result:
        return (program.name, program.framework, f"**failed**: {result['failed'][-120:]!r}", *[""] * 8, program.kind)
    steps = result["steps"]
    shares = [share for share in result["stated_share"] if share is not None]
    return (
        program.name,
        program.framework,
        f"{result['truth']:,}",
        marked(
            f"{min(steps):,}" if min(steps) == max(steps) else f"{min(steps):,}–{max(steps):,}", result["steps_right"]
        ),
        marked(result["same"], result["same"] == "equal"),
        f"{result['wall_s'][0]:.2f}",
        marked(f"{result['wall_excess_s']:+.2f}", result["wall_right"]),
        f"{result['cpu_s'][0]:.2f}",
        marked(f"{result['cpu_excess_s']:+.2f}", result["cpu_right"]),
        marked(f"{(result['peak_bytes'][1] - result['peak_bytes'][0]) / (1 << 20):+.0f}", result["peak_right"]),
        f"{median(shares):.2%}" if shares else "–",
        program.kind,
    )


def marked(text: str, right: bool) -> str:
    return text if right else f"**{text}**"


def in_all(programs: Sequence[Program], results: dict[str, Any]) -> str:
    measured = [results[program.name] for program in programs if program.name in results]
    done = [result for result in measured if "failed" not in result]
    words = {"steps": "steps_right", "wall": "wall_right", "CPU": "cpu_right", "memory": "peak_right"}
    counts = ", ".join(f"{word} {sum(result[key] for result in done)}" for word, key in words.items())
    equal = sum(result["same"] == "equal" for result in done)
    return f"Of {len(measured)} programs: ran {len(done)}; output equal {equal}; within the limit: {counts}."


def program_facts(program: Program, results: dict[str, Any]) -> dict[str, Any]:
    row = asdict(program) | {"commit": COMMITS.get(program.repository)}
    return {"program": row, "result": results.get(program.name)}


if __name__ == "__main__":
    main()
