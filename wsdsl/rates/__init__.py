"""The rates of the card that a kernel is chosen for."""

from wsdsl.rates.of_target import rates_of
from wsdsl.rates.rates import Rates

__all__ = ["Rates", "rates_of"]
