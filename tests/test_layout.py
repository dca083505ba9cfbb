import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = tuple(ROOT / component / f"stoker_{component}" for component in ("kernels", "engine", "gateway", "operator"))
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|raise NotImplementedError|\bstubs?\b")
OUTSIDE = {".git", ".venv", "build", "dist", "results", "__pycache__"}

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_KERNEL_LINES = 120
MAX_PARAMETERS = 6
MAX_METHODS = 20

WITHOUT_TORCH = """
import importlib.abc, sys

class NoTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTorch())
"""


def tree(suffix: str) -> list[Path]:
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(set(folders) - OUTSIDE)
        found += [Path(folder, name) for name in names if name.endswith(suffix)]
    return sorted(found)


SOURCES = tree(".py")


def run_python(code: str, *args: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def functions(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def is_kernel(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("triton" in ast.unparse(decorator) for decorator in function.decorator_list)


def num_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def broken_limits(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    num_lines = text.count("\n")
    if num_lines > MAX_FILE_LINES:
        yield f"{num_lines} lines, at most {MAX_FILE_LINES}"
    module = ast.parse(text)
    for function in functions(module):
        num_lines = (function.end_lineno or 0) - function.lineno + 1
        if num_lines > (MAX_KERNEL_LINES if is_kernel(function) else MAX_FUNCTION_LINES):
            yield f"{function.name}, line {function.lineno}: {num_lines} lines"
        if num_parameters(function) > MAX_PARAMETERS and "kernels" not in path.relative_to(ROOT).parts:
            yield f"{function.name}, line {function.lineno}: {num_parameters(function)} parameters, at most {MAX_PARAMETERS}"
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef):
            num_methods = sum(isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) for child in node.body)
            if num_methods > MAX_METHODS:
                yield f"{node.name}, line {node.lineno}: {num_methods} methods, at most {MAX_METHODS}"


def test_package_files_exist_only_inside_the_four_packages() -> None:
    strays = [path for path in SOURCES if path.name == "__init__.py" and not any(path.is_relative_to(package) for package in PACKAGES)]
    assert strays == []


def test_every_folder_of_a_package_says_what_it_holds() -> None:
    folders = {path.parent for path in SOURCES if any(path.is_relative_to(package) for package in PACKAGES)}
    silent = [folder for folder in sorted(folders) if not has_docstring(folder / "__init__.py")]
    assert silent == []


def has_docstring(path: Path) -> bool:
    return path.is_file() and ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) is not None


@pytest.mark.parametrize("folder", [ROOT, *(package.parent for package in PACKAGES), ROOT / "tests"], ids=lambda folder: folder.name)
def test_the_standard_library_is_not_shadowed(folder: Path) -> None:
    done = run_python("import collections, operator; operator.eq; import json; print(operator.__file__)", folder=folder)
    assert done.returncode == 0, done.stderr
    assert not Path(done.stdout.strip()).is_relative_to(folder)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_package_has_no_unfinished_code(package: Path) -> None:
    lines = [(path.name, line) for path in SOURCES if path.is_relative_to(package) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(name, line) for name, line in lines if UNFINISHED.search(line)] == []


@pytest.mark.fault("G15")
@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_nothing_in_a_package_changes_a_global_name(package: Path) -> None:
    modules = [path for path in SOURCES if path.is_relative_to(package)]
    assert [path for path in modules if any(isinstance(node, ast.Global) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_keeps_the_house_limits(path: Path) -> None:
    assert list(broken_limits(path)) == []


@pytest.mark.parametrize(
    "module",
    [
        "stoker_operator.__main__",
        "stoker_gateway.api.__main__",
        "stoker_engine.config",
        "stoker_engine.protocol",
        "stoker_engine.core.scheduler",
        "stoker_engine.llm",
    ],
)
def test_a_module_that_may_not_need_torch_imports_without_it(module: str) -> None:
    done = run_python(f"{WITHOUT_TORCH}\nimport {module}\nassert 'torch' not in sys.modules", "-W", "ignore")
    assert done.returncode == 0, done.stderr
