"""The model of operators as a method: for every GPU of `devices/specs.toml`, measured or not."""

from collections.abc import Mapping, Sequence

import numpy as np

from phasepoint.core.errors import ModelError
from phasepoint.devices.specs import DeviceSpec
from phasepoint.learn.model_file import Model, builtin_models, read_model
from phasepoint.learn.operators import KIND, Operator, OperatorModel
from phasepoint.learn.predict_operators import OperatorForm, operator_of_kernel
from phasepoint.learn.predict_target import Target
from phasepoint.learn.predict_types import Asked, Start, Times

BUILTIN = "gpu-ops"

SHARED = 0.5
"""Correlation of the errors within a program: a device that was never measured is misjudged as a whole. Assumed."""

_PRODUCTS = ("bmm", "linear", "conv")
_ROUNDED = "tf32"
_ROUNDED_NOTE = "products of f32 are taken to run in tf32, which JAX lets this device do unless told otherwise"

_MISSING = "no trained model of GPU operators came with this package"
_BASIS = "operators measured on other GPUs in an eager framework, whose own time to start them is taken out"


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
    return _started(OperatorModel.from_model(model), target.spec)


def _started(trained: OperatorModel, spec: DeviceSpec) -> Start:
    """A method that asks a model for kernels that are operators; others it leaves open."""

    def answer(asked: Asked) -> Times:
        forms = [operator_of_kernel(*pair) for pair in zip(asked.kernels, asked.graphs, strict=True)]
        found = np.full((4, len(forms)), np.nan)
        notes: dict[int, tuple[str, ...]] = {}
        for (op, dtype), rows in _groups(forms, spec).items():
            these = [Operator(op, dict(form.dims), dtype) for form in map(forms.__getitem__, rows) if form]
            try:
                said = trained.predict(these, spec, dispatch=False)
            except ModelError as error:  # no peak of this type, no such operator: the next method answers
                notes |= dict.fromkeys(rows, (f"not predicted as an operator: {error}",))
                continue
            if dtype == _ROUNDED:
                notes |= dict.fromkeys(rows, (_ROUNDED_NOTE,))
            found[:, rows] = said.time_ps, said.low_ps, said.high_ps, said.distance
        return Times(found[0], found[1], found[2], found[3], notes)

    return Start(answer, shared=SHARED, basis=_BASIS)


def _groups(forms: Sequence[OperatorForm | None], spec: DeviceSpec) -> Mapping[tuple[str, str], list[int]]:
    """Places of the forms by operator and element type: what a model knows or does not know as a whole."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, form in enumerate(forms):
        if form is not None:
            groups.setdefault((form.op, _type_on(form, spec)), []).append(place)
    return groups


def _type_on(form: OperatorForm, spec: DeviceSpec) -> str:
    """The element type in which a device computes: NVIDIA's libraries round factors of f32 where they may."""
    rounds = spec.vendor == "NVIDIA" and _ROUNDED in spec.flop_per_s and form.op in _PRODUCTS
    return _ROUNDED if rounds and form.dtype == "f32" else form.dtype
