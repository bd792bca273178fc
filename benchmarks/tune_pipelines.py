"""Pipelines that `tune.py` tunes: real data, real decoding, and a step that waits as for an accelerator.

    python benchmarks/tune_pipelines.py --list
    python benchmarks/tune_pipelines.py jpeg --seconds 20 --setting '{"num_workers": 2}'
    python benchmarks/tune_pipelines.py jpeg --seconds 75 --tune --setting '{"num_workers": 0}'

The accelerator is emulated by a step that waits without using the CPU, as MLPerf Storage does; its published times
(ResNet-50 on an H100: 0.224 s for 400 samples; U-Net3D: 0.323 s for 7; mlcommons/storage, v1.0, workload
configurations) are scaled to what two cores can feed: `body_s` of each pipeline. `train` trains a real network on the
same cores instead. Pictures come from scikit-image, texts from the sources of installed packages; small files come
from an HTTP server on the loopback that answers after a set time.
"""

import argparse
import http.client
import http.server
import json
import os
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import phasepoint as pp
from phasepoint.tune.knobs import Effect

CACHE = Path(tempfile.gettempdir()) / "phasepoint-tune-data"
LATENCY_S = 0.015
"""Of the HTTP server: a store in the same region answers in 10 to 30 ms."""


@dataclass(frozen=True)
class Pipeline:
    """One pipeline.

    Attributes:
        data: makes its dataset.
        body_s: what a step takes; None trains a network.
        batch_size: samples of a step.
        grid: numbers of workers that the exhaustive search tries.
        ahead: prefetch factors that it tries.
        bad, good: settings to start from.
        draws: whether making batches draws random numbers.
        shuffles: whether samples come in an order drawn by chance.
        memory_mb: limit beyond what the process has at its begin.
    """

    data: Callable[[], Dataset]
    body_s: float | None
    batch_size: int
    grid: tuple[int, ...] = (0, 1, 2, 3, 4)
    ahead: tuple[int, ...] = (2,)
    bad: Mapping[str, int] = None
    good: Mapping[str, int] = None
    draws: bool = False
    shuffles: bool = True
    memory_mb: int | None = None


class Pictures(Dataset):
    """JPEG files: decoded, cut, turned over by chance, as floats."""

    def __init__(self):
        self.paths = sorted(pictures().glob("*.jpg"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        from PIL import Image

        with Image.open(self.paths[index]) as picture:
            pixels = np.asarray(picture.convert("RGB"))
        top, left = np.random.randint(0, 32, 2)
        pixels = pixels[top : top + 160, left : left + 160]
        if np.random.rand() < 0.5:
            pixels = pixels[:, ::-1]
        return torch.from_numpy(pixels.transpose(2, 0, 1).astype(np.float32) / 255), index % 10


def pictures():
    """5,000 JPEG files of 192 × 192, cut from scikit-image's pictures."""
    folder = CACHE / "pictures"
    if (folder / "done").exists():
        return folder
    import skimage.data
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    names = ("astronaut", "chelsea", "coffee", "rocket", "immunohistochemistry", "hubble_deep_field", "retina")
    sources = []
    for name in names:
        try:
            sources.append(getattr(skimage.data, name)())
        except Exception:  # noqa: BLE001 - pictures that the package would download
            continue
    chance = np.random.default_rng(0)
    for number in range(5000):
        source = sources[number % len(sources)]
        top, left = (chance.integers(0, source.shape[axis] - 192) for axis in (0, 1))
        Image.fromarray(source[top : top + 192, left : left + 192]).save(folder / f"{number:05d}.jpg", quality=90)
    (folder / "done").touch()
    return folder


class Texts(Dataset):
    """Python sources of installed packages as tokens of a byte-pair vocabulary that is trained on some of them."""

    def __init__(self):
        paths = sorted(Path(sysconfig.get_paths()["purelib"]).glob("*/**/*.py"))[:4000]
        self.texts = [path.read_text(errors="replace")[:6000] for path in paths]
        self.vocabulary = str(vocabulary(self.texts[:300]))
        self.tokenizer = None

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        if self.tokenizer is None:
            from tokenizers import Tokenizer

            self.tokenizer = Tokenizer.from_file(self.vocabulary)
        tokens = self.tokenizer.encode(self.texts[index]).ids[:512]
        return torch.tensor(tokens + [0] * (512 - len(tokens)))


def vocabulary(texts):
    path = CACHE / "vocabulary.json"
    if not path.exists():
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        CACHE.mkdir(parents=True, exist_ok=True)
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
        tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=8000))
        tokenizer.save(str(path))
    return path


class Opened(Dataset):
    """What each thread of each process opens for itself; a copy for another process begins without any."""

    def __init__(self):
        self.kept = {}

    def __getstate__(self):
        return {**self.__dict__, "kept": {}}

    def opened(self, make):
        key = os.getpid(), threading.get_ident()
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]


class Remote(Opened):
    """Small files of an HTTP server, over one connection for each thread of each process."""

    def __init__(self):
        super().__init__()
        self.port = serve()

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        connection = self.opened(partial(http.client.HTTPConnection, "127.0.0.1", self.port))
        connection.request("GET", f"/{index}")
        body = connection.getresponse().read()
        return torch.frombuffer(bytearray(body), dtype=torch.uint8), index


class _Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # head and body in one packet: else TCP waits 40 ms between them

    def do_GET(self):
        time.sleep(LATENCY_S)
        body = self.path.encode().ljust(4096, b".")
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve():
    """A server in a process of its own, which ends with this one."""
    import multiprocessing

    ports = multiprocessing.get_context("spawn").Queue()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(ports, os.getpid()), daemon=True)
    process.start()
    return ports.get(timeout=60)


def _serve(ports, parent):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    ports.put(server.server_port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while os.getppid() == parent:
        time.sleep(0.5)


class Rows(Opened):
    """Row groups of a Parquet file, which each thread opens for itself."""

    def __init__(self):
        super().__init__()
        self.path = str(parquet())

    def __len__(self):
        return 4000

    def __getitem__(self, index):
        import pyarrow.parquet as pq

        file = self.opened(partial(pq.ParquetFile, self.path))
        table = file.read_row_group(index % file.num_row_groups)
        columns = [column.to_numpy() for column in table.columns]
        return torch.from_numpy(np.stack([np.log1p(np.abs(column)) for column in columns]).astype(np.float32))


def parquet():
    path = CACHE / "rows.parquet"
    if not path.exists():
        import pyarrow as pa
        import pyarrow.parquet as pq

        CACHE.mkdir(parents=True, exist_ok=True)
        chance = np.random.default_rng(0)
        table = pa.table({f"c{i}": chance.standard_normal(800_000) for i in range(24)})
        pq.write_table(table, path, row_group_size=2000)
    return path


class PurePython(Dataset):
    """A transform in Python alone, which holds the interpreter's lock."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        value = index
        for _ in range(9000):
            value = (value * 1103515245 + 12345) % 2147483648
        return torch.tensor([value, index])


class Tailed(Dataset):
    """Waits that scatter: most samples take a millisecond, one in fifty 80."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(0.08 if hash((index, 7)) % 50 == 0 else 0.001)
        return torch.tensor([index])


class ManySmall(Dataset):
    """A sample of 150 small arrays: handing it over costs more than making it."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return {f"a{i}": np.full(8, index + i, np.float32) for i in range(150)}


class Hungry(Dataset):
    """Each worker holds a table of its own; samples wait as for a disk."""

    def __init__(self):
        self.table = None

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if self.table is None:
            self.table = np.ones(25_000_000)  # 200 MB
        time.sleep(0.008)
        return torch.tensor([self.table[index], index])


class Moving(Dataset):
    """The first samples take little, later ones much: a store that has gone away."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(0.0005 if index < 8 * 1200 else 0.006)
        return torch.tensor([index])


class Light(Dataset):
    """Next to no work."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return torch.full((3, 32, 32), index / 1e5), index % 10


class Decoded(Pictures):
    """Pictures, small, for the network that trains on the same cores."""

    def __getitem__(self, index):
        picture, label = super().__getitem__(index)
        return picture[:, ::5, ::5].contiguous(), label


PIPELINES = {
    "jpeg": Pipeline(Pictures, 0.035, 16, (0, 1, 2, 3, 4), bad={"num_workers": 4}, good={"num_workers": 2}, draws=True),
    "text": Pipeline(Texts, 0.020, 8, (0, 1, 2, 3), bad={"num_workers": 3}, good={"num_workers": 1}),
    "http": Pipeline(Remote, 0.025, 8, (0, 2, 4, 5, 6, 8), bad={"num_workers": 1}, good={"num_workers": 5}),
    "parquet": Pipeline(Rows, 0.020, 8, (0, 1, 2, 3), bad={"num_workers": 3}, good={"num_workers": 1}),
    "gil": Pipeline(PurePython, 0.015, 16, (0, 1, 2, 3), bad={"num_workers": 3}, good={"num_workers": 2}),
    "tailed": Pipeline(
        Tailed,
        0.020,
        8,
        (0, 1, 2, 3, 4),
        (2, 4, 8),
        bad={"num_workers": 1},
        good={"num_workers": 3, "prefetch_factor": 4},
        shuffles=False,
    ),
    "many": Pipeline(ManySmall, 0.010, 4, (0, 1, 2), bad={"num_workers": 2}, good={"num_workers": 0}),
    "memory": Pipeline(
        Hungry, 0.016, 8, (0, 1, 2), bad={"num_workers": 0}, good={"num_workers": 2}, shuffles=False, memory_mb=800
    ),
    "moving": Pipeline(
        Moving, 0.012, 8, (0, 1, 2, 4, 5, 6), bad={"num_workers": 0}, good={"num_workers": 5}, shuffles=False
    ),
    "train": Pipeline(Decoded, None, 16, (0, 1, 2), bad={"num_workers": 4}, good={"num_workers": 1}, draws=True),
    "tuned": Pipeline(Remote, 0.060, 4, (0, 1, 2, 3), bad={"num_workers": 2}, good={"num_workers": 2}),
    "compute": Pipeline(Light, 0.040, 8, (0, 1, 2), bad={"num_workers": 2}, good={"num_workers": 0}),
}


def network():
    """A step of real training: a small convolutional network."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(1024, 10),
    )
    optimizer = torch.optim.SGD(net.parameters(), 0.01)

    def step(batch):
        pictures, labels = batch
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(pictures), labels)
        loss.backward()
        optimizer.step()

    return step


def run_pipeline(
    name: str, *, seconds: float, setting: Mapping[str, int], tuned: bool, seed: int, steps: int | None = None
) -> dict[str, Any]:
    """Run a pipeline for so long, or so many steps; when each asked for its batch, and what the tuner came to."""
    from phasepoint.tune.limits import tree_bytes

    pipeline = PIPELINES[name]
    torch.manual_seed(seed)
    data = pipeline.data()

    def make_loader(**knobs):
        return DataLoader(
            data, batch_size=pipeline.batch_size, shuffle=pipeline.shuffles, drop_last=True, **{**setting, **knobs}
        )

    body = network() if pipeline.body_s is None else partial(_wait, pipeline.body_s)
    loader, most = make_loader(), {"bytes": 0}
    base = tree_bytes()
    limit = None if pipeline.memory_mb is None else base + (pipeline.memory_mb << 20)
    if tuned:
        allow = [Effect.RANDOM_NUMBERS] if pipeline.draws else []
        loader = pp.tune.loader(make_loader, memory=limit, allow=allow, seed=seed)
    ended = threading.Event()
    threading.Thread(target=watch_memory, args=(most, ended), daemon=True).start()
    began, asked = time.perf_counter(), []
    while not ended.is_set():
        for batch in loader:
            body(batch)
            asked.append(time.perf_counter() - began)
            if asked[-1] > seconds or len(asked) == steps:
                ended.set()
                break
    result = {
        "name": name,
        "setting": dict(setting),
        "tuned": tuned,
        "asked_s": asked,
        "most_bytes": most["bytes"],
        "limit_bytes": limit,
    }
    if tuned:
        row = loader.state.row(0, 0, steps=len(asked))
        result["state"] = {key: row[key] for key in ("verdict", "reason", "chosen", "gain", "spent_ps", "won_ps")}
        result["trials"] = [_plain(end) for end in loader.trials]
    return result


def _plain(end):
    return {key: value for key, value in end.row().items() if not key.endswith("_ps")}


def _wait(seconds, _batch):
    time.sleep(seconds)


def watch_memory(most, ended):
    """What the process tree has at most; the peers run beside it too, since reading it costs."""
    from phasepoint.tune.limits import tree_bytes

    while not ended.wait(0.25):
        most["bytes"] = max(most["bytes"], tree_bytes())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=PIPELINES)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--setting", type=json.loads, default={})
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--steps", type=int, help="end after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the result there; a pipe of it was once cut off at 64 KiB")
    args = parser.parse_args()
    if args.list or not args.name:
        print("\n".join(PIPELINES))
        sys.exit()
    out = run_pipeline(
        args.name, seconds=args.seconds, setting=args.setting, tuned=args.tune, seed=args.seed, steps=args.steps
    )
    if args.json:
        args.json.write_text(json.dumps(out))
    else:
        sys.stdout.write(json.dumps(out) + "\n")
        sys.stdout.flush()
    os._exit(0)
