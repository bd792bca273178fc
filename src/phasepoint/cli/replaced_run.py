"""A run that is made in the place of another one, which stays until the new one is there."""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phasepoint.core.errors import OutputExistsError, StoreError


@contextmanager
def replaced_run(out: str, *, force: bool) -> Iterator[None]:
    """Make room for a new run, and put what was there back where the new one fails.

    Args:
        out: path or URL of the run to be made.
        force: whether a run that is there may go; anything else is never touched.

    Raises:
        OutputExistsError: a run is there and `force` is not given, or something that is no run.
        StoreError: it cannot be moved, or lies where folders cannot be moved (`s3://…`).
    """
    from phasepoint.store.staging import is_vacant

    if is_vacant(out):
        yield
        return
    place = Path(out.removeprefix("file://"))
    if "://" in str(out) and not out.startswith("file://"):
        raise OutputExistsError(f"{out} is there already; choose another place with --out, or remove it")
    if not (place / "run.json").is_file():
        raise OutputExistsError(f"{out}: exists and is no run; choose another place with --out")
    if not force:
        raise OutputExistsError(
            f"{out}: a run is there already; give --force to replace it, or --out for another place"
        )
    aside = place.absolute().with_name(f".{place.absolute().name}.{secrets.token_hex(4)}.replaced")
    try:
        place.rename(aside)
    except OSError as error:
        raise StoreError(f"{out}: cannot be replaced: {error.strerror}; choose another place with --out") from error
    try:
        yield
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        aside.rename(place)
        raise
    shutil.rmtree(aside)
