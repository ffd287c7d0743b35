#!/usr/bin/env python
"""Run ``lreid data`` of this source tree; lreid/apps/data.py defines its options."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lreid.apps.cli import run_command

if __name__ == "__main__":
    sys.exit(run_command("data"))
