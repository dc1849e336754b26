"""Settings of Sphinx; `make docs` builds the documentation."""

from samba_rl import __version__

project = "samba_rl"
author = "The samba_rl authors"
copyright = "2026, the samba_rl authors"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath", "amsmath"]
html_theme = "furo"
html_title = f"samba_rl {__version__}"
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# Long signatures read better without the module of every type.
python_use_unqualified_type_names = True
