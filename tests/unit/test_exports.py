"""The public face is what `tidemark` names, and nothing crept into it."""

from __future__ import annotations

import subprocess
import sys

import tidemark
import tidemark.compute


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
