"""Deprecated name of `wsdsl.config`."""

from wsdsl.config import *  # noqa: F403
from wsdsl.config import OPTIONS, TUNING_CACHE, deprecate

KNOBS, RECORDS = OPTIONS, TUNING_CACHE
deprecate("wsdsl.knobs", "wsdsl.config")
