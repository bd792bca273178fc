"""Programs that destroy what lies in a folder, each by another means; `python destroyers.py NAME FOLDER` runs one.

A folder holds `a.bin` and `sub/b.bin` of 64 bytes each, and `latest`, a link to `a.bin`.
"""

import atexit
import ctypes
import io
import mmap
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable

PROGRAMS: dict[str, Callable[[pathlib.Path], object]] = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def shell(text):
    return lambda folder: subprocess.run(["sh", "-ec", text], cwd=folder, check=True)


def libc():
    return ctypes.CDLL(None, use_errno=True)


def called(result):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


SHELL = {
    "sh_rm_rf": 'rm -rf "$PWD"',
    "sh_rm_files": "rm -f a.bin sub/b.bin latest",
    "sh_truncate": "truncate -s 0 a.bin",
    "sh_write": "echo new > a.bin",
    "sh_append": "echo new >> sub/b.bin",
    "sh_move_folder": 'mv "$PWD" "$PWD-moved"',
    "sh_move_over": "mv sub/b.bin a.bin",
    "sh_dd": "dd if=/dev/zero of=a.bin bs=8 count=2 conv=notrunc status=none",
    "sh_cp": "cp sub/b.bin a.bin",
    "sh_ln_force": "ln -sf sub/b.bin latest && ln -f sub/b.bin a.bin",
    "sh_touch": "touch -d '2001-01-01' a.bin sub .",
    "sh_chmod": "chmod 000 a.bin && chmod 700 sub",
    "sh_sed": "sed -i s/./x/ a.bin",
    "sh_find_delete": "find . -type f -delete",
    "sh_tar_over": "tar cf ../t.tar sub/b.bin && tar xf ../t.tar --transform s,sub/b.bin,a.bin,",
    "sh_tee": "echo x | tee a.bin >/dev/null",
    "sh_background": "(sleep 0.1; rm -rf sub) & wait",
    "sh_install": "install -m 600 sub/b.bin a.bin",
    "sh_shred": "shred -u a.bin",
}
PROGRAMS |= {name: shell(text) for name, text in SHELL.items()}
if shutil.which("rsync"):
    PROGRAMS["sh_rsync_delete"] = shell('mkdir -p ../empty && rsync -a --delete ../empty/ "$PWD"/')


@program
def rmtree(folder):
    shutil.rmtree(folder)


@program
def rmtree_makedirs(folder):
    shutil.rmtree(folder)
    os.makedirs(folder / "sub")
    (folder / "sub" / "b.bin").write_bytes(b"again")


@program
def rename_folder(folder):
    os.rename(folder / "sub", folder / "sub-old")
    os.mkdir(folder / "sub")


@program
def replace_file(folder):
    (folder / "new").write_bytes(b"new")
    os.replace(folder / "new", folder / "a.bin")


@program
def remove_symlink(folder):
    os.remove(folder / "latest")
    os.symlink("sub/b.bin", folder / "latest")


@program
def write_through_link(folder):
    (folder / "latest").write_bytes(b"through")


@program
def open_truncate(folder):
    os.close(os.open(folder / "a.bin", os.O_WRONLY | os.O_TRUNC))


@program
def os_truncate(folder):
    os.truncate(folder / "a.bin", 3)


@program
def ftruncate(folder):
    with open(folder / "a.bin", "r+b") as file:
        file.truncate(0)


@program
def open_modes(folder):
    for mode in ("w", "a", "r+", "w+", "a+"):
        with open(folder / "a.bin", mode) as file:
            file.write("written")


@program
def io_open_code(folder):
    with io.FileIO(str(folder / "a.bin"), "w") as file:
        file.write(b"raw")


@program
def with_dir_fd(folder):
    descriptor = os.open(folder, os.O_RDONLY)
    os.unlink("a.bin", dir_fd=descriptor)
    os.rename("sub", "moved", src_dir_fd=descriptor, dst_dir_fd=descriptor)
    os.close(descriptor)


@program
def memory_map(folder):
    with open(folder / "a.bin", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:4] = b"mmap"
        mapped.flush()


@program
def pathlib_all(folder):
    (folder / "a.bin").rename(folder / "c.bin")
    (folder / "sub" / "b.bin").unlink()
    (folder / "sub").rmdir()
    (folder / "latest").unlink()


@program
def libc_unlink(folder):
    called(libc().unlink(os.fsencode(folder / "a.bin")))


@program
def libc_rename(folder):
    called(libc().rename(os.fsencode(folder / "a.bin"), os.fsencode(folder / "sub" / "b.bin")))


@program
def libc_fopen(folder):
    c = libc()
    c.fopen.restype = ctypes.c_void_p
    file = c.fopen(os.fsencode(folder / "a.bin"), b"w")
    if not file:
        raise OSError(ctypes.get_errno(), "fopen")
    c.fputs(b"from C", ctypes.c_void_p(file))
    c.fclose(ctypes.c_void_p(file))


@program
def copytree_over(folder):
    with tempfile.TemporaryDirectory() as other:
        (pathlib.Path(other) / "a.bin").write_bytes(b"other")
        shutil.copytree(other, folder, dirs_exist_ok=True)


@program
def copy_functions(folder):
    for copy in (shutil.copy, shutil.copy2, shutil.copyfile):
        copy(folder / "sub" / "b.bin", folder / "a.bin")


@program
def utime_and_chmod(folder):
    os.utime(folder / "a.bin", (1, 1))
    os.utime(folder, (1, 1))
    os.chmod(folder / "sub", 0o755)


@program
def hard_link_write(folder):
    os.link(folder / "a.bin", folder / "hard")
    (folder / "hard").write_bytes(b"by another name")


@program
def symlink_folder(folder):
    os.symlink(folder / "sub", folder / "alias")
    shutil.rmtree(folder / "sub")
    (folder / "alias").unlink()


@program
def thread(folder):
    worker = threading.Thread(target=shutil.rmtree, args=(folder / "sub",))
    worker.start()
    worker.join()


@program
def at_exit(folder):
    atexit.register(os.remove, folder / "a.bin")


@program
def signal_handler(folder):
    signal.signal(signal.SIGUSR1, lambda number, frame: os.remove(folder / "a.bin"))
    os.kill(os.getpid(), signal.SIGUSR1)


@program
def child_process(folder):
    subprocess.run([sys.executable, "-c", "import os, sys; os.remove(sys.argv[1])", folder / "a.bin"], check=True)


@program
def forked(folder):
    if os.fork() == 0:
        os.remove(folder / "a.bin")
        os._exit(0)
    if os.wait()[1]:
        raise OSError("the child failed")


@program
def sendfile(folder):
    source, target = os.open(folder / "sub" / "b.bin", os.O_RDONLY), os.open(folder / "a.bin", os.O_WRONLY)
    os.sendfile(target, source, 0, 8)


@program
def pwrite(folder):
    os.pwrite(os.open(folder / "a.bin", os.O_WRONLY), b"xx", 4)


@program
def numpy_memmap(folder):
    import numpy as np

    mapped = np.memmap(folder / "a.bin", mode="r+", dtype=np.uint8)
    mapped[:] = 7
    mapped.flush()


@program
def numpy_save(folder):
    import numpy as np

    with open(folder / "a.bin", "wb") as file:
        np.save(file, np.zeros(4))


@program
def pyarrow_writer(folder):
    import pyarrow as pa

    with pa.OSFile(str(folder / "a.bin"), "wb") as file:
        file.write(b"from C++")


@program
def tensorstore_writer(folder):
    import tensorstore as ts

    store = ts.KvStore.open(f"file://{folder}/").result()
    store.write("a.bin", b"from C++").result()
    store.delete_range(ts.KvStore.KeyRange("sub", "suc")).result()


@program
def sqlite(folder):
    import sqlite3

    with sqlite3.connect(folder / "new.db") as database:
        database.execute("create table t (x)")
    os.replace(folder / "new.db", folder / "a.bin")


def make(folder):
    """A folder to destroy."""
    (folder / "sub").mkdir(parents=True)
    (folder / "a.bin").write_bytes(b"a" * 64)
    (folder / "sub" / "b.bin").write_bytes(b"b" * 64)
    (folder / "latest").symlink_to("a.bin")


if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](pathlib.Path(sys.argv[2]))
