"""Measure the best schedules that the model knows of, and keep the quickest as a record."""

from wsdsl.tune.result import Tuned

__all__ = ["Tuned"]
