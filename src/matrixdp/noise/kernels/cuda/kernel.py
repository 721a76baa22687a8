"""The kernels on tensors: what a launch gets, and which elements it leaves undecided."""

import ctypes
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from matrixdp.errors import MatrixDPError
from matrixdp.noise.kernels.cuda.aes import SCHEDULE_WORDS, key_schedule, round_table
from matrixdp.noise.kernels.cuda.launcher import Launcher
from matrixdp.noise.kernels.cuda.source import THREADS
from matrixdp.noise.keys.stream import RANGE_ELEMENTS, NoiseStream
from matrixdp.noise.specification.coarse_table import load_coarse_table
from matrixdp.noise.specification.table import load_table

__all__ = ["ScaleTensor", "TensorKernel", "Undecided", "UndecidedList"]

_KINDS = {torch.float64: "double", torch.float32: "single"}
# How many entries were wanted, then the entries: element, value and random word.
_ENTRY_WORDS = 3
# Less than one element in a million is undecided, by the choice of the noise alone: no release in
# the world ever has as many as this.
_SPARE_ENTRIES = 256
_ELEMENTS_FOR_AN_ENTRY = 1 << 18


class _Schedule(ctypes.Structure):
    _fields_ = (("words", ctypes.c_uint32 * SCHEDULE_WORDS),)


class _Scales(ctypes.Structure):
    _fields_ = (
        ("scales", ctypes.c_void_p),
        ("columns", ctypes.c_uint64),
        ("row_stride", ctypes.c_uint64),
        ("column_stride", ctypes.c_uint64),
    )


class _Tables(ctypes.Structure):
    _fields_ = (("aes", ctypes.c_void_p), ("coarse", ctypes.c_void_p), ("fine", ctypes.c_void_p))


class ScaleTensor:
    """The scales of a whole vector or matrix, on its device.

    Parameters
    ----------
    scales : NDArray[np.float64]
        One or two axes, each of length 1 or the value's.
    shape : tuple of int
        Of the value.
    device : torch.device
        Where the value is.
    """

    def __init__(
        self, scales: NDArray[np.float64], shape: tuple[int, ...], device: torch.device
    ) -> None:
        self._numbers = np.ascontiguousarray(scales).reshape(-1)
        self._columns = shape[-1]
        width = scales.shape[-1]
        self._column_stride = int(width > 1)
        self._row_stride = width if scales.size > width else 0
        self._tensor = torch.tensor(self._numbers, device=device)

    @property
    def is_one(self) -> bool:
        """Whether all elements have the same scale."""
        return self._numbers.size == 1

    @property
    def argument(self) -> ctypes.Structure:
        """What a kernel gets."""
        # No columns mean one scale.
        columns = 0 if self.is_one else self._columns
        return _Scales(self._tensor.data_ptr(), columns, self._row_stride, self._column_stride)

    def of(self, element: int) -> float:
        """Return the scale of an element, by its number in C order."""
        row, column = divmod(element, self._columns)
        return float(self._numbers[row * self._row_stride + column * self._column_stride])


class Undecided(NamedTuple):
    """An element that the fast path has left."""

    element: int
    value: float
    word: int


def _done() -> None:
    """Return at once: nothing has been launched."""


class UndecidedList:
    """The elements of one release that are left, written by a device and read once.

    Parameters
    ----------
    elements : int
        How many the release has.
    device : torch.device
        Which writes the list.
    """

    def __init__(self, elements: int, device: torch.device) -> None:
        self.capacity = _SPARE_ENTRIES + elements // _ELEMENTS_FOR_AN_ENTRY
        words = _ENTRY_WORDS * (1 + self.capacity)
        self.tensor = torch.zeros(words, dtype=torch.int64, device=device)
        self._on_gpu = device.type == "cuda"
        # Only from pinned memory does a copy run beside what the host does.
        self._here = torch.empty(words, dtype=torch.int64, device="cpu", pin_memory=self._on_gpu)
        self._wait = _done

    def fetch(self) -> None:
        """Begin to copy the list, as soon as the device has written it."""
        self._here.copy_(self.tensor, non_blocking=True)
        if self._on_gpu:
            copied = torch.cuda.Event()
            copied.record(torch.cuda.current_stream(self.tensor.device))
            self._wait = copied.synchronize

    def entries(self) -> list[Undecided]:
        """Wait for the copy; return the entries in the order of their elements."""
        self._wait()
        rows = self._here.numpy().view(np.uint64).reshape(-1, _ENTRY_WORDS)
        count = int(rows[0, 0])
        if count > self.capacity:
            raise MatrixDPError(
                f"{count} elements are undecided: chance alone never leaves so many, so the values "
                "were changed while noise was added, or the device computes wrongly. Nothing is "
                "released"
            )
        found = rows[1 : 1 + count]
        values = np.ascontiguousarray(found[:, 1]).view(np.float64)
        # Threads append in any order.
        return sorted(map(Undecided, found[:, 0].tolist(), values.tolist(), found[:, 2].tolist()))

    def wipe(self) -> None:
        """Overwrite the list: with values and words it would give the noise away."""
        self.tensor.zero_()
        self._wait()  # what is still on its way would come after
        self._here.zero_()


class TensorKernel:
    """The fast path on contiguous tensors of one device.

    Parameters
    ----------
    launcher : Launcher
        Runs the kernels.
    device : torch.device
        Where the tensors are.
    """

    def __init__(self, launcher: Launcher, device: torch.device) -> None:
        self._launcher = launcher
        self.device = device
        numbers = (round_table().view(np.int32), load_coarse_table(), load_table().reshape(-1))
        self._numbers = [torch.tensor(table, device=device) for table in numbers]

    @property
    def tables(self) -> ctypes.Structure:
        """Where the tables of AES and of the noise are, as a kernel gets it."""
        return _Tables(*(numbers.data_ptr() for numbers in self._numbers))

    def __call__(
        self,
        values: Tensor,
        out: Tensor,
        scales: ScaleTensor,
        stream: NoiseStream,
        undecided: UndecidedList,
    ) -> None:
        """Launch what fills ``out`` but for undecided elements, and lists these."""
        kernel = f"add_noise_{_KINDS[values.dtype]}{'_one_scale' if scales.is_one else ''}"
        grid_shift = ctypes.c_int64(stream.context.grid_bits << 52)
        size, width = values.numel(), values.element_size()
        # One key serves one range of elements, and one launch.
        for first in range(0, size, RANGE_ELEMENTS):
            count = min(RANGE_ELEMENTS, size - first)
            schedule = _schedule_of(stream, first // RANGE_ELEMENTS)
            blocks = min(self._launcher.most_blocks, -(-count // (2 * THREADS)))
            arguments = (
                schedule,
                ctypes.c_void_p(values.data_ptr() + first * width),
                ctypes.c_void_p(out.data_ptr() + first * width),
                ctypes.c_uint32(count),
                ctypes.c_uint64(first),
                scales.argument,
                grid_shift,
                self.tables,
                ctypes.c_void_p(undecided.tensor.data_ptr()),
                ctypes.c_uint64(undecided.capacity),
            )
            try:
                self._launcher(kernel, blocks, arguments)
            finally:
                ctypes.memset(ctypes.byref(schedule), 0, ctypes.sizeof(schedule))


def _schedule_of(stream: NoiseStream, number: int) -> _Schedule:
    """Return the key schedule of a range of elements, to be overwritten."""
    key = stream.range_key(number)
    words = key_schedule(key)
    schedule = _Schedule.from_buffer_copy(words.data)
    words.fill(0)
    key[:] = bytes(len(key))
    return schedule
