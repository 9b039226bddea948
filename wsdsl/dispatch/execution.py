"""Runs of a scheduled kernel: on a GPU, staged through one, or in the simulator."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from wsdsl import config
from wsdsl.diagnostics import LaunchError, warn_once
from wsdsl.dispatch.callee import Callee, called, repeated

if TYPE_CHECKING:
    from wsdsl.runtime.arguments import Call
    from wsdsl.runtime.prepared import Prepared
    from wsdsl.runtime.recent import Start


class Executable(Callee):
    """A scheduled kernel that can be launched, and simulated."""

    scheduled: Any
    signature: Any
    launcher: Any

    @repeated
    @called
    def __call__(self, *args: Any, stream: Any = None, **named: Any) -> Any:
        """Run on the arrays' device (NumPy arrays: on a GPU if there is one, else simulated).

        Returns the output, or a tuple of them. LaunchError if the arrays do not fit.
        """
        recent = self._recent
        look = recent.look(args, None, None, stream)
        if (done := recent.again(look)) is not None:
            return done[0]
        call = self.resolve(args)
        return self.run(call, stream, look and partial(recent.first, look))

    def fits(self, call: Call) -> bool:
        """Whether all CTAs that wait for each other can run at the same time on the call's GPU."""
        from wsdsl.runtime.device import num_sms_of
        from wsdsl.runtime.launcher import has_room

        return has_room(self.signature, call.dims, num_sms_of(call.device))

    def run(self, call: Call, stream: Any = None, start: Start | None = None) -> Any:
        """Launch or simulate a resolved call; `start` replaces the launch on a GPU."""
        if self._recent.repeater.recorder.calls is not None:
            return call.result()
        if call.device != "cpu" and start is not None:
            start(self.launcher, call)
        elif call.device != "cpu":
            self.prepare_call(call, stream, keepalive=False)()
        elif runs_simulated(any(v.framework in ("torch", "jax") for v in call.views.values())):
            return self.simulate_call(call)
        else:
            from wsdsl.runtime.staging import run_staged

            run_staged(self.launcher, call, stream)
        return call.result()

    @called
    def prepare(self, *args: Any, stream: Any = None, **named: Any) -> Prepared:
        """Everything resolved once; calling the result is only the launch."""
        return self.prepare_call(self.resolve(args), stream)

    def prepare_call(self, call: Call, stream: Any = None, *, keepalive: bool = True) -> Prepared:
        """`prepare`, of arguments that are resolved already."""
        if call.device == "cpu":
            hint = "give arrays of torch, CuPy or JAX that are on a GPU"
            raise LaunchError("WS0009 prepare() needs arrays on a GPU", hint=hint)
        return self.launcher.prepare(
            call.views, call.scalars, call.dims, stream, call.zeroed, keepalive=keepalive
        )

    @called
    def simulate(self, *args: Any, seed: int = 0, **named: Any) -> Any:
        """Run barrier by barrier on the CPU, on NumPy arrays, in an order that `seed` chooses.

        SimulationError for a race, a deadlock, a stage read too early or overwritten too soon.
        """
        return self.simulate_call(self.resolve(args), seed)

    def simulate_call(self, call: Call, seed: int = 0) -> Any:
        """`simulate`, of arguments that are resolved already."""
        from wsdsl.runtime.arrays.padded_copies import padded_array, to_pad
        from wsdsl.simulator.simulation import simulate

        if call.device != "cpu":
            raise LaunchError("WS0010 simulate() needs arrays on the CPU", hint="copy them there")
        arrays = call.on_host()
        copies = {n: padded_array(arrays[n]) for n in to_pad(self.access, call.views)}
        simulate(self.scheduled, {**arrays, **copies, **call.scalars}, seed=seed)
        return call.result()


def runs_simulated(movable: bool = False) -> bool:
    """Check whether CPU arrays are simulated; `movable` ones are rejected if there is a GPU."""
    backend = config.BACKEND.get()
    if backend == "simulator":
        return True
    from wsdsl.runtime.device import gpu_available

    if backend == "gpu" and not gpu_available():
        raise LaunchError("WS0011 no supported GPU was found", hint="run `wsdsl doctor`")
    if movable and backend == "auto" and gpu_available():
        hint = 'move them to the GPU, or use `with wsdsl.config.override(backend="simulator"):`'
        raise LaunchError("WS0012 the arrays are on the CPU, and there is a GPU", hint=hint)
    if movable and not gpu_available():
        warn_once("no supported GPU was found; the simulator, which is slow, runs the kernel")
    return not gpu_available()
