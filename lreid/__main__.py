"""Run the console command: ``python -m lreid COMMAND …``."""

import sys

from lreid.apps.cli import main

if __name__ == "__main__":
    sys.exit(main())
