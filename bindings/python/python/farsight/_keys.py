"""Python's keys, as the native module takes them: by their 64 bits, or as they are if they have any length."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _convert, _native


class Keys(ABC):
    """What the keys of a table are."""

    #: Their type, as numpy has it.
    dtype: np.dtype[Any]
    #: What it is called.
    name: str

    @abstractmethod
    def one(self, key: Any) -> _native.Key:
        """A single key."""

    @abstractmethod
    def many(self, keys: Any) -> _native.Keys:
        """Many keys."""

    @abstractmethod
    def found(self, key: Any) -> Any:
        """A key that was found, as the native module has it."""


class NumpyKeys(Keys):
    """Keys of eight bytes, in arrays where there are many."""

    def __init__(self, kind: _native.Kind) -> None:
        self.dtype = _convert.KEY_DTYPES[kind]
        self.name = str(self.dtype)
        self._are_words = kind == "u64"

    def one(self, key: Any) -> int:
        if self._are_words and type(key) is int and 0 <= key < 1 << 64:
            return key  # As the rest would say, ten times faster.
        return int(_convert.scalar(key, self.dtype, "the key").view(np.uint64)[0])

    def many(self, keys: ArrayLike) -> NDArray[np.uint64]:
        wanted = _convert.array(keys, self.dtype, "keys")
        return wanted if self._are_words else wanted.view(np.uint64)

    def found(self, key: int) -> Any:
        return np.uint64(key).reshape(1).view(self.dtype)[0]


class ByteKeys(Keys):
    """Keys of any length, in lists where there are many. The native module looks at each."""

    def __init__(self, key: _convert.ByteKey | None) -> None:
        self.dtype = np.dtype(key or bytes)
        self.name = (key or bytes).__name__

    def one(self, key: Any) -> Any:
        return key

    def many(self, keys: Any) -> tuple[Any, ...]:
        if isinstance(keys, (bytes, bytearray, memoryview, str)):
            raise TypeError(f"keys are many, in a list, not one {type(keys).__name__}")
        # One that nobody changes meanwhile.
        return tuple(keys)

    def found(self, key: bytes) -> bytes | str:
        return key.decode() if self.dtype.kind == "U" else key
