"""Measure the best schedules that the model knows of, and store the fastest in the tuning cache."""

from wsdsl.tune.result import Tuned

__all__ = ["Tuned"]
