"""The trained network as a method: for the CPU whose corpus it learned from."""

from collections.abc import Mapping
from typing import Any

from phasepoint.core.errors import ModelError
from phasepoint.learn.hlo_graph.graphs import FEATURISER_VERSION
from phasepoint.learn.kernels.model import KIND, KernelModel
from phasepoint.learn.models.model_file import Model, builtin_models, read_model
from phasepoint.learn.predict.target import Target
from phasepoint.learn.predict.types import Asked, Start, Times

BUILTIN = "kernels-cpu"

SHARED = 0.3
"""Correlation of the network's errors within a program. An assumption, not fitted."""

_MISSING = "no trained model of CPU kernels came with this package: times are of this machine's measured peaks alone"


def network_model(target: Target, model: Model | None) -> Model | None:
    """The model that answers for a device: the user's, or for a CPU that of the package; None where there is none.

    Raises:
        ModelError: it is of another featuriser version, or of another device.
    """
    if model is None and target.kind == "cpu" and BUILTIN in builtin_models():
        model = read_model(f"builtin:{BUILTIN}", kind=KIND)
    if model is None or model.kind != KIND:
        return None
    check_featuriser(model)
    device = model.card.get("device")
    name = device.get("name") if isinstance(device, Mapping) else device
    if target.kind != "cpu" and target.name != name:
        raise ModelError(
            f"model {model.name!r} was trained on {name!r} and knows no other device, so it cannot predict for "
            f"{target.name!r}; give --device cpu, or leave --model out"
        )
    return model


def start_network(target: Target, model: Model | None) -> Start:
    """The network answers for the device of its corpus.

    Raises:
        ModelError: as `network_model`.
    """
    found = network_model(target, model)
    if found is None:
        return Start(None, notes=(_MISSING,) if target.kind == "cpu" else ())
    network = KernelModel.from_model(found)
    overhead = found.card.get("overhead", {})

    def answer(asked: Asked) -> Times:
        said = network.predict(asked.graphs)
        return Times(said.time_ps, said.low_ps, said.high_ps, said.distance)

    return Start(
        answer,
        notes=_notes(network.device),
        shared=SHARED,
        basis=f"learned from kernels measured on {_name(network.device)}, {found.card.get('date', 'date unknown')}",
        device=_name(network.device),
        launch_ps=float(overhead.get("launch_ps", 0.0)),
        program_ps=float(overhead.get("program_ps", 0.0)),
    )


def _name(device: Mapping[str, Any]) -> str:
    return str(device.get("name", "a CPU"))


def _notes(device: Mapping[str, Any]) -> tuple[str, ...]:
    """That this machine's CPU is not the one that the model knows, where it is not."""
    from phasepoint.devices.cpu_peaks import cpu_identity

    here, known = cpu_identity().model, _name(device)
    if here and here.casefold() in known.casefold():
        return ()
    return (f"times are those of {known}; this machine's CPU is another: {here or 'its name is not known'}",)


def check_featuriser(model: Model) -> None:
    """Refuse a model that was trained on other features.

    Raises:
        ModelError: it was.
    """
    version = model.card.get("featuriser")
    if version != FEATURISER_VERSION:
        raise ModelError(
            f"model {model.name!r} was trained on features of version {version!r}, this release computes version "
            f"{FEATURISER_VERSION}; train it anew with `phasepoint learn train`"
        )
