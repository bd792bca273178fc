"""The process that compiles for TPUs: `python -m phasepoint.learn.predict.tpu.child FOLDER`, a request on stdin.

A process of its own, because the compiler is a library that takes the whole of it: it reads its settings from the
environment when it is loaded, ends the process where it fails, and can take minutes and gigabytes.
"""

import hashlib
import json
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from phasepoint.core.errors import ModelError, PhasepointError
from phasepoint.learn.predict.hlo import errors_of_tracing, lower_function
from phasepoint.learn.predict.programs import python_function
from phasepoint.learn.predict.tpu.compile import keep_file, left_out
from phasepoint.learn.predict.tpu.spread import devices_of_slice, looped_over, spread_over


def compile_request(request: Mapping[str, Any], cache: Path) -> dict[str, Any]:
    """Compile, or find what was compiled before.

    Args:
        request: `file`, `name`, `args`, `args_from`, of the slice `topology`, `host`, `config`, and `spread`: None for
            the first of its devices, else for all of them `batch`, `data`, `batch_axis` and `without`.
        cache: folder of what was compiled.

    Returns:
        `key` of the compiled program in the folder, `compile_s`, 0 where it was there, the `batch` of a spread step and
        `notes` on it, and the files of the user that it came from, `sources`; of a refused program `error`,
        `message` and `sources`.
    """
    where = Path(request["file"])
    spread = request["spread"]
    devices = slice_devices(request) if spread is not None else slice_devices(request)[:1]
    with (
        left_out([] if spread is None else spread["without"]),
        devices_of_slice(devices),
        python_function(where, request["name"], args=request["args"], args_from=request["args_from"]) as (
            function,
            values,
        ),
    ):
        name = f"{where.name}:{request['name']}"
        with errors_of_tracing(name, values):
            places, batch = (
                (on_device(values, devices[0]), None)
                if spread is None
                else spread_over(
                    function,
                    values,
                    devices,
                    batch=spread["batch"],
                    data=spread["data"],
                    batch_axis=spread["batch_axis"],
                )
            )
            notes = looped_over(function, values, spread["data"]) if spread and not spread["batch_axis"] else []
        lowered = lower_function(function, places, name)
        sources = _sources(where)
    text = lowered.as_text()
    key = hashlib.sha256("\0".join([text, request["topology"], request["config"], *_versions()]).encode()).hexdigest()
    facts = cache / f"{key}.json"
    if facts.is_file() and facts.with_suffix(".pb").is_file():
        return {"key": key, "compile_s": 0.0, "batch": batch, "notes": notes, "sources": sources}
    began = time.perf_counter()
    try:
        compiled = lowered.compile()
    except Exception as error:  # noqa: BLE001 - whatever it says is the answer
        reason = " ".join(str(error).split())[:600]
        refused = f"the TPU's compiler refuses {name}: {reason}"
        return {"error": ModelError.__name__, "message": refused, "sources": sources}
    seconds = time.perf_counter() - began
    memory = compiled.memory_analysis()
    sizes = {name: int(getattr(memory, f"{name}_size_in_bytes")) for name in ("argument", "output", "alias", "temp")}
    keep_file(facts.with_suffix(".pb"), compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto())
    keep_file(facts, json.dumps({"memory": sizes, "versions": _versions(), "compile_s": seconds}).encode())
    return {"key": key, "compile_s": seconds, "batch": batch, "notes": notes, "sources": sources}


def slice_devices(request: Mapping[str, Any]) -> list[Any]:
    """The devices of the slice that a request names by `topology`, `host` and `config`."""
    from jax.experimental import topologies

    described = topologies.get_topology_desc(
        platform="tpu",
        topology_name=request["topology"],
        chips_per_host_bounds=tuple(request["host"]),
        **({"chip_config_name": "megacore"} if request["config"] == "megacore" else {}),
    )
    return list(described.devices)


def on_device(values: Any, device: Any) -> Any:
    """Shapes and types of arguments that lie on a device."""
    import jax
    from jax.sharding import SingleDeviceSharding

    sharding = SingleDeviceSharding(device)
    shapes = jax.eval_shape(lambda *them: them, *values)  # numbers become scalars
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), shapes)


def compiler_versions() -> dict[str, str]:
    """Of JAX and the compiler; `?` where it is no installed package."""
    found = {}
    for name in ("jax", "jaxlib", "libtpu"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "?"
    return found


def _versions() -> list[str]:
    return [" ".join(pair) for pair in compiler_versions().items()]


def _sources(where: Path) -> list[tuple[str, int, int]]:
    """What the function came from: files of the user's own, and folders of installed packages. Name, time and size.

    A folder's time changes where a package is installed into it or taken away.
    """
    packages = {Path(path) for path in map(sysconfig.get_path, ("purelib", "platlib"))}
    library = Path(sysconfig.get_path("stdlib"))
    found = {where, *packages}
    for module in list(sys.modules.values()):
        file = Path(getattr(module, "__file__", None) or library)
        if not any(file.is_relative_to(folder) for folder in (*packages, library)):
            found.add(file)
    stats = [(path, path.stat()) for path in sorted(found) if path.exists()]
    return [(str(path), stat.st_mtime_ns, stat.st_size) for path, stat in stats]


def end_with(parent: int) -> None:
    """End this process soon after the one that started it, whatever ended that: it would compile on for nobody."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Compile what is asked for; the answer, or the error, goes into the file that the request names."""
    request = json.loads(sys.stdin.read())
    end_with(request["parent"])
    try:
        said = compile_request(request, Path(sys.argv[1]))
    except PhasepointError as error:
        said = {"error": type(error).__name__, "message": str(error)}
    Path(request["answer"]).write_text(json.dumps(said))


if __name__ == "__main__":
    main()
