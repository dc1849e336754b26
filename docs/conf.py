"""Settings of Sphinx; `make docs` builds the documentation."""

import os
import sys
from pathlib import Path

from samba_rl import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))
# Cells of tutorials call `samba-rl` of this environment, with one thread, and take files from the repository.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
# Notebooks force colours on programs; TTY_COMPATIBLE keeps moving tables out of pages all the same.
os.environ.update(OMP_NUM_THREADS="1", SAMBA_SOURCE=str(HERE.parent), TTY_COMPATIBLE="0")
os.environ["PYTHONSTARTUP"] = str(HERE / "extensions" / "shell.py")

project = "samba_rl"
author = "The samba_rl authors"
copyright = "2026, the samba_rl authors"
version = release = __version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "formulas",
    "pages",
]
exclude_patterns = ["_build"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "svg"

# Tutorials run in empty folders whenever they are built, and the build fails if one of their cells does.
nb_execution_mode = os.environ.get("DOCS_NOTEBOOKS", "force")
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True
nb_render_markdown_format = "gfm"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autosummary_generate = False
# Long signatures read better without the module of every type.
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
# Names in docstrings stand in single backticks.
default_role = "code"

# Copying a console block copies its commands, without prompts and what they print.
copybutton_prompt_text = r"\$ |> "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "furo"
html_title = f"samba_rl {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
