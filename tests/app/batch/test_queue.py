"""How work is handed out: the largest first, tasks by measured rate, what was lost piece by piece."""

from __future__ import annotations

from cloakwork.app.batch.pieces import Piece, PieceKind, result_name
from cloakwork.app.batch.queue import LEAST_SECONDS, MOST_BYTES, MOST_SECONDS, SHARE, WorkQueue


def piece(name: str, samples: int, byte_count: int = 1) -> Piece:
    return Piece(PieceKind.FILE, name, samples, byte_count)


def test_the_largest_goes_first_whatever_the_number_of_files():
    queue = WorkQueue([piece("a", 1), piece("b", 300), piece("c", 20), piece("d", 300)])
    assert [queue.take(1)[0].name for _ in range(4)] == ["b", "d", "c", "a"]
    assert len(queue) == 0


def test_one_piece_until_the_rate_is_known():
    assert [each.name for each in WorkQueue([piece("a", 1), piece("b", 1)]).take(2)] == ["a"]


def test_small_files_go_together_for_as_long_as_the_work_left_allows():
    queue = WorkQueue(piece(f"{i:04d}", 1) for i in range(1000))
    queue.measured(samples=50, seconds=1.0)
    assert len(queue.take(2)) == 100 == MOST_SECONDS * 50
    sizes = []
    while queue:
        sizes.append(len(queue.take(2)))
    assert sizes[0] == 100 and sizes[-1] <= LEAST_SECONDS * 50 and sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == 900 and all(size <= max(1000 / SHARE / 2, 1) for size in sizes)


def test_a_task_holds_few_bytes():
    queue = WorkQueue(piece(f"{i}", 1, MOST_BYTES // 2) for i in range(6))
    queue.measured(1000, 1.0)
    assert len(queue.take(1)) == 2


def test_what_was_lost_goes_out_alone():
    queue = WorkQueue(piece(f"{i}", 1) for i in range(50))
    queue.measured(100, 1.0)
    lost = queue.take(1)
    assert len(lost) > 1
    for each in lost:
        queue.put(each.again())
    while queue:
        task = queue.take(1)
        assert len(task) == 1 or all(each.attempts == 0 for each in task)


def test_names_of_results():
    assert result_name("a/b.bin") == "a/b.bin.results" and result_name("rows.parquet") == "rows.results.parquet"
