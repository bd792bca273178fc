"""The built script and style are those of the sources in web/."""

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
BUILT = ROOT / "src" / "phasepoint" / "report"
FILES = ("page.js", "page.css")

pytestmark = pytest.mark.skipif(not WEB.is_dir(), reason="the sources of the page are not in this checkout")


def _sources():
    names = ["build.mjs", "package.json", "tsconfig.json", *(f"src/{path.name}" for path in (WEB / "src").iterdir())]
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(f"{name}\0".encode() + (WEB / name).read_bytes() + b"\0")
    return digest.hexdigest()


@pytest.mark.parametrize("name", FILES)
def test_a_built_file_states_what_it_was_built_from(name):
    head = (BUILT / name).read_text(encoding="utf-8").partition("*/")[0]
    assert f"sources sha256:{_sources()}\n" in head, "web/ was changed: run `make web`"
    assert f"lock sha256:{hashlib.sha256((WEB / 'package-lock.json').read_bytes()).hexdigest()}\n" in head


@pytest.mark.parametrize("name", FILES)
def test_a_built_file_names_the_library_and_its_licence(name):
    head = (BUILT / name).read_text(encoding="utf-8").partition("*/")[0]
    version = json.loads((WEB / "package.json").read_text())["dependencies"]["uplot"]
    assert f"uPlot {version}, MIT licence" in head
    assert "Permission is hereby granted" in head
    assert version in (WEB / "README.md").read_text()


def test_versions_are_exact_and_no_address_is_locked():
    package = json.loads((WEB / "package.json").read_text())
    versions = {**package["dependencies"], **package["devDependencies"]}
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions.values())
    lock = json.loads((WEB / "package-lock.json").read_text())["packages"]
    assert {name: lock[f"node_modules/{name}"]["version"] for name in versions} == versions
    assert all("integrity" in entry and "resolved" not in entry for name, entry in lock.items() if name)


def test_the_page_needs_nothing_that_ends_its_element():
    script = (BUILT / "page.js").read_text(encoding="utf-8")
    assert "</script" not in script.lower()
    assert "<!--" not in script
    assert "</style" not in (BUILT / "page.css").read_text(encoding="utf-8").lower()


def test_building_again_gives_the_same_bytes(tmp_path):
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    web = tmp_path / "web"
    shutil.copytree(WEB, web, ignore=shutil.ignore_patterns("node_modules"))
    if (WEB / "node_modules").is_dir():
        (web / "node_modules").symlink_to(WEB / "node_modules")
    else:
        install = ["npm", "ci", "--no-audit", "--no-fund", "--fetch-retries", "0"]
        done = subprocess.run(install, cwd=web, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode:
            pytest.skip("npm cannot install here")
    subprocess.run(["node", "build.mjs", str(tmp_path / "out")], cwd=web, check=True, timeout=120)
    for name in FILES:
        assert (tmp_path / "out" / name).read_bytes() == (BUILT / name).read_bytes(), "run `make web`"
