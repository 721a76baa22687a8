"""Compiling the GPU kernels at their first use, by NVRTC, which comes with torch.

What was compiled is kept in the user's cache folder, under a digest of all that it depends on.
"""

import ctypes
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

import torch

from matrixdp.errors import MatrixDPError

__all__ = ["compiled"]


def compiled(source: str, architecture: str) -> bytes:
    """Return the machine code of a source for an architecture such as ``"sm_90"``.

    Raises
    ------
    MatrixDPError
        If it cannot be compiled here.
    """
    try:
        # By the major version, as torch loads it: any of them compiles the same kernels.
        nvrtc = ctypes.CDLL(f"libnvrtc.so.{str(torch.version.cuda).partition('.')[0]}")
    except OSError:
        raise MatrixDPError(
            "NVRTC cannot be loaded: it comes with builds of torch for CUDA"
        ) from None
    # No fused multiply-add: every operation rounds as it does on a processor.
    options = [f"--gpu-architecture={architecture}", "--fmad=false"]
    name = f"{_digest(nvrtc, source, options)}.cubin"
    # Without a folder, or a home for it, it is compiled again in every process.
    with suppress(OSError, RuntimeError):
        digest, code = _split((_cache_folder() / name).read_bytes())
        # A damaged file might run, and compute wrongly.
        if hashlib.sha256(code).digest() == digest:
            return code
    code = _machine_code(nvrtc, source, options)
    with suppress(OSError, RuntimeError):
        _keep(_cache_folder() / name, hashlib.sha256(code).digest() + code)
    return code


def _split(content: bytes) -> tuple[bytes, bytes]:
    """Return the digest that a file begins with, and the code."""
    size = hashlib.sha256().digest_size
    return content[:size], content[size:]


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "matrixdp"


def _keep(file: Path, code: bytes) -> None:
    """Write a file that others never see in parts, and that only its owner may change."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=file.parent, delete=False) as part:
        part.write(code)
    Path(part.name).replace(file)


def _digest(nvrtc: ctypes.CDLL, source: str, options: list[str]) -> str:
    """Return a digest of the source, which holds the constants of the tables, and its compiler."""
    version = (ctypes.c_int * 2)()
    _check(nvrtc, nvrtc.nvrtcVersion(version, ctypes.byref(version, ctypes.sizeof(ctypes.c_int))))
    text = repr((list(version), options, source))
    return hashlib.sha256(text.encode()).hexdigest()


def _machine_code(nvrtc: ctypes.CDLL, source: str, options: list[str]) -> bytes:
    program = ctypes.c_void_p()
    made = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"element_noise.cu", 0, None, None
    )
    _check(nvrtc, made)
    try:
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        _check(nvrtc, nvrtc.nvrtcCompileProgram(program, len(options), given))
        size = ctypes.c_size_t()
        _check(nvrtc, nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        code = ctypes.create_string_buffer(size.value)
        _check(nvrtc, nvrtc.nvrtcGetCUBIN(program, code))
        return code.raw
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _check(nvrtc: ctypes.CDLL, result: int) -> None:
    if result:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        reason = nvrtc.nvrtcGetErrorString(result).decode()
        raise MatrixDPError(f"NVRTC cannot compile the noise kernels for this GPU: {reason}")
