"""Deprecated name of `wsdsl.config`."""

from wsdsl.config import *  # noqa: F403
from wsdsl.config import TUNING_CACHE, deprecate

RECORDS = TUNING_CACHE
deprecate("wsdsl.knobs", "wsdsl.config")
