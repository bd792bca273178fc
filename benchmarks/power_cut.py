"""Cut the power of a recorded job 200 times: does what is left open, and how much is lost?

    python benchmarks/power_cut.py --cuts 200

A real PyTorch job is recorded once, and every call that changes the run's folder is logged: files written and renamed,
linked, deleted, folders made, and what was synced when. For a cut at a random moment the disk is then put together as
it may look after it: what was not synced of a file is empty, cut short, zeros or noise; a name that was given or taken
away since its folder was synced is there or not, in order (`ordered`, as a journal of metadata keeps it) or at random
(`any`). What is left is opened and read. Lost is the time from the last step that can be read to the cut.

Source of the model: Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from phasepoint.core.errors import PhasepointError
from phasepoint.store import open_run

JOB = """
import json, os, shutil, sys, threading, time
from pathlib import Path
run, aside, seconds = Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute(), float(sys.argv[3])
log, lock, busy, kept = [], threading.RLock(), threading.local(), [0]
real_fsync = os.fsync
def inside(path):
    return isinstance(path, (str, bytes)) and Path(os.fsdecode(path)).absolute().is_relative_to(run)
def note(kind, **facts):
    with lock:
        log.append({"kind": kind, "at": time.perf_counter(), **facts})
def keep(path):
    # What a name led to, before it goes: a copy of its own.
    kept[0] += 1
    shutil.copyfile(path, aside / str(kept[0]))
    return str(kept[0])
def fsync(fd):
    number = fd if isinstance(fd, int) else fd.fileno()
    path = os.readlink(f"/proc/self/fd/{number}")
    real_fsync(fd)
    if inside(path) or path == str(run.parent):
        note("sync", path=path, content=None if os.path.isdir(path) else keep(path))
def hook(event, args):
    if getattr(busy, "on", False):
        return
    busy.on = True
    try:
        if event == "open" and inside(args[0]) and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR):
            note("create", path=os.path.abspath(os.fsdecode(args[0])))
        elif event in ("os.rename", "os.link") and inside(args[1]):
            note(event[3:], path=os.path.abspath(args[0]), to=os.path.abspath(args[1]))
        elif event in ("os.remove", "os.rmdir", "os.mkdir") and inside(args[0]):
            note(event[3:], path=os.path.abspath(args[0]))
    finally:
        busy.on = False
os.fsync = fsync
sys.addaudithook(hook)
import torch
from phasepoint.recorder import record
net = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
x = torch.randn(64, 256)
finished, began = [], time.perf_counter()
with record(run, budget=0.2) as recording:
    for i in recording.steps(range(10**9)):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        time.sleep(0.005)
        finished.append(time.perf_counter())
        if finished[-1] - began > seconds:
            break
Path(sys.argv[2] + ".json").write_text(json.dumps({"log": log, "finished": finished}))
"""


@dataclass(frozen=True)
class Cut:
    """What one cut left."""

    model: str
    after_s: float
    opened: bool
    lost_s: float
    unreadable: int
    error: str


@dataclass
class File:
    """A file: a copy of what is synced of it, None where nothing is, and whether it was opened to be written since."""

    content: str | None = None
    is_open: bool = False


@dataclass
class Folder:
    """A folder: its names as the system shows them, as they are on the disk, and the changes in between, in order."""

    shown: "dict[str, Folder | File]" = field(default_factory=dict)
    stable: "dict[str, Folder | File]" = field(default_factory=dict)
    pending: "list[dict[str, Folder | File | None]]" = field(default_factory=list)

    def change(self, **names: "Folder | File | None") -> None:
        """Give names, or take them away (None), at once."""
        _apply(self.shown, names)
        self.pending.append(names)

    def sync(self) -> None:
        for names in self.pending:
            _apply(self.stable, names)
        self.pending = []

    def cut(self, model: str, rng: random.Random) -> "dict[str, Folder | File]":
        """The names on the disk after a cut."""
        left, survive = dict(self.stable), rng.randint(0, len(self.pending))
        for number, names in enumerate(self.pending):
            if number < survive if model == "ordered" else rng.random() < 0.5:
                _apply(left, names)
        return left


def _apply(names: "dict[str, Folder | File]", changes: "dict[str, Folder | File | None]") -> None:
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class Disk:
    """The folders and files below a root that is on the disk."""

    def __init__(self, root: str) -> None:
        self._above = Path(root).parent
        self.top = Folder()

    def apply(self, entry: dict[str, Any]) -> None:
        """A logged call; one that failed changed nothing, so what it names may be missing."""
        kind, path = entry["kind"], entry["path"]
        folder, name = self._at(path)
        if folder is None:
            return
        node = folder.shown.get(name)
        if kind == "create":
            if node is None:
                folder.change(**{name: File()})
            elif isinstance(node, File):
                node.is_open = True
        elif kind == "mkdir":
            if node is None:
                folder.change(**{name: Folder()})
        elif kind in ("rename", "link"):
            target, to = self._at(entry["to"])
            if target is folder and node is not None:
                folder.change(**({to: node} | ({name: None} if kind == "rename" else {})))
        elif kind in ("remove", "rmdir"):
            folder.change(**{name: None})
        elif isinstance(node, File):
            node.content, node.is_open = entry["content"], False
        else:
            (node or folder).sync()

    def _at(self, path: str) -> tuple[Folder | None, str]:
        *folders, name = Path(path).relative_to(self._above).parts or ("",)
        here: Folder | File | None = self.top
        for part in folders:
            here = here.shown.get(part) if isinstance(here, Folder) else None
        return (here if isinstance(here, Folder) else None), name


def build(folder: Folder, aside: Path, target: Path, model: str, rng: random.Random) -> None:
    """Write what a cut leaves of a folder."""
    target.mkdir()
    for name, node in folder.cut(model, rng).items():
        if isinstance(node, Folder):
            build(node, aside, target / name, model, rng)
            continue
        some, synced = rng.randint(1, 5000), b""
        if node.content is not None:
            synced = (aside / node.content).read_bytes()
        more = rng.choice([b"", bytes(some), rng.randbytes(some)])
        (target / name).write_bytes(synced + (more if node.content is None or node.is_open else b""))


def run_cut(record: dict[str, Any], root: str, aside: Path, folder: Path, model: str, rng: random.Random) -> Cut:
    log, finished = record["log"], record["finished"]
    at = rng.uniform(finished[0], finished[-1] + 0.3)
    disk = Disk(root)
    for entry in log:
        if entry["at"] <= at:
            disk.apply(entry)
    build(disk.top, aside, folder / "left", model, rng)
    done = [s for s in finished if s <= at]
    try:
        run = open_run(str(folder / "left" / Path(root).name))
        read = run.table("steps").num_rows
        run.table("windows")
    except PhasepointError as error:
        return Cut(model, at - finished[0], False, at - finished[0], 0, f"{type(error).__name__}: {error}")
    lost_s = at - (done[min(read, len(done)) - 1] if read and done else finished[0])
    return Cut(model, at - finished[0], True, lost_s, len(run.problems), "; ".join(run.problems))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the recorded job")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rng, cuts = random.Random(args.seed), []
    with tempfile.TemporaryDirectory(prefix="phasepoint-power-") as name:
        folder = Path(name)
        root, aside = folder / "run", folder / "aside"
        aside.mkdir()
        command = [sys.executable, "-c", JOB, str(root), str(aside), str(args.seconds)]
        subprocess.run(command, check=True)
        record = json.loads((folder / "aside.json").read_text())
        print(f"{len(record['finished'])} steps; {dict(Counter(entry['kind'] for entry in record['log']))}")
        for number in range(args.cuts):
            cuts.append(run_cut(record, str(root), aside, folder, ("ordered", "any")[number % 2], rng))
            shutil.rmtree(folder / "left")
    print("| model | cuts | opened | lost, median | at most | unreadable parts |\n|---|---|---|---|---|---|")
    for model in ("ordered", "any"):
        mine = [cut for cut in cuts if cut.model == model]
        lost = [cut.lost_s for cut in mine]
        opened, parts = sum(cut.opened for cut in mine), sum(cut.unreadable for cut in mine)
        print(f"| {model} | {len(mine)} | {opened} | {median(lost):.2f} s | {max(lost):.2f} s | {parts} |")
    for error in sorted({cut.error for cut in cuts if cut.error}):
        print(error.replace(str(folder), "…")[:300])
    if args.json:
        args.json.write_text(json.dumps([asdict(cut) for cut in cuts], indent=1))


if __name__ == "__main__":
    main()
