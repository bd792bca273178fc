"""Measured steps of transformers on eight B200, two to 512 A100 and pods of TPUs, and products on one TPU."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from phasepoint.core.errors import NoDataError
from phasepoint.devices.specs import device_spec
from phasepoint.scale.rows import read_rows
from phasepoint.scale.steps.constants import Part, Parts, shipped_constants, step_s
from phasepoint.scale.steps.gpu import GPU_PARTS, gpu_parts
from phasepoint.scale.steps.models import find_model
from phasepoint.scale.steps.products import ELEMENT_BYTES, PRODUCT_PARTS, product_parts
from phasepoint.scale.steps.tpu import TPU_PARTS, counted_flop, tpu_parts
from phasepoint.scale.steps.transformer import Layout, Transformer
from phasepoint.scale.validate.answer import FileAnswer, Held, answer_file


@dataclass(frozen=True)
class Step:
    """A measured step.

    Attributes:
        group: the model that it is left out with.
        parts: what it would take at the peak.
        seconds: that were measured.
        flop: that throughput counts, where the file gives throughput; 0 where it gives time.
        labels: what tables group by.
        beside: what others predict, seconds.
    """

    group: str
    parts: Parts
    seconds: float
    flop: float
    labels: Mapping[str, str]
    beside: Mapping[str, float]


@dataclass(frozen=True)
class StepFile:
    """A file of measured steps.

    Attributes:
        file: its name.
        constants: the set of constants that answers for it.
        table: the parts of its steps.
        read: its steps, and notes of what was left out.
    """

    file: str
    constants: str
    table: tuple[Part, ...]
    read: Callable[[Path], tuple[list[Step], list[str]]]


def answer_steps(row: StepFile, path: Path) -> FileAnswer:
    """Errors of a file's steps; of throughput where the file gives throughput.

    Raises:
        SourceError: the file cannot be read.
        NoDataError: it holds no step that can be predicted.
    """
    steps, notes = row.read(path)
    if not steps:
        raise NoDataError(f"{path}: no step that can be predicted; {'; '.join(notes) or 'the file is empty'}")
    constants: Any = shipped_constants()[row.constants]["constants"]
    return answer_predicted(path.name, steps, [step_s(step.parts, constants, row.table) for step in steps], notes)


def answer_predicted(
    name: str, steps: Sequence[Step], seconds: Sequence[float], notes: Sequence[str] = ()
) -> FileAnswer:
    """The same of predictions that were made elsewhere, such as by constants that left a model out."""
    predicted, true = np.array(seconds), np.array([step.seconds for step in steps])
    if any(step.flop for step in steps):
        flop = np.array([step.flop for step in steps])
        predicted, true = flop / predicted, flop / true
    whats = list(steps[0].labels)
    groups = {what: [step.labels[what] for step in steps] for what in whats}
    others = list(steps[0].beside)
    beside = {other: np.array([step.beside[other] for step in steps]) for other in others}
    return answer_file(name, "points", Held(predicted, true, beside=beside), groups, notes)


# Iterations of Megatron-DeepSpeed on A100: Bang et al., "vTrain", MICRO 2024

GPT_VOCAB = 51_200
"""GPT-2's 50,257 padded to a multiple of 1,024 as Megatron does."""

_ITERATION_COLUMNS = (
    "# GPUs", "global batch", "micro batch", "hidden size", "attention heads", "# layers", "sequence length",
    "tensor parallelism", "data parallelism", "pipeline parallelism", "iteration time (ms)",
)  # fmt: skip


def read_iterations(path: Path) -> tuple[list[Step], list[str]]:
    """The steps of `llm_iteration_times_*`."""
    steps, notes = [], []
    device = device_spec("NVIDIA A100-SXM4-80GB")
    assert device is not None
    for number, row in enumerate(read_rows(path, _ITERATION_COLUMNS)):
        gpus, batch, micro, dim, heads, layers, seq, tensor, data, pipeline = (
            int(float(row[name])) for name in _ITERATION_COLUMNS[:-1]
        )
        if tensor * data * pipeline != gpus or batch % (micro * data):
            notes.append(f"row {number}: {tensor} × {data} × {pipeline} on {gpus} GPUs with batch {batch} is no layout")
            continue
        model = Transformer(layers, dim, heads, dim // heads, heads, 4 * dim, GPT_VOCAB, seq, gated=False, causal=False)
        layout = Layout(gpus, tensor, pipeline, data, 1, micro, batch // (micro * data))
        steps.append(
            Step(
                group=f"{dim} wide, {layers} layers",
                parts=gpu_parts(model, layout, device, keeps_scores=True),
                seconds=float(row["iteration time (ms)"]) / 1e3,
                flop=0.0,
                labels={"width": f"{dim}", "tensor": f"{tensor}", "GPUs": f"{gpus}"},
                beside={},
            )
        )
    return steps, notes


# Steps of Megatron on eight B200, as SimuMax publishes them

_B200_COLUMNS = ("model", "device", "gpus", "tp", "pp", "dp", "ep", "layers", "micro_batches", "seq", "step_ms")


def read_b200(path: Path) -> tuple[list[Step], list[str]]:
    """The steps of `b200_training_steps`."""
    steps, notes = [], []
    for row in read_rows(path, _B200_COLUMNS):
        model, device = find_model(str(row["model"])), device_spec(str(row["device"]))
        if model is None or device is None:
            notes.append(f"model {row['model']!r} on {row['device']!r}: not known, left out")
            continue
        model = replace(model, layers=int(row["layers"]), seq=int(row["seq"]))
        layout = Layout(row["gpus"], row["tp"], row["pp"], row["dp"], row["ep"], 1, row["micro_batches"])
        shape = f"tensor {row['tp']}, pipeline {row['pp']}, experts {row['ep']}"
        simumax = row.get("simumax_ms")
        steps.append(
            Step(
                group=str(row["model"]),
                parts=gpu_parts(model, layout, device),
                seconds=row["step_ms"] / 1e3,
                flop=0.0,
                labels={"model": str(row["model"]), "layout": shape},
                beside={"SimuMax": float("nan") if simumax is None else simumax / 1e3},
            )
        )
    return steps, list(dict.fromkeys(notes))


# Pods of TPUs: AI-Hypercomputer/maxtext

_POD_COLUMNS = (
    "generation", "model", "slices", "chips_per_slice", "chips", "tflop_per_s_per_chip", "emb_dim", "heads", "kv_heads",
    "mlp_dim", "layers", "head_dim", "vocab", "seq", "sequences_per_device", "remat", "tensor_parallel",
)  # fmt: skip


def read_pods(path: Path) -> tuple[list[Step], list[str]]:
    """The steps of `tpu_pod_training`, whose throughput is TFLOP/s of a chip."""
    steps, notes = [], []
    for row in read_rows(path, _POD_COLUMNS):
        device = device_spec(f"TPU {row['generation']}")
        if device is None:
            notes.append(f"TPU {row['generation']!r} is not known, left out")
            continue
        model = Transformer(
            row["layers"], row["emb_dim"], row["heads"], row["head_dim"], row["kv_heads"], row["mlp_dim"], row["vocab"],
            row["seq"],
        )  # fmt: skip
        flop = counted_flop(model, row["sequences_per_device"] * row["seq"])
        remat = str(row["remat"])
        steps.append(
            Step(
                group=f"{row['generation']} {row['model']}",
                parts=tpu_parts(
                    model,
                    device,
                    chips=row["chips"],
                    slices=row["slices"],
                    tensor=row["tensor_parallel"],
                    sequences_per_chip=row["sequences_per_device"],
                    remat=remat if remat in ("full", "none") else "minimal",
                ),
                seconds=flop / (row["tflop_per_s_per_chip"] * 1e12),
                flop=flop,
                labels={"generation": str(row["generation"]), "model": str(row["model"])},
                beside={},
            )
        )
    return steps, list(dict.fromkeys(notes))


# Matrix products on one TPU, timed from the host

_PRODUCT_COLUMNS = ("generation", "dtype", "m", "n", "k", "time_us")


def read_products(path: Path) -> tuple[list[Step], list[str]]:
    """The products of `tpu_gemm`."""
    steps, notes = [], []
    for row in read_rows(path, _PRODUCT_COLUMNS):
        device = device_spec(f"TPU {row['generation']}")
        if device is None or row["dtype"] not in ELEMENT_BYTES:
            notes.append(f"{row['dtype']} on TPU {row['generation']!r} is not known, left out")
            continue
        steps.append(
            Step(
                group=f"{row['n']} × {row['k']}",
                parts=product_parts(row["m"], row["n"], row["k"], row["dtype"], device),
                seconds=row["time_us"] / 1e6,
                flop=0.0,
                labels={"type": row["dtype"], "weights": f"{row['n']} × {row['k']}"},
                beside={},
            )
        )
    return steps, list(dict.fromkeys(notes))


STEP_FILES = (
    StepFile("tpu_gemm.parquet", "products on one TPU v6e", PRODUCT_PARTS, read_products),
    StepFile("tpu_pod_training.parquet", "MaxText on TPU pods", TPU_PARTS, read_pods),
    StepFile("b200_training_steps.parquet", "Megatron on 8 B200", GPU_PARTS, read_b200),
    StepFile("llm_iteration_times_single.parquet", "Megatron-DeepSpeed on 8 A100", GPU_PARTS, read_iterations),
    StepFile("llm_iteration_times_multi.parquet", "Megatron-DeepSpeed on nodes of A100", GPU_PARTS, read_iterations),
)
