# SPDX-License-Identifier: Apache-2.0
"""The modules of the package have no import cycles, and each folder imports only those below it."""

import ast
import importlib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import tierckpt

PACKAGE = Path(tierckpt.__file__).parent
LAYERS = ("errors", "runtime", "report", "state", "core", "adapters")  # each may import itself and those before it
PUBLIC = ("dcp", "deepspeed", "hyperpod", "lightning", "megatron", "sagemaker", "torch", "torchtitan", "transformers",
          "vescale")


def modules() -> dict[str, Path]:
    """The file of each module by its name within the package; "" is the package itself."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of the package that a module imports, at its top and in its functions."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("tierckpt.") for alias in node.names
                      if alias.name.startswith("tierckpt.")}
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            above = package.split(".")[:len(package.split(".")) - node.level + 1] if package else []
            base = ".".join([*above, *filter(None, [node.module])])
        elif node.module == "tierckpt" or node.module.startswith("tierckpt."):
            base = node.module.removeprefix("tierckpt").removeprefix(".")
        else:
            continue
        for alias in node.names:
            inner = f"{base}.{alias.name}" if base else alias.name
            found.add(inner if inner in known else base)
    return found - {name}


def test_no_module_imports_itself_over_others():
    known = modules()
    graph = {name: imports(name, path, known) for name, path in known.items()}
    assert len(graph) > 40 and all(target in known for targets in graph.values() for target in targets)
    list(TopologicalSorter(graph).static_order())  # raises CycleError with the names


def test_each_folder_imports_only_those_below_it():
    known = modules()
    for name, path in known.items():
        folder = name.split(".")[0]
        if folder in LAYERS:
            allowed = LAYERS[:LAYERS.index(folder) + 1]
            assert not [target for target in imports(name, path, known) if target.split(".")[0] not in allowed], name


def test_modules_that_users_import_hold_no_code_of_their_own():
    known = modules()
    for name, path in known.items():
        if name.split(".")[0] in PUBLIC:
            nodes = ast.parse(path.read_text()).body
            assert not [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))], name


@pytest.mark.parametrize("name", tierckpt.__all__)
def test_every_public_name_is_there(name):
    assert getattr(tierckpt, name).__module__.startswith("tierckpt") if callable(getattr(tierckpt, name)) else True


@pytest.mark.parametrize("name", PUBLIC)
def test_a_module_for_a_framework_has_what_it_names_or_says_which_package_is_missing(name):
    try:
        module = importlib.import_module(f"tierckpt.{name}")
        missing = [public for public in module.__all__ if not hasattr(module, public)]
    except ImportError as error:
        assert error.name is not None and not error.name.startswith("tierckpt")
    else:
        assert missing == []
