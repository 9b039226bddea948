"""The tuning cache: measured schedules, the user's and those shipped with the package."""

from wsdsl.records.find import find
from wsdsl.records.row import Key, Row

__all__ = ["Key", "Row", "find"]
