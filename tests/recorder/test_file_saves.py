"""In a replay, what Python itself writes, moves and deletes leaves the original's files as they are."""

# ruff: noqa: PTH105, PTH104, PTH107, PTH123 -- programs use these functions too

import os
import pickle
import shutil
import time

import numpy as np
import pytest

from phasepoint.recorder.resume.saves import is_originals, protect_files
from phasepoint.recorder.seam.redirection import Redirection, put_in_force


@pytest.fixture
def folder(tmp_path):
    """A folder of checkpoints that stood there before: `1.pt`, `2/state`, `latest`."""
    place = tmp_path / "ckpt"
    (place / "2").mkdir(parents=True)
    (place / "1.pt").write_bytes(b"one")
    (place / "2" / "state").write_bytes(b"two")
    (place / "latest").write_text("1")
    for one in [*place.rglob("*"), place]:
        os.utime(one, (1_000, 1_000))
    return place


@pytest.fixture
def told(folder, tmp_path):
    """The protection, in force; gives the places that were told."""
    places = []
    put_in_force(Redirection((str(folder),), str(tmp_path / "saves"), on_redirected=places.append))
    removes = protect_files()
    yield places
    for remove in reversed(removes):
        remove()
    put_in_force(None)


def content_of(folder):
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


ORIGINAL = {"1.pt": b"one", "2/state": b"two", "latest": b"1"}


def test_rotation_by_hand_deletes_nothing(folder, told):
    (folder / "1.pt").unlink()
    os.remove(folder / "latest")
    shutil.rmtree(folder / "2")
    shutil.rmtree(folder)
    assert content_of(folder) == ORIGINAL
    assert told == [str(folder / "1.pt"), str(folder / "latest"), str(folder / "2"), str(folder)]


def test_what_would_be_written_over_goes_elsewhere(folder, told, tmp_path):
    (folder / "latest").write_text("9")
    with open(folder / "1.pt", "wb") as file:
        pickle.dump({"step": 9}, file)
    with open(folder / "2" / "state", "a") as file:
        file.write(" and more")
    assert content_of(folder) == ORIGINAL
    saves = tmp_path / "saves" / str(folder).lstrip("/")
    assert (saves / "latest").read_text() == "9"
    assert pickle.loads((saves / "1.pt").read_bytes()) == {"step": 9}
    assert (saves / "2" / "state").read_text() == "two and more"


def test_written_beside_and_renamed(folder, told, tmp_path):
    np.save(folder / "new.npy", np.arange(3))
    os.replace(folder / "new.npy", folder / "1.pt")
    assert content_of(folder) == ORIGINAL
    assert np.load(tmp_path / "saves" / str(folder / "1.pt").lstrip("/")).tolist() == [0, 1, 2]


def test_what_is_moved_away_stays(folder, told, tmp_path):
    os.rename(folder / "1.pt", folder / "old.pt")
    assert content_of(folder) == ORIGINAL
    assert (tmp_path / "saves" / str(folder / "old.pt").lstrip("/")).read_bytes() == b"one"


def test_the_programs_own_files_are_its_own(folder, told, tmp_path):
    own = folder / "3.pt"
    own.write_bytes(b"three")
    assert content_of(folder) == ORIGINAL | {"3.pt": b"three"}
    own.unlink()
    other = tmp_path / "elsewhere.txt"
    other.write_text("a")
    os.utime(other, (1_000, 1_000))
    other.write_text("b")
    other.unlink()
    assert not own.exists()
    assert not other.exists()
    assert told == []


def test_reading_is_left_alone(folder, told):
    assert (folder / "1.pt").read_bytes() == b"one"
    with open(folder / "latest") as file:
        assert file.read() == "1"
    assert told == []


def test_errors_are_pythons(folder, told):
    with pytest.raises(FileNotFoundError):
        os.remove(folder / "none")
    with pytest.raises(FileNotFoundError):
        shutil.rmtree(folder / "none")


def test_without_a_replay_nothing_is_the_originals(folder):
    assert not is_originals(str(folder / "1.pt"), time.time_ns())


def test_the_hooks_come_out_again(folder):
    before = (os.remove, os.rename, shutil.rmtree, open)
    for remove in protect_files():
        remove()
    assert (os.remove, os.rename, shutil.rmtree, open) == before
