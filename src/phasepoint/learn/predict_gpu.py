"""The model of operators as a method: for every GPU of `devices/specs.toml`, measured or not."""

from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from phasepoint.devices.specs import DeviceSpec
from phasepoint.learn.model_file import Model, builtin_models, read_model
from phasepoint.learn.predict_calibration import CALIBRATIONS, PS_PER_US
from phasepoint.learn.predict_methods import Asked, Start, Times
from phasepoint.learn.predict_operators import OperatorForm, operator_of_kernel
from phasepoint.learn.predict_target import Target

Floats = npt.NDArray[np.float64]

BUILTIN = "gpu-ops"
KIND = "operators"

SHARED = 0.5
"""Correlation of the errors within a program: a device that was never measured is misjudged as a whole. Assumed."""

_EMPTY = OperatorForm("mulu", {"B": 1, "H": 1}, "f32")
"""An operation of one element: what the framework takes to start anything."""

_MISSING = "no trained model of GPU operators came with this package"
_BASIS = (
    "operators measured on other GPUs, started by another framework: its launch is taken out of every time, and "
    f"{CALIBRATIONS['gpu'].launch_us[0]:g} µs for a kernel's own put in"
)


def start_operators(target: Target, model: Model | None) -> Start:
    """The model of operators answers for every GPU.

    Raises:
        ModelError: the user's model is damaged.
    """
    if target.kind != "gpu" or target.spec is None or (model is not None and model.kind != KIND):
        return Start(None)
    if model is None:
        if BUILTIN not in builtin_models():
            return Start(None, notes=(_MISSING,))
        model = read_model(f"builtin:{BUILTIN}", kind=KIND)
    operators = import_module("phasepoint.learn.operators")
    return _started(operators, operators.OperatorModel.from_model(model), target.spec)


def _started(operators: Any, trained: Any, spec: DeviceSpec) -> Start:
    """A method that asks a model for kernels that are operators; others it leaves open."""

    def ask(forms: list[OperatorForm]) -> Any:
        return trained.predict([operators.Operator(form.op, dict(form.dims), form.dtype) for form in forms], spec)

    launch_ps = float(ask([_EMPTY]).time_ps[0])

    def answer(asked: Asked) -> Times:
        forms = [operator_of_kernel(*pair) for pair in zip(asked.kernels, asked.graphs, strict=True)]
        rows = np.array([place for place, form in enumerate(forms) if form is not None], dtype=np.int64)
        found = np.full((4, len(forms)), np.nan)
        if len(rows):
            said = ask([form for form in forms if form is not None])
            found[:, rows] = _without_launch(said, launch_ps)
        return Times(found[0], found[1], found[2], found[3])

    return Start(answer, shared=SHARED, basis=_BASIS)


def _without_launch(said: Any, launch_ps: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Time, lower and upper end, distance. The upper end keeps the launch: a queue that runs empty shows it."""
    own, least, _ = (PS_PER_US * launch for launch in CALIBRATIONS["gpu"].launch_us)
    bound = np.asarray(said.bound_ps, np.float64)
    work = np.maximum(said.time_ps - launch_ps, bound)
    low = np.maximum(np.minimum(said.low_ps - launch_ps, work), bound)
    return work + own, low + least, np.maximum(said.high_ps, work + own), np.asarray(said.distance, np.float64)
