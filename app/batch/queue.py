"""The queue of pieces: which are handed out next, and how many at once.

The largest go first, so that the run does not end with one worker busy. A task takes pieces until it is worth a part of the work that is left
for each worker, between a tenth of a second and two seconds by the rate measured so far: Ray's overhead of about a millisecond for a task is
then below a few percent, and a worker that is lost loses little. What was lost goes out again piece by piece.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from typing import Final

from cloakwork.app.batch.pieces import Piece

SHARE: Final = 4  # a task is at most one part in so many of what is left for a worker
LEAST_SECONDS: Final = 0.1
MOST_SECONDS: Final = 2.0
MOST_BYTES: Final = 64 << 20


class WorkQueue:
    def __init__(self, pieces: Iterable[Piece] = ()) -> None:
        self._waiting: list[tuple[int, int, Piece]] = []
        self._order = itertools.count()
        self._left = 0
        self._samples, self._seconds = 0, 0.0
        for piece in sorted(pieces, key=lambda piece: (-piece.samples, piece.name, piece.group, piece.first)):
            self.put(piece)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> Piece:
        """The piece that the next task begins with."""
        return self._waiting[0][2]

    def put(self, piece: Piece) -> None:
        """Adds a piece; among pieces of equal work the first comes first."""
        heapq.heappush(self._waiting, (-piece.samples, next(self._order), piece))
        self._left += piece.samples

    def measured(self, samples: int, seconds: float) -> None:
        """Records the seconds that one worker took for a number of samples."""
        self._samples += samples
        self._seconds += seconds

    def take(self, workers: int) -> list[Piece]:
        """Returns the next task, of at least one piece."""
        task = [self._pop()]
        if task[0].attempts:
            return task
        limit, samples, byte_count = self._limit(workers), task[0].samples, task[0].byte_count
        while self._waiting:
            following = self.first
            samples, byte_count = samples + following.samples, byte_count + following.byte_count
            if following.attempts or samples > limit or byte_count > MOST_BYTES:
                break
            task.append(self._pop())
        return task

    def _pop(self) -> Piece:
        piece = heapq.heappop(self._waiting)[2]
        self._left -= piece.samples
        return piece

    def _limit(self, workers: int) -> float:
        """Returns samples of a task; one piece while nothing has been measured."""
        if not self._seconds:
            return 0
        rate = self._samples / self._seconds
        return min(max(self._left / (SHARE * workers), LEAST_SECONDS * rate), MOST_SECONDS * rate)
