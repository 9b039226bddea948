"""A card whose kernels take as long as a test says."""

from wsdsl.calibrate.gpu import Run


class FakeGpu:
    """`taken(kernel, count, arguments)`: cycles of a launch (or nanoseconds: they are the same)."""

    num_sms = 132
    l2_bytes = 50 << 20

    def __init__(self, taken):
        self.taken, self.launched, self.used = taken, [], 0

    def run(self, kernel, grid, count, *arguments):
        assert len(arguments) == len(kernel.params), kernel.name
        for (kind, _), value in zip(kernel.params, arguments, strict=True):
            assert isinstance(value, bytes if kind == "map" else int)
        self.launched.append((kernel, grid, count, arguments))
        cycles = float(self.taken(kernel, count, arguments))
        return Run(cycles, cycles, 1.5)

    once = run

    def chain(self, kernel, grid, length, *, early):
        return self.taken(kernel, length, (early,))

    def room(self, kernel):
        return {2: 66, 4: 30, 8: 15}[kernel.cluster]

    def buffer(self, size):
        self.used += size
        return (self.used + 255) // 256 * 256

    def clear(self, address, size):
        pass

    def upload(self, address, data):
        pass

    def rows(self, address, rows, pitch, box_rows):
        assert address % 16 == 0 and pitch % 16 == 0 and box_rows <= 256
        return bytes(128)
