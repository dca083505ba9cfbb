"""The installed version of Stoker."""

from importlib.metadata import version

__version__ = version("stoker")
