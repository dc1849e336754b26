"""Run the command line with `python -m samba_rl`."""

import sys

from samba_rl.cli import main

if __name__ == "__main__":
    sys.exit(main())
