"""Run first by the notebooks of tutorials: a `%%bash` that stops at the first command that fails."""

import subprocess

from IPython.core.magic import register_cell_magic


@register_cell_magic
def bash(_line: str, cell: str) -> None:
    """Run the cell in one shell and show what it said, in the order in which it was said."""
    command = ["bash", "-e", "-o", "pipefail", "-c", cell]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(done.stdout, end="")
    done.check_returncode()
