"""What hostile servers do to a client, by name: over a hundred cases for clients in any language.

A case changes the client specification, the metadata, single replies or the answer; everything else is honest (honest.py). `samples` names what the
client asks with, `ends` how it has to end: in an "error" of the client's, an "answer", or "either". Whatever it is, in ten seconds and 512 MB.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from servers.honest import PROGRAM, Changes, specification_of
from servers.replies import Reply, as_json, standing

MIB: Final = 1 << 20
FOREVER: Final = None


@dataclass(frozen=True)
class Case:
    """Args:
    replies: by route (server.py), one for all requests or one after the other.
    answer: what becomes of the ciphertexts of an honest answer.
    samples: "one" number, "many" (5,000) of them, "texts" (five of 10 KB), or a "pair" of columns.
    toys: whether the client lets servers of this machine name toy sets, as all cases but those of toy sets need for speed.
    """

    specification: Changes = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    replies: Mapping[str, Reply | Sequence[Reply]] = field(default_factory=dict)
    answer: Callable[[bytes], bytes] = bytes
    samples: str = "one"
    ends: str = "error"
    toys: bool = True


# --- bodies ------------------------------------------------------------------------------------------------------------------------


def bomb() -> bytes:
    """4 GiB of blanks in 4 MB: after a full flush the same compressed bytes can come again. Its end is missing."""
    stream, blanks = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS), b" " * (64 * MIB)
    first, again = (stream.compress(blanks) + stream.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + again * 63


def status_line(headers: bytes, status: int = 200) -> bytes:
    return b"HTTP/1.1 %d OK\r\n%b" % (status, headers)


ENDLESS: Final = Reply(body=b" " * MIB, times=FOREVER)
CHUNKED: Final = Reply(
    body=b"100000\r\n" + b" " * MIB + b"\r\n", times=FOREVER, headers=(("Transfer-Encoding", "chunked"),)
)
GZIPPED: Final = Reply(body=bomb, headers=(("Content-Encoding", "gzip"),))
DRIP: Final = Reply(body=b" ", times=FOREVER, pause=0.3)
SAID_HUGE: Final = Reply(body=b"{", length=1 << 50, cut=True)
CUT: Final = Reply(body=b'{"models":', length=1000, cut=True)
DEEP: Final = Reply(body=b"[" * 200_000)
DEEP_OBJECTS: Final = Reply(body=b'{"a":' * 200_000)
CONTAINERS: Final = Reply(body=b'{"x":[' + b"[]," * (3 * MIB) + b"[]]}")
HUGE_NUMBER: Final = Reply(body=b'{"cloakwork_client":' + b"9" * (4 * MIB) + b"}")
BACKSLASHES: Final = Reply(body=b'\\"' * 400_000)
QUOTES: Final = Reply(body=b'"\\' * 400_000 + b"Infinity")
NO_TEXT: Final = Reply(body=bytes(range(256)) * 64)
REDIRECT: Final = Reply(302, headers=(("Location", "file:///etc/passwd"),))
LOOP: Final = Reply(307, headers=(("Location", "/v2/models/m/versions/1/client"),))
ELSEWHERE: Final = Reply(308, headers=(("Location", "http://169.254.169.254/latest/meta-data"),))
SILENT: Final = Reply(body=b"", times=FOREVER, pause=0.1, raw=True)
NO_HTTP: Final = Reply(body=b"220 smtp.example.org ESMTP\r\n", raw=True)
HEADERS: Final = Reply(body=b"X-Padding: " + b"a" * 1000 + b"\r\n", times=FOREVER, raw=True)
HEADER_DRIP: Final = Reply(body=b"H", times=FOREVER, pause=0.3, raw=True)
CONTINUE: Final = Reply(body=status_line(b"\r\n", 100), times=FOREVER, raw=True)
GONE: Final = Reply(body=b"", raw=True)
LATER: Final = Reply(503, headers=(("Retry-After", "1000000000"),))
LATER_NAN: Final = Reply(503, headers=(("Retry-After", "nan"),))
LATER_ENDLESS: Final = Reply(429, headers=(("Retry-After", "inf"),))
TERMINAL: Final = "\x1b[2J\x1b]0;owned\x07 \u202egnp.exe\r\n"


def refusal(message: Any, code: Any = "unknown", status: int = 400) -> Reply:
    return as_json({"error": message, "code": code}, status)


def on(route: str, reply: Reply | Sequence[Reply], **others: Any) -> Case:
    return Case(replies={route: reply}, **others)


_BODIES: Final = {
    "specification_endless": on("specification", ENDLESS),
    "specification_chunked_endless": on("specification", CHUNKED),
    "specification_gzip_bomb": on("specification", GZIPPED),
    "specification_drip": on("specification", DRIP),
    "specification_says_a_petabyte": on("specification", SAID_HUGE),
    "specification_cut": on("specification", CUT),
    "specification_deep_lists": on("specification", DEEP),
    "specification_deep_objects": on("specification", DEEP_OBJECTS),
    "specification_millions_of_lists": on("specification", CONTAINERS),
    "specification_huge_number": on("specification", HUGE_NUMBER),
    "specification_of_backslashes": on("specification", BACKSLASHES),
    "specification_of_quotes": on("specification", QUOTES),
    "specification_no_text": on("specification", NO_TEXT),
    "specification_empty": on("specification", Reply()),
    "specification_list": on("specification", as_json([1, 2])),
    "specification_redirect_to_a_file": on("specification", REDIRECT),
    "specification_redirect_to_itself": on("specification", LOOP),
    "specification_redirect_elsewhere": on("specification", ELSEWHERE),
    "specification_changes_at_every_look": on("specification", [as_json({"a": 1}), as_json({"b": 2})]),
    "metadata_endless": on("metadata", ENDLESS),
    "metadata_gzip_bomb": on("metadata", GZIPPED),
    "metadata_drip": on("metadata", DRIP),
    "metadata_deep": on("metadata", DEEP_OBJECTS),
    "metadata_millions_of_lists": on("metadata", CONTAINERS),
    "metadata_without_versions": on("metadata", as_json({"parameters": {"fhe": {}}})),
    "metadata_version_is_a_path": on(
        "metadata", as_json({"versions": ["../../../v2/keys"], "parameters": {"fhe": {}}})
    ),
    "metadata_version_is_dots": on("metadata", as_json({"versions": [".."], "parameters": {"fhe": {}}})),
    "metadata_version_of_a_megabyte": on("metadata", as_json({"versions": ["1" * MIB], "parameters": {"fhe": {}}})),
    "metadata_redirect": on("metadata", ELSEWHERE),
    "metadata_silent": on("metadata", SILENT),
    "metadata_no_http": on("metadata", NO_HTTP),
    "metadata_headers_endless": on("metadata", HEADERS),
    "metadata_headers_drip": on("metadata", HEADER_DRIP),
    "metadata_continue_for_ever": on("metadata", CONTINUE),
    "metadata_connection_always_cut": on("metadata", GONE),
    "metadata_later_in_thirty_years": on("metadata", LATER),
    "metadata_later_in_nan_seconds": on("metadata", LATER_NAN),
    "metadata_later_for_ever": on("metadata", LATER_ENDLESS),
    "error_endless": on("specification", Reply(400, b" " * MIB, times=FOREVER)),
    "error_gzip_bomb": on("specification", Reply(400, bomb, headers=(("Content-Encoding", "gzip"),))),
    "error_drip": on("specification", Reply(500, b" ", times=FOREVER, pause=0.3)),
    "error_deep": on("specification", Reply(404, b"[" * 100_000)),
    "error_commands_the_terminal": on("specification", refusal(TERMINAL, "zzz")),
    "error_of_three_megabytes": on("specification", refusal("A" * (3 * MIB))),
    "error_is_an_object_that_is_no_text": on("specification", refusal({"toString": 1}, {"valueOf": 1, "toString": 1})),
    "error_is_a_list": on("specification", refusal([[1]] * 1000, {"a": 1})),
    "error_code_of_the_engine": on("specification", refusal("the key is wrong\n" * 9, "key_mismatch")),
    "error_request_id_commands": on(
        "specification", Reply(400, b"{}", headers=(("X-Request-Id", "\x1b[2J" + "a" * 9000),))
    ),
}


# --- specifications ------------------------------------------------------------------------------------------------------------------


def columns(count: int = 1, names: list[str] | None = None) -> dict[str, Any]:
    return {"step": "Columns", "count": count, "names": names, "missing": False}


def prepared(*steps: dict[str, Any], samples: str = "one", **others: Any) -> Case:
    """A table of one column, through these steps."""
    return Case({"input_steps": [columns(), *steps]}, samples=samples, **others)


def texts(**changes: Any) -> dict[str, Any]:
    fields = {
        "step": "Texts",
        "vocabulary": [],
        "hashed": 1 << 20,
        "signed": False,
        "analyzer": "char",
        "pattern": r"\w+",
        "lowercase": True,
        "accents": "",
        "stop": [],
        "shortest": 1,
        "longest": 1,
        "binary": False,
    }
    return fields | changes


FIRST: Final = {"step": "Select", "columns": [0]}


def doubled(times: int) -> list[dict[str, Any]]:
    """Tables of 2^times columns, each step beside its own copy."""
    return [{"step": "Append", "columns": list(range(1 << k)), "steps": []} for k in range(times)]


def nested(depth: int) -> dict[str, Any]:
    step: dict[str, Any] = {"step": "Append", "columns": [0], "steps": []}
    for _ in range(depth):
        step = {"step": "Append", "columns": [0], "steps": [step, FIRST]}
    return step


def nested_text() -> bytes:
    """A specification with steps as deep as no encoder of JSON goes."""
    fields = json.dumps(specification_of({"input_steps": [columns(), "inner"]}))
    opening = '{"step": "Append", "columns": [0], "steps": ['
    return fields.replace('"inner"', opening * 5000 + "]}" * 5000).encode()


def fanned(depth: int, wide: int) -> dict[str, Any]:
    """Steps in steps in steps: wide^depth of them, under fewer than a thousand in each list."""
    step: dict[str, Any] = {"step": "Append", "columns": [0], "steps": []}
    for _ in range(depth):
        step = {"step": "Append", "columns": [0], "steps": [step, FIRST] * wide}
    return step


def splines(knots: int, degree: int = 16) -> dict[str, Any]:
    return {
        "step": "Splines",
        "knots": [[float(i)] for i in range(knots)],
        "degree": degree,
        "outside": "constant",
        "bias": True,
    }


def function(name: str) -> dict[str, Any]:
    return {"step": "Function", "name": name}


def index(**changes: Any) -> Case:
    fields = {
        "format": "cloakwork neighbours client 1",
        "set": "bgv16",
        "plaintext_modulus": 65537,
        "level": 47,
        "answer_level": 1,
        "rows": 1,
        "centre": [0.0],
        "step": 1.0,
        "limit": 1 << 62,
        "metric": "euclidean",
        "target": [1],
        "classes": [1],
        "n_neighbors": 1,
        "weights": "uniform",
        "score_offset": 0,
    }
    return Case(fields | changes, {"kind": "index", "program_digest": PROGRAM})


def batch(features: int = 1, **changes: Any) -> Case:
    """A model for batches, of one column that counts as so many features."""
    numbers = {"lower": [0.0], "upper": [1.0], "offset": [0.5], "scale": [8192.0]}
    fields = {
        "format": "cloakwork batches client 1",
        "set": "bgv12",
        "plaintext_moduli": [67108863],
        "packing": "coefficients",
        "level": 2,
        "answer_level": 2,
        "products": False,
        "limit": 4096,
        "features": features,
        "unit": [1e-8],
        "told": [0.0],
        "input_steps": [
            {"step": "Columns", "count": 1, "names": None, "missing": False},
            *([{"step": "Append", "columns": [0] * (features - 1), "steps": []}] if features > 1 else []),
            {"step": "Rescale", **{name: value * features for name, value in numbers.items()}},
            {"step": "Round"},
        ],
        "votes": None,
        "output_steps": [],
        "radial": None,
        "program": None,
    }
    return Case(fields | changes, {"kind": "batch", "program_digest": PROGRAM})


_STEPS: Final = {
    "append_doubles_twenty_times": prepared(*doubled(20), FIRST, samples="many"),
    "append_two_million_columns": prepared({"step": "Append", "columns": [0] * (2 * MIB), "steps": []}, FIRST),
    "append_nested_deep": prepared(nested(150), FIRST),
    "append_nested_beyond_recursion": on("specification", Reply(body=nested_text)),
    "append_a_million_steps": prepared(fanned(3, 40), FIRST, samples="many"),
    "splines_of_200_000_knots": prepared(splines(200_000), FIRST, samples="many"),
    "splines_of_degree_a_million": prepared(splines(100, 10**6), FIRST),
    "functions_a_thousand": prepared(*[function("exp2"), function("log2")] * 499, samples="many", ends="either"),
    "functions_100_000": prepared(*[function("exp2")] * 100_000),
    "texts_hashed_to_a_million": Case({"input_steps": [texts(longest=64), FIRST]}, samples="texts"),
    "texts_hashed_to_a_trillion": Case({"input_steps": [texts(hashed=1 << 40), FIRST]}, samples="texts"),
    "texts_of_long_pieces": Case(
        {"input_steps": [texts(hashed=16, longest=64), FIRST]}, samples="texts", ends="either"
    ),
    "texts_with_a_pattern_that_never_ends": Case(
        {"input_steps": [texts(hashed=16, analyzer="word", pattern="(a+)+$"), FIRST]}, samples="texts"
    ),
    "texts_of_a_million_words": Case(
        lambda: {"input_steps": [texts(hashed=0, vocabulary=[f"w{i}" for i in range(MIB)]), FIRST]},
        samples="texts",
        ends="either",
    ),
    "one_hot_of_a_trillion": prepared({"step": "OneHot", "sizes": [1 << 40]}, FIRST),
    "one_hot_of_half_a_million": prepared({"step": "OneHot", "sizes": [1 << 19]}, FIRST, samples="many"),
    "select_a_column_four_million_times": prepared(
        {"step": "Select", "columns": [0] * (4 * MIB)}, FIRST, samples="many"
    ),
    "select_a_column_that_is_not_there": prepared({"step": "Select", "columns": [1 << 40]}),
    "project_to_a_million": prepared(
        {"step": "Project", "matrix": [[1.0] * (1 << 20)], "offset": None}, FIRST, samples="many"
    ),
    "step_that_does_not_exist": prepared({"step": "__import__('os').system('true')"}),
    "step_is_a_number": Case({"input_steps": [5]}),
    "input_of_sixteen_million": Case({"input_shape": [1 << 24]}),
    "input_of_too_many": Case({"input_shape": [1 << 40]}),
    "input_of_thirty_dimensions": Case({"input_shape": [2] * 31}),
    "input_of_negative_size": Case({"input_shape": [-1]}),
    "input_scale_subnormal": Case({"input_scale": 5e-324}, ends="either"),
    "input_range_infinite": Case({"input_range": [-1e300, 1e300], "input_scale": 1e-301}, ends="either"),
    "input_range_turned": Case({"input_range": [1, -1]}),
    "input_scale_is_true": Case({"input_scale": True}),
    "output_of_a_million": Case(lambda: {"output_scale": [1.0] * MIB, "output_offset": [0.0] * MIB}),
    "output_of_a_million_wide_words": Case(
        lambda: {"output_scale": [1.0] * MIB, "output_offset": [0.0] * MIB, "parameter_set": "toy_two_limb"}
    ),
    "output_scale_nan": Case({"output_scale": [float("nan")]}),
    "output_scale_deep": Case(lambda: {"output_scale": json.loads("[" * 500 + "1.0" + "]" * 500)}),
    "output_scale_zero": Case({"output_scale": [0.0]}),
    "output_step_unknown": Case({"output_steps": [{"step": "Eval", "code": "1"}]}),
    "columns_of_a_million": Case({"input_steps": [columns(1 << 20)]}),
    "columns_named_in_megabytes": Case({"input_steps": [columns(1, ["n" * (4 * MIB)])]}, samples="pair"),
    "labels_that_command_the_terminal": Case(
        {"output_steps": [{"step": "Labels", "labels": [TERMINAL, "b"], "threshold": 0.5}]}, ends="either"
    ),
    "program_digest_is_none": Case({"program_digest": "zz"}),
    "version_of_the_future": Case({"cloakwork_client": 10**9}),
    "prototype_pollution": Case(
        {"__proto__": {"polluted": 1}, "constructor": {"prototype": {"polluted": 1}}}, ends="either"
    ),
    "index_with_a_huge_limit": index(),
    "index_of_a_billion_rows": index(rows=1 << 30),
    "index_of_a_huge_modulus": index(plaintext_modulus=1 << 4000),
    "index_whose_target_is_objects": index(target=[{"a": 1}]),
    "index_whose_centre_is_nested": index(centre=[[[0.0]]]),
    "index_of_real_rows": index(rows=1e400),
    "batch_of_forty_thousand_features": batch(40_000),
    "batch_of_ten_thousand_features": batch(10_000),
    "batch_of_many_ciphertexts": batch(20_000, set="bgv16", level=40),
    "batch_of_a_billion_features": Case(batch().specification | {"features": 1 << 30}, {"kind": "batch"}),
    "batch_of_a_huge_modulus": batch(plaintext_moduli=[1 << 4000]),
    "batch_of_many_moduli": batch(plaintext_moduli=[67108863, 67108861, 67108859, 67108857]),
    "batch_of_endless_units": batch(unit=[1e400]),
    "batch_whose_answers_fill_memory": batch(unit=[1.0] * 500_000, told=[0.0] * 500_000),
    "batch_whose_program_is_a_list": batch(program=[[]]),
    "batch_whose_packing_is_a_list": batch(packing=["slots"]),
    "batch_whose_radial_is_a_number": batch(radial=1),
}

# --- parameter sets ------------------------------------------------------------------------------------------------------------------


def of_set(name: Any, **others: Any) -> Case:
    return Case({"parameter_set": name}, **others)


_SETS: Final = {
    "set_toy": of_set("toy", toys=False),
    "set_toy_gate": of_set("toy_gate", toys=False),
    "set_toy_of_an_index": Case(
        index(set="toy_bgv12", plaintext_modulus=2, level=1, limit=1).specification, {"kind": "index"}, toys=False
    ),
    "set_toy_of_a_batch": Case(batch(set="toy_bgv12").specification, {"kind": "batch"}, toys=False),
    "set_of_a_paper": of_set("papers/velofhe_mr1"),
    "set_with_structured_keys": of_set("nn2_block"),
    "set_of_two_parties": of_set("lut3_2p"),
    "set_is_a_path": of_set("../../../somewhere/x"),
    "set_is_a_list": Case({"parameter_set": ["toy"]}),
    "set_with_keys_of_430_MiB": of_set("gate_ap"),
    "set_with_keys_of_600_MiB": of_set("fine5"),
    "set_of_another_row": Case({"parameter_digest": "12" * 32}),
}

# --- uploads of keys -----------------------------------------------------------------------------------------------------------------


def at(offset: Any) -> Reply:
    return standing("k1", offset)


_UPLOADS: Final = {
    "upload_always_at_zero": Case(replies={"part": at(0), "offset": at(0)}),
    "upload_at_minus_5000": Case(replies={"offset": at(-5000)}),
    "upload_part_at_minus_one": Case(replies={"part": at(-1)}),
    "upload_beyond_the_end": Case(replies={"offset": at(1 << 60)}),
    "upload_part_beyond_the_end": Case(replies={"part": at(1 << 60)}),
    "upload_back_and_forth": Case(replies={"part": [at(2000), at(1000)] * 50_000, "offset": at(0)}),
    "upload_at_no_number": Case(replies={"part": at("zero")}),
    "upload_at_a_number_of_many_digits": Case(replies={"part": at("9" * 5000)}),
    "upload_at_nan": Case(replies={"offset": at("nan")}),
    "upload_one_byte_further_each_time": Case(replies={"part": [at(k) for k in range(1, 3000)]}),
    "upload_opened_at_minus_5000": on(
        "opening", as_json({"id": "k1", "state": "open", "offset": -5000}), ends="either"
    ),
    "upload_opened_beyond_the_end": on(
        "opening", as_json({"id": "k1", "state": "open", "offset": 1 << 60}), ends="either"
    ),
    "upload_opened_at_no_number": on(
        "opening", as_json({"id": "k1", "state": "open", "offset": {"valueOf": 1}}), ends="either"
    ),
    "upload_answers_name_nothing": Case(replies={"part": Reply(body=b'{"id": "", "offset": 5}')}, ends="either"),
    "upload_answers_name_a_list": Case(replies={"part": Reply(body=b'{"id": [[]], "offset": [5]}')}, ends="either"),
    "upload_further_than_it_is_sent": Case(replies={"part": [at(4 * MIB * k) for k in range(1, 9)]}),
    "upload_without_a_name": on("opening", as_json({"state": "open"})),
    "upload_named_by_a_path": on("opening", as_json({"id": "../../v2/models", "state": "open"})),
    "upload_named_by_dots": on("opening", as_json({"id": "..", "state": "open"})),
    "upload_named_by_a_list": on("opening", as_json({"id": ["a"], "state": "open"})),
    "upload_named_in_megabytes": on("opening", as_json({"id": "k" * MIB, "state": "open"})),
    "upload_named_with_a_line": on("opening", as_json({"id": "k\r\nX-Evil: 1", "state": "ready"})),
    "upload_opening_endless": on("opening", ENDLESS),
    "upload_opening_gzip_bomb": on("opening", GZIPPED),
    "upload_opening_redirect": on("opening", LOOP),
    "upload_part_endless": on("part", Reply(body=b" " * MIB, times=FOREVER, headers=(("Upload-Offset", "1"),))),
    "upload_part_drip": on("part", DRIP),
    "upload_part_redirect": on("part", ELSEWHERE),
    "upload_part_refused_in_megabytes": on("part", refusal("B" * (8 * MIB), status=413)),
    "upload_part_always_cut": Case(replies={"part": GONE, "offset": at(0)}),
    "upload_forgotten_again_and_again": on("infer", refusal("which key?", "unknown_key", 404)),
}

# --- jobs ----------------------------------------------------------------------------------------------------------------------------

ACCEPTED: Final = as_json({"id": "j1", "state": "queued"}, 202)
RUNNING: Final = as_json({"id": "j1", "state": "running"})


def event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode()


def stream(body: bytes, times: int | None = 1, pause: float = 0.0) -> Reply:
    return Reply(body=body, times=times, pause=pause, headers=(("Content-Type", "text/event-stream"),))


def job(**replies: Reply | Sequence[Reply]) -> Case:
    return Case(replies={"infer": ACCEPTED, **replies})


def job_named(identity: Any) -> Case:
    return on("infer", as_json({"id": identity}, 202))


def job_that_failed(error: Any) -> Case:
    return job(job=as_json({"id": "j1", "state": "failed", "error": error}))


PROGRESS: Final = event("progress", '{"done": 1, "total": 2}')
_BAD_NUMBERS: Final = b"".join(
    event("progress", text)
    for text in (
        '{"done": "x"}', '{"done": 1e400, "total": 1}', '{"done": [1], "total": {}}', '{"done": NaN, "total": NaN}', '{"done": null}',
        '{"done": -5, "total": -9}', '{"done": ' + "9" * 5000 + "}", "[" * 10_000, "[1]", '"text"', '{"done": true}',
    )
)  # fmt: skip

_JOBS: Final = {
    "job_that_never_ends": job(events=stream(b""), job=RUNNING),
    "job_events_without_end": job(events=stream(PROGRESS, FOREVER), job=RUNNING),
    "job_events_slowly_without_end": job(events=stream(PROGRESS, FOREVER, 0.2), job=RUNNING),
    "job_comments_without_end": job(events=stream(b": still here\n\n", FOREVER), job=RUNNING),
    "job_event_of_gigabytes": job(events=stream(b"data: " + b"A" * MIB, FOREVER), job=RUNNING),
    "job_line_without_end": job(events=stream(b"A" * MIB, FOREVER), job=RUNNING),
    "job_events_of_empty_lines": job(events=stream(b"\n" * MIB, FOREVER), job=RUNNING),
    "job_events_drip": job(events=stream(b"d", FOREVER, 0.2), job=RUNNING),
    "job_events_silent": job(events=Reply(body=b"", times=FOREVER, pause=0.1), job=RUNNING),
    "job_events_with_bad_numbers": Case(replies={"infer": ACCEPTED, "events": stream(_BAD_NUMBERS)}, ends="either"),
    "job_events_gzip_bomb": job(events=GZIPPED, job=RUNNING),
    "job_events_redirect": job(events=ELSEWHERE),
    "job_events_always_cut": job(events=GONE, job=RUNNING),
    "job_named_by_a_path": job_named("../../x"),
    "job_named_by_dots": job_named(".."),
    "job_named_by_nothing": job_named(""),
    "job_named_by_an_object": job_named({"a": 1}),
    "job_named_in_megabytes": job_named("j" * MIB),
    "job_failed_with_commands": job_that_failed({"message": TERMINAL + "A" * (3 * MIB)}),
    "job_failed_with_an_object_that_is_no_text": job_that_failed({"message": {"toString": 1}}),
    "job_events_of_other_lines": job(events=stream("event: progress\ndata: {}\u2028x\n\n".encode()), job=RUNNING),
    "job_failed_with_a_list": job_that_failed([["x"]] * 1000),
    "job_in_no_state": job(events=stream(b""), job=as_json({"id": "j1"})),
    "job_in_an_unknown_state": job(events=stream(b""), job=as_json({"state": {"a": [1]}})),
    "job_endless": job(events=stream(b""), job=ENDLESS),
    "job_ran_for_a_text": Case(
        replies={"infer": ACCEPTED, "job": as_json({"state": "done", "run_seconds": ["x"]})}, ends="either"
    ),
    "job_result_endless": job(result=ENDLESS),
    "job_result_gzip_bomb": job(result=GZIPPED),
    "job_result_drip": job(result=DRIP),
    "job_result_is_a_job": job(result=ACCEPTED),
}

# --- answers -------------------------------------------------------------------------------------------------------------------------


def with_bytes(at_byte: int, value: bytes) -> Callable[[bytes], bytes]:
    return lambda answer: answer[:at_byte] + value + answer[at_byte + len(value) :]


_ANSWERS: Final = {
    "answer_endless": on("infer", ENDLESS),
    "answer_gzip_bomb": on("infer", GZIPPED),
    "answer_deflate": on("infer", Reply(body=b"x", headers=(("Content-Encoding", "deflate"),))),
    "answer_drip": on("infer", DRIP),
    "answer_endless_of_60_000_numbers": Case(
        lambda: {"output_scale": [1.0] * 60_000, "output_offset": [0.0] * 60_000}, replies={"infer": ENDLESS}
    ),
    "answer_says_a_petabyte": on("infer", SAID_HUGE),
    "answer_silent": on("infer", SILENT),
    "answer_redirect": on("infer", ELSEWHERE),
    "answer_empty": on("infer", Reply()),
    "answer_without_content": on("infer", Reply(204)),
    "answer_garbage": on("infer", NO_TEXT),
    "answer_cut_short": Case(answer=lambda answer: answer[:-40]),
    "answer_too_long": Case(answer=lambda answer: answer + bytes(100)),
    "answer_twice": Case(answer=lambda answer: answer * 2),
    "answer_with_a_flipped_bit": Case(answer=lambda answer: with_bytes(200, b"\xff\x00")(answer)),
    "answer_of_a_huge_shape": Case(answer=with_bytes(112, b"\xff" * 7)),
    "answer_of_another_version": Case(answer=with_bytes(4, b"\x63")),
    "answer_of_zeros": Case(answer=lambda answer: bytes(len(answer))),
    "answer_always_later": on("infer", LATER),
    "answer_refused_by_quota": on("infer", refusal("full", "over_quota", 429)),
    "answer_computed_in_nan_seconds": Case(
        replies={"infer": Reply(headers=(("Fhe-Compute-Seconds", "nan"),), body=b"none")}
    ),
}

# --- metadata that steers the client -------------------------------------------------------------------------------------------------

_BATCHES: Final = {
    f"largest_batch_{name}": Case(metadata={"largest_batch": value}, ends="either")
    for name, value in {
        "negative": -1,
        "true": True,
        "zero": 0,
        "real": 1e30,
        "text": "5",
        "list": [1],
        "huge": 10**30,
    }.items()
}
_OTHERS: Final = {
    "kind_is_a_list": Case(metadata={"kind": ["index"]}, ends="either"),
    "honest": Case(ends="answer"),
    "honest_of_many_samples": Case(samples="many", ends="answer"),
    "honest_job": Case(replies={"infer": ACCEPTED}, ends="answer"),
}

CASES: Final[dict[str, Case]] = {
    **_BODIES,
    **_STEPS,
    **_SETS,
    **_UPLOADS,
    **_JOBS,
    **_ANSWERS,
    **_BATCHES,
    **_OTHERS,
}

# One of each kind, for `make test`; all others in `make test-all`.
FIRST: Final = {
    "answer_endless",
    "append_doubles_twenty_times",
    "error_commands_the_terminal",
    "honest",
    "job_named_by_dots",
    "set_toy",
    "set_with_keys_of_430_MiB",
    "specification_gzip_bomb",
    "upload_always_at_zero",
    "upload_part_redirect",
}
