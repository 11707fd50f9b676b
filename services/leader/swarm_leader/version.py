"""The version of this leader, as it is installed."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("silentswarm")
except PackageNotFoundError:  # run from a checkout that is not installed
    VERSION = "0+checkout"
