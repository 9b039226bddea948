"""Measure the best schedules of the cost model, and store the fastest in the tuning cache."""

from wsdsl.tune.result import Tuned

__all__ = ["Tuned"]
