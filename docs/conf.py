"""Sphinx configuration."""

project = "onnxq"
author = "The onnxq authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "onnxq"
myst_heading_anchors = 3
exclude_patterns = ["_build"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
