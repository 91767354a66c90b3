"""Columns of pandas and pyarrow. Both are imported when they are first used."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

#: The column of keys, and that of values which have no fields.
_KEY, _VALUE = "key", "value"


def _imported(name: str) -> ModuleType:
    try:
        return __import__(name)
    except ImportError as error:
        raise ImportError(f"this needs {name}, which is not installed: pip install {name}") from error


def _columns(values: NDArray[Any] | list[Any]) -> dict[str, Any]:
    """The values by the names of their columns. Raw bytes are objects, because columns have no such type."""
    if isinstance(values, list):
        return {_VALUE: values}
    dtype = values.dtype
    if dtype.names is not None:
        return {name: np.ascontiguousarray(values[name]) for name in dtype.names}
    if dtype.kind == "V":
        return {_VALUE: [value.tobytes() for value in values]}
    return {_VALUE: values}


def to_pandas(keys: NDArray[Any], values: NDArray[Any] | list[Any]) -> pd.DataFrame:
    """Keys as the index, values as columns."""
    pandas = _imported("pandas")
    frame: pd.DataFrame = pandas.DataFrame(_columns(values), index=pandas.Index(keys, name=_KEY))
    return frame


def to_arrow(keys: NDArray[Any], values: NDArray[Any] | list[Any]) -> pa.Table:
    """Keys and values as columns."""
    pyarrow = _imported("pyarrow")
    table: pa.Table = pyarrow.table({_KEY: keys, **_columns(values)})
    return table


def pairs_of(
    frame: pd.DataFrame | pa.Table, key: str | None, dtype: np.dtype[Any] | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Keys and values of type `dtype` in the columns of `frame`; without one they have any length."""
    name = _KEY if key is None else key
    columns = _columns_of(frame, name)
    if name not in columns:
        raise KeyError(f"no column {name!r} has the keys; there are {list(columns)}")
    keys = columns.pop(name)
    if dtype is None or dtype.names is None:
        if len(columns) != 1:
            raise ValueError(f"values of type {dtype or 'bytes or str'} are one column, not {list(columns)}")
        return keys, next(iter(columns.values()))
    if set(columns) != set(dtype.names):
        raise ValueError(f"values of this type have the columns {list(dtype.names)}, not {list(columns)}")
    values = np.empty(len(keys), dtype)
    for field in dtype.names:
        values[field] = _exactly(columns[field], dtype[field], field)
    return keys, values


def _columns_of(frame: pd.DataFrame | pa.Table, key: str) -> dict[str, NDArray[Any]]:
    """The columns by name; that of the keys may be the index."""
    if hasattr(frame, "column_names"):
        return {name: frame[name].to_numpy() for name in frame.column_names}
    columns = {str(name): frame[name].to_numpy() for name in frame.columns}
    if key not in columns and key in (_KEY, frame.index.name):
        columns = {key: frame.index.to_numpy(), **columns}
    return columns


def _exactly(column: NDArray[Any], dtype: np.dtype[Any], field: str) -> NDArray[Any]:
    """The column in this type, which must hold what it has."""
    with np.errstate(invalid="ignore"):
        cast = column.astype(dtype)
        is_same = np.array_equal(cast.astype(column.dtype), column, equal_nan=column.dtype.kind == "f")
    if is_same and column.dtype.kind in "iuf" and dtype.kind in "iuf":
        # Integers that wrap come back as they were, but for their sign.
        is_same = np.array_equal(cast < 0, column < 0)
    if not is_same:
        raise TypeError(f"column {field!r} of {column.dtype} has values that {dtype} does not hold exactly")
    return cast
