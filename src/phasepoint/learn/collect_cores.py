"""One core for each measuring process of a machine, whoever started it."""

import errno
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_WAIT_S = 0.2


@contextmanager
def claim_core(cores: Sequence[int]) -> Iterator[int | None]:
    """A core of those given that no other measuring process of this machine has; waits until there is one.

    A socket of an abstract name stands for the core: it is gone with the process, however that ends.

    Args:
        cores: to choose from; none: the processes need no core of their own.
    """
    if not cores or not sys.platform.startswith("linux"):
        yield None
        return
    while True:
        for core in cores:
            claim = _claim(core)
            if claim is not None:
                with claim:
                    yield core
                return
        time.sleep(_WAIT_S)


def usable_cores() -> tuple[int, ...]:
    """Cores that this process may use, the last one first: the first serves more interrupts."""
    if not hasattr(os, "sched_getaffinity"):
        return ()
    return tuple(sorted(os.sched_getaffinity(0), reverse=True))


def _claim(core: int) -> socket.socket | None:
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0phasepoint-core-{core}")
    except OSError as error:
        claim.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return claim
