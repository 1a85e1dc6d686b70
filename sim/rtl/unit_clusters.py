# SPDX-License-Identifier: Apache-2.0
"""Which units of a model are worth being executed together, and only when something that they read has changed."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from model_units import Unit, Variable_
from unit_order import Order

SAMPLES = 4096  # cycles of a record that are looked at, at most
MOST = 64  # parts: a bit each of one word


class Costs(NamedTuple):
    """In instructions, but `busy`. Others near these (20 to 60, 30 to 60, 4 to 8, 0.6 to 0.9) make a few per cent."""

    question: float = 20.0  # is a part due?
    surprise: float = 60.0  # for a branch that goes both ways equally often, twice as much
    compare: float = 4.0  # has a variable changed?
    busy: float = 0.8  # units that have something to do in so many of the cycles are always executed


class Record(NamedTuple):
    """In which cycles a variable changed: a row of bits for each name, `count` cycles."""

    rows: dict[str, np.ndarray]
    rates: dict[str, float]
    words: int
    count: int

    @staticmethod
    def read(path: Path, names: list[str]) -> Record:
        """`path`: for each cycle that was looked at a bit for each name, in whole bytes (gated_code.py)."""
        width = (len(names) + 7) // 8
        data = np.fromfile(path, np.uint8)
        cycles = data[: len(data) // width * width].reshape(-1, width)
        count = min(len(cycles) // 64 * 64, SAMPLES)
        if count == 0:
            raise ValueError(f"expected a record of 64 cycles at least in {path}, found {len(cycles)}")
        cycles = cycles[np.linspace(0, len(cycles) - 1, count).astype(int)]
        bits = np.unpackbits(cycles, axis=1, bitorder="little")[:, : len(names)]
        packed = np.packbits(np.ascontiguousarray(bits.T), axis=1).view(np.uint64)
        rates = bits.mean(axis=0)
        return Record(
            dict(zip(names, packed, strict=True)),
            {name: float(rate) for name, rate in zip(names, rates, strict=True)},
            packed.shape[1],
            count,
        )


class Part(NamedTuple):
    """Units that are executed when one of their inputs has changed: in `rate` of the cycles."""

    units: frozenset[int]
    rate: float
    cost: float


def label(variable: Variable_) -> str:
    return variable if isinstance(variable, str) else f"{variable[0]}:{variable[1]}"


def parts_of(units: list[Unit], after: list[set[int]], record: Record, costs: Costs) -> list[Part]:
    """Parts that spare something, each convex in the order of the units; what is in none is always executed.

    Those are joined, again and again, that spare most together: what one executes for the other in vain, against a
    question less and comparisons of variables that stay within.
    """
    clusters = Clusters(units, after, record, costs)
    clusters.join_alike()
    clusters.join_best()
    return clusters.worthwhile()


class Clusters:
    def __init__(self, units: list[Unit], after: list[set[int]], record: Record, costs: Costs) -> None:
        self.units, self.record, self.costs = units, record, costs
        self.order = Order(after)
        self.members = [[i] for i in range(len(units))]
        self.cost = np.array([u.cost for u in units])
        self.active = np.zeros((len(units), record.words), np.uint64)
        for i, unit in enumerate(units):
            for variable in unit.reads:
                if (row := record.rows.get(label(variable))) is not None:
                    self.active[i] |= row
        self.rate = self._rate(self.active)
        self.free = self.rate < costs.busy

    def _rate(self, rows: np.ndarray) -> np.ndarray:
        return np.bitwise_count(rows).sum(axis=-1, dtype=np.int64) / self.record.count

    def _price(self, cost: np.ndarray, rate: np.ndarray) -> np.ndarray:
        """What a part costs in a cycle."""
        return cost * rate + self.costs.question + self.costs.surprise * np.minimum(rate, 1 - rate)

    def _join(self, i: int, j: int) -> None:
        self.order.join(i, j)
        self.members[i] += self.members[j]
        self.active[i] |= self.active[j]
        self.cost[i] += self.cost[j]
        self.rate[i] = self._rate(self.active[i])
        self.free[j] = False

    def join_alike(self) -> None:
        """Those that are active in the same cycles."""
        alike = defaultdict(list)
        for i in np.flatnonzero(self.free):
            known = alike[self.active[i].tobytes()]
            for first in known:
                if self.order.can_join(first, int(i)):
                    self._join(first, int(i))
                    break
            else:
                known.append(int(i))

    def join_best(self) -> None:
        at = np.flatnonzero(self.free)
        place = {int(i): n for n, i in enumerate(at)}
        active, cost, rate = self.active[at], self.cost[at], self.rate[at]
        link = self._links(place)
        alive = np.ones(len(at), bool)

        def gains(n: int) -> np.ndarray:
            together = self._rate(active | active[n])
            gain = (
                self._price(cost, rate)
                + self._price(cost[n], rate[n])
                - self._price(cost + cost[n], together)
                + link[n] * rate[n]
                + link[:, n] * rate
            )
            gain[~alive] = -np.inf
            gain[n] = -np.inf
            return gain

        gain = np.full((len(at), len(at)), -np.inf, np.float32)
        for n in range(len(at)):
            gain[n] = gains(n)
        best = gain.argmax(axis=1)
        most = gain[np.arange(len(at)), best]
        while True:
            n = int(most.argmax())
            if most[n] <= 0:
                break
            other = int(best[n])
            if not self.order.can_join(int(at[n]), int(at[other])):
                gain[n, other] = gain[other, n] = -np.inf
                stale = np.array([n, other])
            else:
                self._join(int(at[n]), int(at[other]))
                active[n], cost[n], rate[n] = active[n] | active[other], cost[n] + cost[other], self.rate[at[n]]
                alive[other] = False
                link[n] += link[other]
                link[:, n] += link[:, other]
                link[n, n] = 0
                link[other] = link[:, other] = 0
                gain[other] = gain[:, other] = -np.inf
                most[other] = -np.inf
                gain[n] = gains(n)
                gain[:, n] = gain[n]
                better = gain[:, n] > most
                best[better], most[better] = n, gain[better, n]
                stale = np.flatnonzero(alive & ~better & ((best == n) | (best == other)))
                stale = np.append(stale, n)
            best[stale] = gain[stale].argmax(axis=1)
            most[stale] = gain[stale, best[stale]]

    def _links(self, place: dict[int, int]) -> np.ndarray:
        """Instructions spared for each execution of the first if the second is in one part with it."""
        writers, readers = defaultdict(set), defaultdict(set)
        for i, n in place.items():
            for k in self.members[i]:
                for variable in self.units[k].written:
                    writers[variable].add(n)
                for variable in self.units[k].reads:
                    readers[variable].add(n)
        link = np.zeros((len(place), len(place)), np.float32)
        for variable, ns in writers.items():
            for n in ns:
                others = readers[variable] - {n}
                for other in others:
                    link[n, other] += self.costs.compare / len(others)
        return link

    def worthwhile(self) -> list[Part]:
        spared = np.where(self.free, self.cost - self._price(self.cost, self.rate), 0)
        return [
            Part(frozenset(self.members[i]), float(self.rate[i]), float(self.cost[i]))
            for i in np.argsort(-spared)[:MOST]
            if spared[i] > 0
        ]
