"""Measurements of kernels, by which schedules are chosen: those of this machine's users, and those
that are shipped with the package.
"""

from wsdsl.records.find import find
from wsdsl.records.row import Key, Row

__all__ = ["Key", "Row", "find"]
