"""Python runs this at the start of every process under `phasepoint record`, whose PYTHONPATH begins with this folder.

It begins to look for training steps and then makes room for the `sitecustomize` that would have run instead of it.
"""

import os
import sys


def _start() -> None:
    try:
        from phasepoint.recorder.autosteps import start_from_environ
    except ImportError as error:
        _tell_at_exit(str(error))
        return
    start_from_environ()


def _tell_at_exit(reason: str) -> None:
    """Say why nothing was recorded, if this turns out to be a process that trains."""
    import atexit

    def tell() -> None:
        if "jax" in sys.modules or "torch" in sys.modules:
            sys.stderr.write(
                f"phasepoint: not recorded: {reason} in {sys.executable}; install phasepoint into that environment\n"
            )

    atexit.register(tell)


def _run_the_next_one() -> None:
    import importlib

    ours = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes 10 ms to import at each start
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != _HERE]  # noqa: PTH100
_start()
_run_the_next_one()
