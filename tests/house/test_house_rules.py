"""Each rule of the house, and each import contract, finds what is planted against it and says what to do."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import house_rules
import pytest

ROOT = Path(__file__).parents[2]
MANIFEST = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = MANIFEST["tool"]["importlinter"]["contracts"]

HEAD = '"""A module. Its own file: it is planted."""\n'
FUNCTION = "def _half(x):\n    return x / 2\n"
LONG = "".join(f"print({line})\n" for line in range(house_rules.LEAST_LINES))
SIXTEEN = [f"{letter}.py" for letter in "abcdefghijklmnop"]

BROKEN = {
    "sixteen names": ({f"room/{name}": "" for name in SIXTEEN}, "a folder shows at most 15 names", "room: 16 names"),
    "prefix": (
        {"room/step.py": "", "room/step_clock.py": "", "room/step_times.py": ""},
        "a folder shows at most 15 names",
        "room: 3 files begin with 'step'",
    ),
    "class name": (
        {"a.py": "class Work: ...\n", "b.py": "class Work: ...\n", "c.py": "class Works: ...\n"},
        "a class name has one meaning",
        "a.py:2: class Work is also at {folder}/b.py:2",
    ),
    "constant": ({"a.py": "LIMIT = 3 * 2**10\n"}, "a numeric constant has a reason", "a.py:2: LIMIT = 3 * 2**10"),
    "function": (
        {"a.py": f"{FUNCTION}print(_half(3))\n"},
        "a short private function is called twice",
        "a.py:2: _half has 1 lines and is called once",
    ),
    "small file": ({"a.py": '"""A module."""\n'}, "a file has 60 lines or an idea of its own", "a.py: 1 lines"),
    "late circle": (
        {
            "a.py": "def _late():\n    '''Late.'''\n    from house.b import two\n    return two\none = 1\n",
            "b.py": "import typing\nif typing.TYPE_CHECKING:\n    from house.c import three\ntwo = 2\n",
            "c.py": "from house import a\nthree = a.one\n",
        },
        "imports have no circle",
        ": house.a → house.b → house.c → house.a",
    ),
}

KEPT = {
    "fifteen names": {f"room/{name}": "" for name in SIXTEEN[2:]} | {"room/inner/a.py": ""},
    "sixteen floors": dict.fromkeys(SIXTEEN, ""),
    "pair of a prefix": {"room/step_clock.py": "", "room/step_times.py": ""},
    "reasons": {"a.py": "# measured\nA = 3\nB = 4  # a choice\nC = 5\n'''A choice.'''\nNAME = 'x'\nTABLE = {'x': 1}\n"},
    "threshold on its page": {"a.py": '"""Its own file: told from {LEAST:.0%} on."""\nLEAST = 0.02\n'},
    "reason on a rule's page": {"findings/rules/a.py": '"""From {LEAST:.0%} on: a choice."""\nLEAST = 0.02\n'},
    "formula": {"a.py": "def _half(x):\n    '''Half of it.'''\n    return x / 2\nprint(_half(3))\n"},
    "called twice": {"a.py": f"{FUNCTION}print(_half(3), _half(4))\n"},
    "handed over": {"a.py": f"{FUNCTION}print(map(_half, [3]))\n"},
    "five lines": {"a.py": "def _many():\n" + "    print()\n" * 5 + "_many()\n"},
    "long file": {"a.py": f'"""A module."""\n{LONG}'},
    "rule of its own": {"findings/rules/device/idle.py": '"""A rule."""\n'},
    "no circle": {"a.py": "from house.b import two\n", "b.py": "two = 2\n"},
}


def write_package(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if text.startswith('"""') else HEAD + text)


@pytest.mark.parametrize(("files", "title", "line"), BROKEN.values(), ids=BROKEN)
def test_what_breaks_a_rule_is_told_with_its_place_and_remedy(files, title, line, tmp_path, capsys):
    folder = tmp_path / "house"
    write_package(folder, files)
    code = house_rules.main(folder)
    (remedy,) = (rule.remedy for rule in house_rules.RULES if rule.title == title)
    place = str(folder) if line.startswith(":") else f"{folder}/"
    told = [f"{title}; {remedy}:", f"  {place}{line.format(folder=folder)}"]
    told.append(f"house rules: {len(files)} files, violations: 1")
    assert (code, capsys.readouterr().out.splitlines()) == (1, told)


def test_a_package_that_is_too_large(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(house_rules, "MOST_FILES", 1)
    monkeypatch.setattr(house_rules, "MOST_LINES", 100)
    monkeypatch.setattr(house_rules, "MOST_LINES_WITHOUT_ZOO", 60)
    folder = tmp_path / "house"
    write_package(folder, {"a.py": LONG, "zoo/b.py": LONG})
    assert house_rules.main(folder) == 1
    assert capsys.readouterr().out.splitlines() == [
        "the package stays small; take out what is written twice and what nobody calls:",
        f"  {folder}: 2 files, at most 1",
        f"  {folder}: 122 lines, at most 100",
        f"  {folder}: 61 lines without zoo, at most 60",
        "house rules: 2 files, violations: 3",
    ]


@pytest.mark.parametrize("files", KEPT.values(), ids=KEPT)
def test_what_keeps_the_rules_passes(files, tmp_path, capsys):
    write_package(tmp_path / "house", files)
    assert house_rules.main(tmp_path / "house") == 0
    assert capsys.readouterr().out == f"house rules: {len(files)} files, violations: 0\n"


def test_every_rule_is_broken_above():
    assert {title for _, title, _ in BROKEN.values()} == {rule.title for rule in house_rules.RULES[:-1]}


def lint(folder):
    """What import-linter, with the project's contracts, says of the package in a folder: its exit code and text."""
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--config", ROOT / "pyproject.toml"]
    environment = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)


def ends(contract):
    """Two modules of which, by this contract, the first may not import the second."""
    if contract["type"] == "independence":
        name = contract["modules"][0]
        return name.replace("*", "one"), name.replace("*", "two")
    (container,) = contract["containers"]
    layers = " | ".join(contract["layers"]).split(" | ")
    return f"{container}.{layers[-1]}", f"{container}.{layers[0]}"


def write_house(folder, *, planted):
    """A package with every module that a contract names, and with a forbidden import against each if wanted."""
    names = {name for contract in CONTRACTS for name in ends(contract)}
    for contract in CONTRACTS:
        names |= {name.replace("*", "one") for name in contract.get("modules", [])}
        for container in contract.get("containers", []):
            names |= {f"{container}.{layer}" for layer in " | ".join(contract["layers"]).split(" | ")}
    paths = {path for name in names for path in (Path(*name.split(".")), *Path(*name.split(".")).parents[:-1])}
    lines = dict(map(ends, CONTRACTS)) if planted else {}
    for path in paths:
        name = ".".join(path.parts)
        write_package(folder, {path / "__init__.py": f"import {lines[name]}\n" if name in lines else ""})


def test_a_house_without_a_forbidden_import_keeps_every_contract(tmp_path):
    write_house(tmp_path, planted=False)
    code, told = lint(tmp_path)
    assert (code, f"{len(CONTRACTS)} kept, 0 broken" in told) == (0, True), told


def test_an_import_upwards_breaks_its_contract(tmp_path):
    write_house(tmp_path, planted=True)
    code, told = lint(tmp_path)
    assert code == 1
    for contract in CONTRACTS:
        importer, imported = ends(contract)
        assert f"{contract['name']} BROKEN" in told
        assert f"{importer} -> {imported}" in told.rpartition(f"\n{contract['name']}\n")[2]
