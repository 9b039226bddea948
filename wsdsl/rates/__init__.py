"""Hardware parameters of the GPU that a kernel is compiled for."""

from wsdsl.rates.of_target import rates_of
from wsdsl.rates.rates import Rates

__all__ = ["Rates", "rates_of"]
