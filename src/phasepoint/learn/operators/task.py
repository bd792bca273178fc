"""Operators on devices never seen: time is the physical bound over a learned utilisation, which is at most 1."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from phasepoint.core.arrays import Floats
from phasepoint.core.errors import ModelError
from phasepoint.core.units import PS_PER_S
from phasepoint.learn.models.model_file import Progress, StoredModel, read_model
from phasepoint.learn.operators.features import Features, features_of_work, traits_of_device
from phasepoint.learn.operators.fit import OTHER_LIBRARY, device_distance, shape_distance, shape_sizes, widened
from phasepoint.learn.operators.training import device_log_time, join_floor
from phasepoint.learn.operators.work import (
    CLASSES,
    Operator,
    OperatorTimes,
    OperatorWork,
    operator_class,
    read_operator_times,
    work_of_operators,
)
from phasepoint.learn.tasks import Evaluation, EvaluationRow, error_rows

if TYPE_CHECKING:
    from phasepoint.devices import DeviceSpec

__all__ = ["Operator", "OperatorModel", "OperatorPrediction", "evaluate", "operator_class", "train"]

KIND, BUILTIN = "operators", "builtin:gpu-ops"
LAUNCH_S = 2e-6
"""What starting a kernel takes of a device's time where no framework dispatches it. Assumed: profiles of
NVIDIA GPUs show 1.5 to 3 µs for kernels that do nothing."""
_NETWORK = ("w1", "b1", "w2", "b2", "w3", "b3", "memory", "panel", "rows", "large", "energy", "lag", "start")


@dataclass(frozen=True)
class OperatorPrediction:
    """What the model says of n operators on one device.

    Attributes:
        time_ps: of one execution, [n].
        low_ps: lower end of the 90 % interval, never below the bound, [n].
        high_ps: its upper end, [n].
        distance: 0 = like the training data, up to 1 = as far as a left-out device was from the others, above outside.
        bound_ps: flop at the peak or compulsory bytes at the bandwidth, whichever takes longer, [n].
    """

    time_ps: Floats
    low_ps: Floats
    high_ps: Floats
    distance: Floats
    bound_ps: Floats


@dataclass(frozen=True)
class OperatorModel:
    """A stored model, ready to answer. NumPy only.

    Attributes:
        arrays: of the model, named CLASS/NAME.
        ops: operators of each class, in the order of its floors.
        scale: distance of the farthest left-out device from the others.
    """

    arrays: Mapping[str, Any]
    ops: Mapping[str, tuple[str, ...]]
    scale: float

    @classmethod
    def from_model(cls, model: StoredModel) -> "OperatorModel":
        """From a model of kind `operators`.

        Raises:
            ModelError: it is of another kind, or arrays are missing.
        """
        if model.kind != KIND:
            raise ModelError(f"{model.name} is a model of kind {model.kind!r}, not {KIND!r}")
        ops = {str(kind): tuple(map(str, names)) for kind, names in dict(model.card.get("ops", {})).items()}
        needed = {f"{kind}/{name}" for kind in ops for name in (*_NETWORK, "floor", "quantiles", "sizes")} | {"devices"}
        missing = sorted(needed - set(model.arrays))
        if missing or not ops:
            raise ModelError(
                f"{model.name} is damaged: {', '.join(missing[:3]) or 'its operators'} missing; train it anew"
            )
        arrays = {
            name: np.asarray(value, np.float64) if value.dtype.kind == "f" else value
            for name, value in model.arrays.items()
        }
        return cls(arrays, ops, float(model.card.get("device_scale", 1.0)))

    def predict(
        self, operators: Sequence[Operator], device: "DeviceSpec", *, dispatch: bool = True
    ) -> OperatorPrediction:
        """Times of operators on a device.

        Args:
            operators: any mixture, in the order of the answer.
            device: any whose specification has a chip.
            dispatch: with what an eager framework needs to start an operator, as in the training data; False: of a
                compiled program, where only the kernel's own start counts. Loops given by their traffic (`fusion`,
                `reduce`) never carry it.

        Raises:
            ModelError: an operator, a dimension or an element type is not known, or the device has no chip.
        """
        answer = np.zeros((5, len(operators)))
        groups: dict[tuple[str, str, bool], list[int]] = {}
        for place, operator in enumerate(operators):
            carried = dispatch and operator.op not in ("fusion", "reduce")
            groups.setdefault((operator_class(operator.op), operator.dtype, carried), []).append(place)
        for (kind, dtype, carried), places in groups.items():
            asked = [operators[place] for place in places]
            floors = self._floors(kind, [operator.op for operator in asked], carried)
            answer[:, places] = self._answer(kind, (work_of_operators(asked), floors), device, dtype)
        return OperatorPrediction(*(row for row in answer))

    def predict_work(self, op: str, work: OperatorWork, device: "DeviceSpec") -> OperatorPrediction:
        """As `predict`, of many executions of one operator in f32."""
        kind = operator_class(op)
        floors = self._floors(kind, [op], True)
        return OperatorPrediction(*self._answer(kind, (work, floors), device, "f32"))

    def _floors(self, kind: str, ops: Sequence[str], dispatch: bool) -> Floats:
        """Logarithm of seconds, shape [members, n] or [members, 1]."""
        if kind not in self.ops:
            raise ModelError(f"this model has seen no {kind} operators; it knows {', '.join(self.ops)}")
        if not dispatch:
            return np.full((1, len(ops)), np.log(LAUNCH_S))
        known = np.asarray(self.arrays[f"{kind}/floor"])
        usual = np.median(known, axis=1)
        columns = [known[:, self.ops[kind].index(op)] if op in self.ops[kind] else usual for op in ops]
        return np.stack(columns, axis=1)

    def _answer(self, kind: str, asked: tuple[OperatorWork, Floats], spec: "DeviceSpec", dtype: str) -> Floats:
        work, floors = asked
        device = traits_of_device(spec, dtype)
        features = features_of_work(kind, work, device)
        log_time, share = self._log_time(kind, features, floors)
        distance = shape_distance(shape_sizes(work), self.arrays[f"{kind}/sizes"])
        distance = np.maximum(distance, device_distance(device, self.arrays["devices"]) / self.scale)
        if device.vendor != "NVIDIA" or dtype != "f32":
            distance = distance + OTHER_LIBRARY
        low, high = widened(self.arrays[f"{kind}/quantiles"], share, distance)
        bound = features.bound_s
        time = np.maximum(np.exp(log_time), bound)
        least, most = np.maximum(np.exp(log_time + low), bound), np.exp(np.maximum(log_time + high, np.log(time)))
        return np.stack([time * PS_PER_S, least * PS_PER_S, most * PS_PER_S, distance, bound * PS_PER_S])

    def _log_time(self, kind: str, features: Features, floors: Floats) -> tuple[Floats, Floats]:
        """Mean over members, and by how much the device's own time exceeds dispatch (logarithms)."""
        inputs = (features.shape.astype(np.float64), features.terms.astype(np.float64))
        weights = {name: np.asarray(self.arrays[f"{kind}/{name}"]) for name in _NETWORK}
        members = len(weights["start"])
        joined, own = np.zeros(len(inputs[0])), np.zeros(len(inputs[0]))
        for member in range(members):
            of = device_log_time(kind, {name: value[member] for name, value in weights.items()}, inputs, np)
            floor = floors[min(member, len(floors) - 1)]
            start = np.minimum(weights["start"][member], floor)
            joined += join_floor(of, start, floor, np) / members
            own += (np.logaddexp(of, start) - floor) / members
        return joined, own


def train(folder: str | Path, *, seed: int = 0, progress: Progress | None = None) -> StoredModel:
    """Train a model of operators on a folder of measurements.

    Args:
        folder: one parquet file per operator: device, op, latency_ms, dimensions.
        seed: same seed, same arrays.
        progress: told of members trained and members in all.

    Raises:
        ModelError: the folder cannot be used.
        MissingExtraError: JAX or optax is not installed.
    """
    from phasepoint.learn.operators.fit import fit_operators

    return fit_operators(folder, seed=seed, progress=progress)


def evaluate(
    model: StoredModel | None, folder: str | Path, *, seed: int = 0, progress: Progress | None = None
) -> Evaluation:
    """Evaluate a model on a folder of measurements of any devices that `devices/specs.toml` names.

    Args:
        model: None is the one that came with the package.
        folder: as for `train`; operators may be missing.
        seed: not used: nothing is drawn.
        progress: told of files' parts predicted and parts in all.

    Raises:
        ModelError: the folder or the model cannot be used.
    """
    del seed
    chosen = read_model(BUILTIN, kind=KIND) if model is None else model
    trained = OperatorModel.from_model(chosen)
    times, notes = read_operator_times(folder)
    left = sorted({part.kind for part in times} - set(trained.ops))
    known = [part for part in times if part.kind in trained.ops]
    if not known:
        raise ModelError(f"{folder}: the model has seen none of its classes ({', '.join(left)})")
    predicted = []
    for done, part in enumerate(known, start=1):
        predicted.append(trained.predict_work(part.op, part.work, part.spec))
        if progress is not None:
            progress(done, len(known))
    notes = (*notes, *(f"the model has seen no {kind} operators; left out" for kind in left))
    return Evaluation(chosen.name, "gpu_ops", _rows(known, predicted), (*notes, *_remarks(known, predicted, chosen)))


def _rows(times: Sequence[OperatorTimes], predicted: Sequence[OperatorPrediction]) -> tuple[EvaluationRow, ...]:
    rows: list[EvaluationRow] = []
    kinds = [kind for kind in CLASSES if any(part.kind == kind for part in times)]
    names = sorted({part.device for part in times})
    groups = [(kind, None) for kind in kinds] + [(kind, name) for kind in kinds for name in names]
    for kind, name in groups:
        pairs = [
            (guess.time_ps / PS_PER_S, part.time_s)
            for part, guess in zip(times, predicted, strict=True)
            if part.kind == kind and name in (None, part.device)
        ]
        if pairs:
            guess, measured = (np.concatenate(side) for side in zip(*pairs, strict=True))
            group = kind if name is None else f"{kind} / {name}"
            rows.extend(error_rows([group] * len(guess), guess, measured))
    return tuple(rows)


def _remarks(
    times: Sequence[OperatorTimes], predicted: Sequence[OperatorPrediction], model: StoredModel
) -> tuple[str, ...]:
    seen = set(model.card.get("devices", ()))
    trained_on = sorted({part.device for part in times if part.spec.name in seen})
    below = sum(
        int((part.time_s * PS_PER_S < guess.bound_ps).sum()) for part, guess in zip(times, predicted, strict=True)
    )
    inside = np.concatenate(
        [
            (guess.low_ps <= part.time_s * PS_PER_S) & (part.time_s * PS_PER_S <= guess.high_ps)
            for part, guess in zip(times, predicted, strict=True)
        ]
    )
    remarks = [f"{inside.mean():.1%} of {len(inside):,} measurements lie in the 90 % interval"]
    if trained_on:
        remarks.append(f"the model was trained on {', '.join(trained_on)}: errors there say nothing of new devices")
    if below:
        remarks.append(f"{below:,} measurements lie below the physical bound")
    return tuple(remarks)
