"""The model of operators as a method: HLO kernels become operators with dimensions, for GPUs that nobody measured."""

from phasepoint.learn.model_file import Model, builtin_models, read_model
from phasepoint.learn.predict_methods import Start
from phasepoint.learn.predict_target import Target

BUILTIN = "gpu-ops"
KIND = "operators"


def start_operators(target: Target, model: Model | None) -> Start:
    """The model of operators answers for every GPU of `devices/specs.toml`."""
    if model is not None and model.kind != KIND:
        return Start(None)
    if target.kind != "gpu":
        return Start(None)
    if model is None:
        if BUILTIN not in builtin_models():
            return Start(None, notes=("no trained model of GPU operators came with this package",))
        model = read_model(f"builtin:{BUILTIN}", kind=KIND)
    return Start(None)
