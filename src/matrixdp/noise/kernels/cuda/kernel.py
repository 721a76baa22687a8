"""The kernels on tensors: what a launch gets, and which elements it leaves undecided."""

import ctypes
import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from matrixdp.errors import MatrixDPError
from matrixdp.noise.kernels.cuda.aes import SCHEDULE_WORDS, key_schedule, round_table
from matrixdp.noise.kernels.cuda.launcher import Launcher
from matrixdp.noise.kernels.cuda.source import DECIDING_THREADS, THREADS, WARP
from matrixdp.noise.keys.stream import KEY_BYTES, RANGE_ELEMENTS, NoiseStream
from matrixdp.noise.specification.coarse_table import load_coarse_table
from matrixdp.noise.specification.table import load_table

__all__ = ["ScaleTensor", "TensorKernel", "UndecidedList"]

_KINDS = {torch.float64: "double", torch.float32: "single"}
# How many entries were wanted and whether one failed; then entries: element, value, random word.
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


class UndecidedList:
    """The elements of one release that no table decides, between one kernel and the next.

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

    def check(self) -> None:
        """Wait for the device; raise if some elements have no noise, but are NaN."""
        count, failed = self.tensor[:2].tolist()
        if failed:
            raise MatrixDPError(
                f"{count} elements were undecided, or one could not be decided: chance alone never "
                "does that, so the values were changed while noise was added, or the device "
                "computes wrongly. Nothing is released"
            )


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
        """Launch the kernel that fills ``out`` except for undecided elements, and lists these."""
        kernel = f"add_noise_{_KINDS[values.dtype]}{'_one_scale' if scales.is_one else ''}"
        size, width = values.numel(), values.element_size()
        # One key serves one range of elements, and one launch.
        for first in range(0, size, RANGE_ELEMENTS):
            count = min(RANGE_ELEMENTS, size - first)
            arguments = (
                ctypes.c_void_p(values.data_ptr() + first * width),
                ctypes.c_void_p(out.data_ptr() + first * width),
                ctypes.c_uint32(count),
                ctypes.c_uint64(first),
                *self._shared_arguments(scales, stream, undecided),
            )
            key = stream.range_key(first // RANGE_ELEMENTS)
            self._launch(kernel, self._blocks(count), key, arguments)

    def decide(
        self, out: Tensor, scales: ScaleTensor, stream: NoiseStream, undecided: UndecidedList
    ) -> None:
        """Launch what decides the elements of a list, and overwrites the list.

        What it cannot decide becomes NaN.
        """
        arguments = (
            ctypes.c_void_p(out.data_ptr()),
            ctypes.c_uint64(out.numel()),
            *self._shared_arguments(scales, stream, undecided),
        )
        # A warp for each entry.
        blocks = min(self._launcher.most_blocks, -(-undecided.capacity * WARP // DECIDING_THREADS))
        self._launch(f"decide_{_KINDS[out.dtype]}", blocks, stream.further_key(), arguments)

    def _shared_arguments(
        self, scales: ScaleTensor, stream: NoiseStream, undecided: UndecidedList
    ) -> tuple[Any, ...]:
        return (
            scales.argument,
            ctypes.c_int64(stream.context.grid_bits << 52),
            self.tables,
            ctypes.c_void_p(undecided.tensor.data_ptr()),
            ctypes.c_uint64(undecided.capacity),
        )

    def coins(self, number: int, most: int) -> Tensor:
        """Return for each of so many uniform words of 64 bits whether it is at most a threshold.

        The words are the keystream of AES-256-CTR under fresh keys, one for each range of elements.
        """
        taken = torch.empty(number, dtype=torch.bool, device=self.device)
        for first in range(0, number, RANGE_ELEMENTS):
            count = min(RANGE_ELEMENTS, number - first)
            target = ctypes.c_void_p(taken.data_ptr() + first)
            arguments = target, ctypes.c_uint32(count), ctypes.c_uint64(most), self.tables
            key = bytearray(os.urandom(KEY_BYTES))
            self._launch("draw_coins", self._blocks(count), key, arguments)
        return taken

    def _blocks(self, count: int) -> int:
        """Return how many blocks run for so many elements, of which a thread takes two at once."""
        return min(self._launcher.most_blocks, -(-count // (2 * THREADS)))

    def _launch(self, kernel: str, blocks: int, key: bytearray, arguments: tuple[Any, ...]) -> None:
        """Launch a kernel under a key that is overwritten."""
        schedule = _schedule_of(key)
        try:
            self._launcher(kernel, blocks, (schedule, *arguments))
        finally:
            ctypes.memset(ctypes.byref(schedule), 0, ctypes.sizeof(schedule))


def _schedule_of(key: bytearray) -> _Schedule:
    """Return the schedule of a key, to be overwritten as the key is here."""
    words = key_schedule(key)
    schedule = _Schedule.from_buffer_copy(words.data)
    words.fill(0)
    key[:] = bytes(len(key))
    return schedule
