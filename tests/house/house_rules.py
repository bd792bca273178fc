"""The rules of the house that import-linter cannot say, checked over every module of a package.

    python tests/house/house_rules.py [PACKAGE]     src/phasepoint if left out; exit code 1 where a rule is broken

A rule is a function from the package's modules to what breaks it, and a row of `RULES`.
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

MOST_NAMES = 15
"""A choice: what a listing shows at a glance. The package's own folder, whose names are the floors, may have more."""

LEAST_PREFIX = 3
"""A choice: two files of one prefix are a pair, three are a folder."""

LEAST_LINES = 60
"""A choice: a shorter file costs its reader more to find than to read, unless it is an idea of its own."""

SHORT_FUNCTION_LINES = 5
"""A choice: a shorter body that is used once is read faster where it is used."""

MOST_FILES, MOST_LINES, MOST_LINES_WITHOUT_ZOO = 682, 109_626, 104_592
"""What there is. A feature raises them by what it adds; whatever shrinks the package lowers them."""

OWN_FILE = re.compile(
    r"__(init|main)__\.py$"
    r"|^(findings/rules|stack/analyses|phases/detection/methods|recorder/hooks|recorder/autosteps/sources)/"
    r"|^(sources/(chrome|xplane|nsys|rocprof|tracing)|checkpoints|zoo/networks|report/documents|cli)/"
)
"""Where a format, rule, analysis, method, framework, network, document or command is one file, however short."""

REASON = "Its own file: …"
"""A short file elsewhere says in its docstring why it stands alone, in a paragraph that begins so."""


@dataclass(frozen=True)
class Module:
    """One file: the package's folder, the path from there, and its text."""

    folder: Path
    path: Path
    text: str

    @cached_property
    def name(self) -> str:
        return ".".join([self.folder.name, *self.path.with_suffix("").parts]).removesuffix(".__init__")

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def at(self, node: ast.stmt) -> str:
        return f"{self.folder / self.path}:{node.lineno}"


class Violation(NamedTuple):
    where: str | Path
    what: str


class Rule(NamedTuple):
    """A rule in words, what to do where it is broken, and what finds that."""

    title: str
    remedy: str
    check: Callable[[list[Module]], Iterator[Violation]]


def crowded_folders(modules: list[Module]) -> Iterator[Violation]:
    for folder in sorted({(module.folder / module.path).parent for module in modules}):
        names = sorted(entry.name for entry in folder.iterdir() if entry.name != "__pycache__")
        if len(names) > MOST_NAMES and folder != modules[0].folder:
            yield Violation(folder, f"{len(names)} names")
        python = [name.removesuffix(".py") for name in names if name.endswith(".py") and not name.startswith("_")]
        for prefix, count in Counter(name.split("_")[0] for name in python).items():
            if count >= LEAST_PREFIX:
                yield Violation(folder, f"{count} files begin with {prefix!r}")


def shared_class_names(modules: list[Module]) -> Iterator[Violation]:
    places = defaultdict(list)
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module.at(node))
    for name, (first, *others) in sorted(places.items()):
        if others:
            yield Violation(first, f"class {name} is also at {', '.join(others)}")


def unexplained_constants(modules: list[Module]) -> Iterator[Violation]:
    """Numbers without a reason beside them; one that a rule's page fills in (`{LEAST_SHARE:.0%}`) has it there."""
    for module in modules:
        on_page = set(re.findall(r"\{([A-Z][A-Z0-9_]*)\b", ast.get_docstring(module.tree) or ""))
        for node, after in zip(module.tree.body, [*module.tree.body[1:], None], strict=True):
            documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            commented = "#" in module.lines[node.lineno - 1] or module.lines[node.lineno - 2].startswith("#")
            if _is_named_number(node) and not documented and not commented and not on_page & _assigned(node):
                yield Violation(module.at(node), module.lines[node.lineno - 1])


def _assigned(node: ast.stmt) -> set[str]:
    """The names that an assignment gives values to."""
    targets = node.targets[:1] if isinstance(node, ast.Assign) else [node.target]
    return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}


def _is_named_number(node: ast.stmt) -> bool:
    """Whether it is NAME = numbers: one, or a sum, product or power of several."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    upper = [re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name) for name in _assigned(node)]
    if not upper or not all(upper) or not isinstance(node.value, ast.Constant | ast.BinOp | ast.UnaryOp):
        return False
    types = {type(part.value) for part in ast.walk(node.value) if isinstance(part, ast.Constant)}
    return bool(types & {int, float}) and str not in types


def needless_functions(modules: list[Module]) -> Iterator[Violation]:
    for module in modules:
        for node in module.tree.body:
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("_") or node.decorator_list:
                continue
            length = node.body[-1].end_lineno - node.body[0].lineno + 1
            mentions = re.findall(rf"(?<!def )\b{node.name}\b\(?", module.text)
            if length < SHORT_FUNCTION_LINES and mentions == [f"{node.name}("] and not ast.get_docstring(node):
                yield Violation(module.at(node), f"{node.name} has {length} lines and is called once")


def small_files(modules: list[Module]) -> Iterator[Violation]:
    for module in modules:
        own = OWN_FILE.search(module.path.as_posix()) or REASON[:-2] in (ast.get_docstring(module.tree) or "")
        if len(module.lines) < LEAST_LINES and not own:
            yield Violation(module.folder / module.path, f"{len(module.lines)} lines")


def import_circles(modules: list[Module]) -> Iterator[Violation]:
    """The first circle; every import counts: late ones inside functions, and those for types alone."""
    names = {module.name for module in modules}
    graph = {module.name: set(_imported(module, names)) - {module.name} for module in modules}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield Violation(modules[0].folder, " → ".join(reversed(error.args[1])))


def _imported(module: Module, names: set[str]) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in names else node.module for name in inside)


def size(modules: list[Module]) -> Iterator[Violation]:
    lines = sum(len(module.lines) for module in modules)
    zoo = sum(len(module.lines) for module in modules if module.path.parts[0] == "zoo")
    counts = ((len(modules), MOST_FILES), (lines, MOST_LINES), (lines - zoo, MOST_LINES_WITHOUT_ZOO))
    for what, (count, most) in zip(("files", "lines", "lines without zoo"), counts, strict=True):
        if count > most:
            yield Violation(modules[0].folder, f"{count:,} {what}, at most {most:,}")


RULES = (
    Rule(f"a folder shows at most {MOST_NAMES} names", "make a folder of those that share a prefix", crowded_folders),
    Rule("a class name has one meaning", "rename all but one for what they are", shared_class_names),
    Rule("a numeric constant has a reason", "say it in a string under it or a comment at it", unexplained_constants),
    Rule("a short private function is called twice", "inline it, or document what it states", needless_functions),
    Rule(f"a file has {LEAST_LINES} lines or an idea of its own", f"join it to others, or say {REASON!r}", small_files),
    Rule("imports have no circle", "move what both modules need into one below them", import_circles),
    Rule("the package stays small", "take out what is written twice and what nobody calls", size),
)


def main(folder: Path) -> int:
    """Print what breaks each rule; 1 where any is broken."""
    paths = sorted(file.relative_to(folder) for file in folder.rglob("*.py"))
    modules = [Module(folder, path, (folder / path).read_text()) for path in paths]
    broken = {rule: violations for rule in RULES if (violations := list(rule.check(modules)))}
    for rule, violations in broken.items():
        print(f"{rule.title}; {rule.remedy}:", *(f"  {where}: {what}" for where, what in violations), sep="\n")
    print(f"house rules: {len(modules)} files, violations: {sum(map(len, broken.values()))}")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main(Path(*sys.argv[1:2] or ["src/phasepoint"])))
