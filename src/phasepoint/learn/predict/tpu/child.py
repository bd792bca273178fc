"""The process that compiles for TPUs: `python -m phasepoint.learn.predict.tpu.child FOLDER`, a request on stdin.

A process of its own, because the compiler is a library that takes the whole of it: it reads its settings from the
environment when it is loaded, ends the process where it fails, and can take minutes and gigabytes.
"""

import hashlib
import json
import secrets
import sys
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from phasepoint.core.errors import ModelError, PhasepointError
from phasepoint.learn.predict.hlo import lower_function
from phasepoint.learn.predict.programs import python_function


def compile_request(request: Mapping[str, Any], cache: Path) -> dict[str, Any]:
    """Compile, or find what was compiled before.

    Args:
        request: `file`, `name`, `args`, `args_from`, and of the slice `topology`, `config`.
        cache: folder of what was compiled.

    Returns:
        `key` of the compiled program in the folder, and `compile_s`, 0 where it was there.
    """
    from jax.experimental import topologies

    topology = topologies.get_topology_desc(
        platform="tpu",
        topology_name=request["topology"],
        chips_per_host_bounds=tuple(request["host"]),
        **({"chip_config_name": "megacore"} if request["config"] == "megacore" else {}),
    )
    where = Path(request["file"])
    with python_function(where, request["name"], args=request["args"], args_from=request["args_from"]) as (
        function,
        values,
    ):
        places = _on_device(values, topology.devices[0])
        lowered = lower_function(function, places, f"{where.name}:{request['name']}")
    text = lowered.as_text()
    key = hashlib.sha256("\0".join([text, request["topology"], request["config"], *_versions()]).encode()).hexdigest()
    facts = cache / f"{key}.json"
    if facts.is_file() and facts.with_suffix(".pb").is_file():
        return {"key": key, "compile_s": 0.0}
    began = time.perf_counter()
    try:
        compiled = lowered.compile()
    except Exception as error:
        reason = " ".join(str(error).split())[:600]
        raise ModelError(f"the TPU's compiler refuses {where.name}:{request['name']}: {reason}") from error
    seconds = time.perf_counter() - began
    memory = compiled.memory_analysis()
    sizes = {name: int(getattr(memory, f"{name}_size_in_bytes")) for name in ("argument", "output", "alias", "temp")}
    _keep(facts.with_suffix(".pb"), compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto())
    _keep(facts, json.dumps({"memory": sizes, "versions": _versions(), "compile_s": seconds}).encode())
    return {"key": key, "compile_s": seconds}


def _on_device(values: Any, device: Any) -> Any:
    """Shapes and types of arguments that lie on a device."""
    import jax
    from jax.sharding import SingleDeviceSharding

    sharding = SingleDeviceSharding(device)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tuple(values))


def _versions() -> list[str]:
    found = []
    for name in ("jax", "jaxlib", "libtpu"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} ?")
    return found


def _keep(path: Path, data: bytes) -> None:
    """A file that is there when it is whole."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")  # another process may compile the same
    part.write_bytes(data)
    part.replace(path)


def main() -> None:
    """Compile what is asked for; the answer, or the error, goes into the file that the request names."""
    request = json.loads(sys.stdin.read())
    try:
        said = compile_request(request, Path(sys.argv[1]))
    except PhasepointError as error:
        said = {"error": type(error).__name__, "message": str(error)}
    Path(request["answer"]).write_text(json.dumps(said))


if __name__ == "__main__":
    main()
