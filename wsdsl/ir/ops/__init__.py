"""Every op by name; one file per family.

A file in this folder is a family: the ops of one instruction group, with their docstrings. Other
packages import ops from here.
"""

from importlib import import_module
from pkgutil import iter_modules

from wsdsl.ir.ops.barrier import *
from wsdsl.ir.ops.clc import *
from wsdsl.ir.ops.cluster import *
from wsdsl.ir.ops.control import *
from wsdsl.ir.ops.elementwise import *
from wsdsl.ir.ops.fragment import *
from wsdsl.ir.ops.gmem import *
from wsdsl.ir.ops.grid import *
from wsdsl.ir.ops.griddepcontrol import *
from wsdsl.ir.ops.histogram import *
from wsdsl.ir.ops.mbarrier import *
from wsdsl.ir.ops.pipeline import *
from wsdsl.ir.ops.reduction import *
from wsdsl.ir.ops.semaphore import *
from wsdsl.ir.ops.smem import *
from wsdsl.ir.ops.stage import *
from wsdsl.ir.ops.tcgen05 import *
from wsdsl.ir.ops.tile import *
from wsdsl.ir.ops.tma import *
from wsdsl.ir.ops.wgmma import *

for _module in iter_modules(__path__):  # noqa: F405
    import_module(f"{__name__}.{_module.name}")
