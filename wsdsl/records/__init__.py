"""The tuning cache: measured schedules, the user's and those shipped with the package."""

from wsdsl.records.entry import Key, Row
from wsdsl.records.find_entry import find

__all__ = ["Key", "Row", "find"]
