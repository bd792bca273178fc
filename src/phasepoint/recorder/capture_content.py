"""What a profiler captured: bytes in memory, or a file of its own that goes once it was written to the run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class FileCapture:
    """A capture that the profiler gives as a file only. Called, it gives the bytes, as every pending capture does.

    Args:
        save: writes the file, and says where it is.
    """

    def __init__(self, save: Callable[[], Path]) -> None:
        self.save = save

    def __call__(self) -> bytes:
        """All bytes at once; the file is removed."""
        path = self.save()
        try:
            return path.read_bytes()
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def capture_content(capture: Callable[[], bytes]) -> Iterator[tuple[bytes | Path, int]]:
    """Render a capture: its content, or the file that holds it until the end of the context; and its size in bytes."""
    if not isinstance(capture, FileCapture):
        content = capture()
        yield content, len(content)
        return
    path = capture.save()
    try:
        yield path, path.stat().st_size
    finally:
        path.unlink(missing_ok=True)
