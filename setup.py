"""Installs lreid: ``pip install .[cpu,train]``, or ``.[gpu,train]`` on a machine with an NVIDIA GPU.

pyproject.toml holds all settings.
"""

from setuptools import setup

setup()
