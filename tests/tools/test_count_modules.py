"""The modules of lreid that training, testing and searching import, which shall become no more."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_training_testing_and_searching_import_few_modules(repository: Path) -> None:
    counted = [sys.executable, str(repository / "tools" / "count_modules.py")]
    done = subprocess.run(counted, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout or done.stderr
    imported = set(done.stdout.split())
    assert {"lreid.methods.dwopp", "lreid.gallery", "lreid.gallery.faiss_store"} <= imported
    assert not [name for name in imported if re.search(r"classification\.|milvus|adapters", name)]
