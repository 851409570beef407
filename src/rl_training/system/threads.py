"""Number of BLAS threads: read and set in the library that NumPy has loaded.

OpenBLAS takes one thread per core unless told otherwise and rounds differently with each number of them: initial
weights (`numpy.linalg.qr`) and the actions of wide networks would depend on how many cores a process may use.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

FUNCTIONS = (
    ("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),  # the wheels of NumPy
    ("scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"),
    ("openblas_get_num_threads64_", "openblas_set_num_threads64_"),  # distributions
    ("openblas_get_num_threads", "openblas_set_num_threads"),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),  # conda
)


def blas_threads() -> int | None:
    """Threads of NumPy's BLAS; None if NumPy is not loaded or its library is not known."""
    found = _functions()
    return None if found is None else int(found[0]())


def set_blas_threads(count: int) -> None:
    """Set the number of threads of NumPy's BLAS; does nothing if its library is not known."""
    found = _functions()
    if found is not None:
        found[1](count)


def _functions() -> tuple[Any, Any] | None:
    """The (get, set) functions of the BLAS library that NumPy uses."""
    module = sys.modules.get("numpy._core._multiarray_umath")
    return None if module is None or module.__file__ is None else _functions_of(module.__file__)


@cache
def _functions_of(path: str) -> tuple[Any, Any] | None:
    """Symbols are looked up in NumPy's own module and, on Linux and macOS, in the libraries it links to."""
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return None
    for get, put in FUNCTIONS:
        try:
            return library[get], library[put]
        except AttributeError:
            continue
    return None
