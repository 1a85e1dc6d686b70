# SPDX-License-Identifier: Apache-2.0
"""Which of some numbered things come before which, and which of them can be brought together."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable

import numpy as np


class Order:
    """Which things come before which. Two can be joined if nothing has to come between them."""

    def __init__(self, after: list[set[int]]) -> None:
        """`after[i]` are larger than i."""
        self.after = [set(a) for a in after]
        self.before: list[set[int]] = [set() for _ in after]
        for i, a in enumerate(after):
            for j in a:
                self.before[j].add(i)
        self.reach = np.zeros((len(after), (len(after) + 63) // 64), np.uint64)
        for i in range(len(after) - 1, -1, -1):
            for j in after[i]:
                self.reach[i] |= self.reach[j]
                self._set(self.reach[i], j)

    @staticmethod
    def _set(row: np.ndarray, i: int) -> None:
        row[i >> 6] |= np.uint64(1 << (i & 63))

    def _reaching(self, i: int) -> np.ndarray:
        return self.reach[:, i >> 6] & np.uint64(1 << (i & 63)) != 0

    def reaches(self, i: int, j: int) -> bool:
        return bool(int(self.reach[i, j >> 6]) >> (j & 63) & 1)

    def can_join(self, i: int, j: int) -> bool:
        for a, b in ((i, j), (j, i)):
            if self.reaches(a, b) and any(k != b and self.reaches(k, b) for k in self.after[a]):
                return False
        return True

    def join(self, i: int, j: int) -> None:
        """`j` becomes a part of `i`."""
        both = {i, j}
        row = self.reach[i] | self.reach[j]
        for k in both:
            row[k >> 6] &= ~np.uint64(1 << (k & 63))
        above = self._reaching(i) | self._reaching(j)
        above[[i, j]] = False
        self.reach[above] |= row
        self.reach[above, i >> 6] |= np.uint64(1 << (i & 63))
        self.reach[above, j >> 6] &= ~np.uint64(1 << (j & 63))
        self.reach[i], self.reach[j] = row, 0
        for mine, others in ((self.after, self.before), (self.before, self.after)):
            for k in mine[j] - both:
                others[k].discard(j)
                others[k].add(i)
            mine[i] = (mine[i] | mine[j]) - both
            mine[j] = set()


def topological(given: Iterable[int], after: list[set[int]], late: Iterable[int] = ()) -> list[int]:
    """In an order that is allowed: the least first, those in `late` when nothing else can come."""
    delayed = set(late)
    waits = Counter(j for i in given for j in after[i])
    ready = [(i in delayed, i) for i in given if waits[i] == 0]
    heapq.heapify(ready)
    found = []
    while ready:
        _, i = heapq.heappop(ready)
        found.append(i)
        for j in after[i]:
            waits[j] -= 1
            if waits[j] == 0:
                heapq.heappush(ready, (j in delayed, j))
    return found
