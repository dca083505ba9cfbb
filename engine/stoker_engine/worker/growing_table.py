"""GrowingTable: a row of integers per request, in one array."""

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


class GrowingTable:
    """Rows and columns double when they run out. Memory that no row reached is never touched, so a long row does not cost the others theirs."""

    def __init__(self, num_rows: int, num_columns: int) -> None:
        self.data: npt.NDArray[np.int32] = np.zeros((num_rows, num_columns), dtype=np.int32)
        self.lengths: Int64s = np.zeros(num_rows, dtype=np.int64)

    def reserve(self, num_rows: int, num_columns: int) -> None:
        """Makes room for so many rows and columns."""
        rows, columns = self.data.shape
        if num_rows <= rows and num_columns <= columns:
            return
        shape = (max(rows, _power_of_two(num_rows)), max(columns, _power_of_two(num_columns)))
        data, lengths = np.zeros(shape, dtype=np.int32), np.zeros(shape[0], dtype=np.int64)
        used = int(self.lengths.max(initial=0))
        data[:rows, :used], lengths[:rows] = self.data[:, :used], self.lengths
        self.data, self.lengths = data, lengths

    def set_row(self, row: int, values: list[int]) -> None:
        """Replaces a row."""
        self.reserve(row + 1, len(values))
        self.lengths[row] = 0
        self.extend_row(row, values)

    def extend_row(self, row: int, values: list[int]) -> None:
        """Appends several values to one row."""
        start = int(self.lengths[row])
        end = start + len(values)
        self.reserve(row + 1, end)
        self.data[row, start:end] = values
        self.lengths[row] = end

    def append(self, rows: Int64s, lengths: Int64s, values: Int64s) -> None:
        """Appends one value to each of several distinct rows, given their lengths. `reserve` has made room."""
        self.data[rows, lengths] = values
        self.lengths[rows] = lengths + 1


def _power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()
