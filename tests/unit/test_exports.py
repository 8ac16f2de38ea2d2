"""The public face is what `tidemark` names, and nothing crept into it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import tidemark
import tidemark.compute
from tidemark import errors


def test_public_names() -> None:
    assert tidemark.__all__ == [
        *("At", "Region", "attach", "open_region", "pass_through"),
        *("connect", "local", "Database", "Result", "Batch", "Subscription", "TidemarkError"),
    ]
    for name in tidemark.__all__:
        assert getattr(tidemark, name).__name__ == name
    assert tidemark.compute.__all__ == ["Maintained", "Statistics", "maintain"]
    for name in tidemark.compute.__all__:
        assert getattr(tidemark.compute, name).__name__ == name


def test_the_package_imports_without_spark() -> None:
    packages = (
        "tidemark, tidemark.persist, tidemark.compute, tidemark.client, tidemark.shell.prompt"
    )
    script = f"import sys, {packages}; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_spark_finds_the_java_of_the_set_up_where_there_is_no_other(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", "import os, tidemark; print(os.environ['JAVA_HOME'])"],
        env={"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == (Path(sys.prefix) / "java-home").read_text()


def test_no_error_is_made_once_and_raised_again_and_again() -> None:
    """It would keep every frame that it has ever gone through, and what those had in hand."""
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type)}
    found = [
        f"{path.name}:{made.lineno}"
        for path in Path(tidemark.__file__).parent.rglob("*.py")
        for made in ast.parse(path.read_text()).body
        if isinstance(made, ast.Assign | ast.AnnAssign)
        and isinstance(made.value, ast.Call)
        and getattr(made.value.func, "id", None) in kinds
    ]
    assert not found
