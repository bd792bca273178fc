"""Whether the job uses `torch.compile`: Dynamo takes hooks of all modules for a part of the user's program.

What has such hooks goes without them in a job that compiles, from the first thing on that it hands to Dynamo.

Its own file: marks of layers and looks at inputs both ask.
"""

import sys
from collections.abc import Callable
from typing import Any

from phasepoint.recorder.seam.import_watch import when_imported
from phasepoint.recorder.seam.patch import patch_attribute
from phasepoint.recorder.seam.session import Remove, remove_all

_DYNAMO = "torch._dynamo.eval_frame"


def has_compiled() -> bool:
    """Whether something was handed to Dynamo in this process before anybody watched."""
    dynamo = sys.modules.get(_DYNAMO)
    if dynamo is None:
        return False
    backends = getattr(dynamo, "cached_backends", None)
    frames = getattr(sys.modules.get("torch._dynamo.convert_frame"), "FRAME_COUNTER", 0)
    return backends is None or bool(frames) or any(callable(backend) for backend in backends.values())


def before_compiling(*calls: Callable[[], object]) -> Remove:
    """Have `calls` made before the job compiles anything, until the returned function is called; none may raise."""
    removes: list[Remove] = []

    def wrap(original: Any) -> Any:
        def init_theirs(context: Any, *args: Any, **kwargs: Any) -> Any:
            for call in calls:
                call()
            return original(context, *args, **kwargs)

        return init_theirs

    def watch() -> None:
        context = getattr(sys.modules[_DYNAMO], "OptimizeContext", None)
        if context is not None:
            removes.append(patch_attribute(context, "__init__", wrap))

    removes.append(when_imported(_DYNAMO, watch))
    return remove_all(removes)
