"""Python's values and numpy's arrays, as the bytes that a table stores.

Nothing is changed silently: what a table's type does not hold exactly is refused, with an error that names the
types. Arrays in another order of bytes, or not contiguous, are copied into shape.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from . import _native

#: The type of keys of each kind of eight bytes, as numpy has it.
KEY_DTYPES: dict[_native.Kind, np.dtype[Any]] = {
    "u64": np.dtype(np.uint64),
    "i64": np.dtype(np.int64),
    "f64": np.dtype(np.float64),
    "bytes8": np.dtype("S8"),
}


def key_kind(dtype: DTypeLike) -> _native.Kind:
    """The kind of keys that `dtype` is."""
    wanted = np.dtype(dtype)
    for kind, known in KEY_DTYPES.items():
        if wanted == known:
            return kind
    known_names = ", ".join(str(known) for known in KEY_DTYPES.values())
    raise TypeError(
        f"keys cannot be {wanted}; they are one of {known_names}, or have any length: keys=bytes, keys=str"
    )


#: Keys of any length, as a table is opened for them: `str` stands for its UTF-8.
ByteKey = type[bytes] | type[str]


def byte_key_name(keys: ByteKey) -> Literal["bytes", "str"]:
    """The name of keys of any length."""
    if keys is bytes:
        return "bytes"
    if keys is str:
        return "str"
    raise TypeError(f"keys of any length are bytes or str, not {keys!r}; those of eight bytes are said by key")


def value_dtype(value: DTypeLike | int) -> np.dtype[Any]:
    """The type of values that a user means: a type, or a number of bytes."""
    if isinstance(value, int):
        if value <= 0:
            raise ValueError(f"a value has at least 1 B, not {value}")
        return np.dtype(f"V{int(value)}")
    dtype: np.dtype[Any] = np.dtype(value)
    if dtype.hasobject:
        raise TypeError(f"values of {dtype} hold Python objects, which mean nothing to other processes")
    if dtype.subdtype is not None:
        raise TypeError(f"values of {dtype} are arrays: make them a field of a structured type")
    if dtype.itemsize == 0:
        raise TypeError(f"values of {dtype} have no size: say how long they are, as in 'S16'")
    return dtype


def is_raw(dtype: np.dtype[Any]) -> bool:
    """True for bytes without a meaning."""
    return dtype.kind == "V" and dtype.names is None


def type_name(dtype: np.dtype[Any]) -> str:
    """The name by which a table knows the type of its values; none for raw bytes.

    Structured types have names of any length: a table knows them by a digest of their fields.
    """
    if is_raw(dtype):
        return ""
    if dtype.names is None:
        return dtype.str
    return f"struct-{hashlib.sha256(json.dumps(_fields(dtype)).encode()).hexdigest()[:16]}"


def _fields(dtype: np.dtype[Any]) -> Any:
    if dtype.subdtype is not None:
        item, shape = dtype.subdtype
        return [_fields(item), list(shape)]
    if dtype.names is None or dtype.fields is None:
        return dtype.str
    fields = [[name, _fields(dtype.fields[name][0]), dtype.fields[name][1]] for name in dtype.names]
    return [dtype.itemsize, fields]


def stored_dtype(name: str, value_bytes: int, table: str) -> np.dtype[Any]:
    """The type of values that a table knows by this name."""
    if not name:
        return value_dtype(value_bytes)
    try:
        dtype = value_dtype(np.dtype(name))
    except (TypeError, ValueError, SyntaxError):
        dtype = None
    # A server may say anything.
    if dtype is None or dtype.itemsize != value_bytes or type_name(dtype) != name:
        raise TypeError(
            f"values of table {table!r} are of a type that it knows as {name!r}: name the type that they were made "
            f"with, or {value_bytes} for raw bytes"
        )
    return dtype


#: The types of values of any length, and the names by which tables know them. One made elsewhere has bytes.
VALUE_NAMES: dict[type[bytes] | type[str], str] = {bytes: "", str: "str"}


def stored_value(name: str, table: str) -> type[bytes] | type[str]:
    """The type of values of any length that a table knows by this name."""
    for value, known in VALUE_NAMES.items():
        if known == name:
            return value
    raise TypeError(
        f"values of table {table!r} have any length and are of a type that it knows as {name!r}: open it as bytes"
    )


#: How long a pair stays: seconds, or `math.inf`.
Lifetime = float | timedelta
#: Milliseconds of a pair that stays until it is removed.
ENDLESS_MS = 2**64 - 1


def ttl_ms(ttl: Lifetime) -> int:
    """A lifetime in whole milliseconds."""
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if math.isnan(seconds) or seconds < 0:
        raise ValueError(f"a pair stays for a number of seconds that is not negative, not {ttl!r}")
    return ENDLESS_MS if math.isinf(seconds) else min(int(seconds * 1000), ENDLESS_MS - 1)


def any_length(value: Any, wanted: type[bytes] | type[str], what: str) -> bytes:
    """The bytes of one value of any length."""
    if wanted is str and isinstance(value, str):
        return value.encode()
    if wanted is bytes and isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{what} is {type(value).__name__}, the table holds {wanted.__name__}")


def array(values: ArrayLike, dtype: np.dtype[Any], what: str) -> np.ndarray[Any, np.dtype[Any]]:
    """`values` as a contiguous vector of exactly `dtype`."""
    if type(values) is np.ndarray and values.dtype == dtype and values.ndim == 1:
        flags = values.flags
        if flags.c_contiguous and flags.aligned:
            return values  # As the rest would say, five times faster.
    if isinstance(values, np.ma.MaskedArray):
        values = _unmasked(values, what)
    given = values if isinstance(values, np.ndarray) else _of_sequence(values, dtype, what)
    if given.ndim != 1:
        raise ValueError(f"{what} are one vector, not an array of shape {given.shape}")
    if given.dtype != dtype:
        given = _cast(given, dtype, what)
    return np.require(given, requirements=["C", "A"])


def room(out: Any, dtype: np.dtype[Any], count: int) -> NDArray[np.uint8]:
    """The bytes of the array into which a caller wants `count` values, if they fit exactly."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out is {type(out).__name__}, not an array of numpy")
    if out.dtype != dtype:
        raise TypeError(f"out is an array of {out.dtype}, the table holds {dtype}")
    if out.shape != (count,):
        raise ValueError(f"out has the shape {out.shape}, {count} keys need {(count,)}")
    if not out.flags.carray:
        raise ValueError("out is not contiguous, not aligned, or read-only")
    return out.view(np.uint8)


def scalar(value: Any, dtype: np.dtype[Any], what: str) -> np.ndarray[Any, np.dtype[Any]]:
    """One value as a vector of exactly `dtype`."""
    if isinstance(value, np.generic):
        return array(np.array([value], value.dtype), dtype, what)
    if isinstance(value, (bytearray, memoryview)):
        value = bytes(value)
    return array([value], dtype, what)


def _of_sequence(values: ArrayLike, dtype: np.dtype[Any], what: str) -> np.ndarray[Any, Any]:
    """Python's own values: read as `dtype` where numpy would guess another type than they mean."""
    items: list[Any] = list(values) if isinstance(values, Iterable) else [values]
    if not items:
        return np.array(items, dtype)
    if dtype.names is not None:
        return _records(items, dtype, what)
    if is_raw(dtype) and all(isinstance(item, bytes) for item in items):
        # numpy takes zeros at the end for padding.
        for item in items:
            if len(item) != dtype.itemsize:
                raise ValueError(f"one of the {what} has {len(item)} B, the table holds {dtype.itemsize} B")
        return np.frombuffer(b"".join(items), dtype)
    if dtype.kind in "iu" and all(isinstance(item, int) for item in items):
        # Large integers beside small ones would become floats or objects; others wrap, before numpy 2.
        bounds = np.iinfo(dtype)
        for item in (min(items), max(items)):
            if not bounds.min <= item <= bounds.max:
                raise OverflowError(f"{what} have {item} among them, which is none of {dtype}")
        return np.array(items, dtype)
    if dtype.kind in "fc":
        return _floats(items, dtype, what)
    return np.asarray(items)


def _floats(items: list[Any], dtype: np.dtype[Any], what: str) -> np.ndarray[Any, Any]:
    """Python's numbers, where numpy makes near floats of integers that stand beside floats."""
    if not all(isinstance(item, float) for item in items):
        if any(item is np.ma.masked for item in items):
            raise _masked(what)
        if not any(isinstance(item, (float, complex, np.inexact)) for item in items):
            return np.asarray(items)
        for item in items:
            if isinstance(item, (int, np.integer)) and not _is_held(int(item), dtype):
                raise OverflowError(f"{what} have {item} among them, which is none of {dtype}")
        if dtype.kind == "c" or not all(isinstance(item, (int, float)) for item in items):
            return np.asarray(items)
    # Python knows one width of floats; to be stored in a narrower one is what they are here for.
    with np.errstate(over="ignore"):
        stored = np.array(items, dtype)
    for index in np.flatnonzero(np.isinf(stored)):
        if not math.isinf(items[index]):
            raise OverflowError(f"{what} have {items[index]} among them, which is beyond {dtype}")
    return stored


def _is_held(integer: int, dtype: np.dtype[Any]) -> bool:
    """True if a type of floats has this very integer."""
    try:
        with np.errstate(over="ignore"):
            return int(dtype.type(integer).real) == integer
    except OverflowError:
        return False


def _unmasked(values: np.ma.MaskedArray[Any, Any], what: str) -> np.ndarray[Any, Any]:
    """What a masked array holds, if nothing is masked: what stands there is none of its items."""
    if np.any(np.ma.flatten_mask(np.ma.getmaskarray(values))):
        raise _masked(what)
    return np.asarray(values)


def _masked(what: str) -> TypeError:
    return TypeError(f"{what}: masked items, which no table holds: fill them, or leave them out")


def _records(items: list[Any], dtype: np.dtype[Any], what: str) -> np.ndarray[Any, Any]:
    """Structures. numpy cuts what a field does not hold: so each field is looked at as a table of it would be."""
    rows = [item.item() if isinstance(item, np.void) and item.dtype != dtype else item for item in items]
    # What overflows there is found below.
    with np.errstate(over="ignore"):
        records = np.array(rows, dtype)
    tuples = [row for row in rows if isinstance(row, tuple)]
    for place, name in enumerate(dtype.names or ()):
        field = dtype[name]
        column = [row[place] for row in tuples]
        if field.subdtype is not None:
            field, column = field.base, np.asarray(column).reshape(-1).tolist()
        if field.kind == "S":
            column = [value.encode() if isinstance(value, str) else value for value in column]
        if field.kind in "iufbSU" or field.names is not None:
            array(column, field, f"{what}, in field {name!r},")
    return records


def _cast(given: np.ndarray, dtype: np.dtype[Any], what: str) -> np.ndarray:
    """`given` as `dtype`, if that holds each of its items exactly."""
    mismatch = TypeError(f"{what} are {given.dtype}, the table holds {dtype}")
    if given.dtype.newbyteorder("=") == dtype.newbyteorder("="):
        return given.astype(dtype)
    if is_raw(dtype):
        # Raw bytes take any type of their size, as it lies in memory.
        if given.dtype.itemsize != dtype.itemsize or given.dtype.hasobject:
            raise mismatch
        return np.ascontiguousarray(given).view(dtype)
    if dtype.kind in "SU" and given.dtype.kind == dtype.kind:
        unit, unit_bytes = ("B", 1) if dtype.kind == "S" else ("characters", np.dtype("U1").itemsize)
        longest, most = int(np.char.str_len(given).max(initial=0)), dtype.itemsize // unit_bytes
        if longest > most:
            raise ValueError(f"{what} have up to {longest} {unit}, the table holds {most} {unit}")
        return given.astype(dtype)
    if given.dtype.kind not in "iufb" or dtype.kind not in "iufb":
        raise mismatch
    if np.can_cast(given.dtype, dtype, "safe") and not (given.dtype.kind in "iu" and dtype.kind == "f"):
        return given.astype(dtype)
    if given.dtype.kind == "f":
        raise mismatch
    with np.errstate(invalid="ignore"):
        cast = given.astype(dtype)
        unchanged = (cast.astype(given.dtype) == given) & ((cast < 0) == (given < 0))
    if not unchanged.all():
        first = given[~unchanged][0]
        raise OverflowError(f"{what} are {given.dtype}, and {first} among them is none of {dtype}")
    return cast
