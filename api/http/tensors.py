"""An object of ciphertexts as a tensor of the Open Inference Protocol: one UINT8 tensor in the form of its binary tensor data extension, a JSON
header of an announced length and then the bytes. Whatever the header says is checked before the object is read."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Final

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, ValidationError

from cloakwork.api.errors import BadRequestError, MalformedError, TooLargeError, UnsupportedMediaError
from cloakwork.api.http.bodies import BodyReader

HEADER: Final = "Inference-Header-Content-Length"
DATATYPE: Final = "UINT8"
INPUT, OUTPUT = "ciphertexts", "results"

_JSON_BYTES: Final = 16 << 10  # of a request's header, as of every small body
_DIGITS: Final = re.compile(r"[0-9]{1,9}\Z")
_HOW: Final = (
    f"send one {DATATYPE} tensor '{INPUT}' as binary data, with the header {HEADER} (InferInput.set_data_from_numpy of tritonclient does), or the "
    "object of ciphertexts as it is"
)
_STATEFUL: Final = ("sequence_id", "sequence_start", "sequence_end")
_LISTED: Final = 16  # inputs and outputs, so that all errors fit a message


class _TensorFields(BaseModel):
    """A tensor of a request. Fields that are not named here mean nothing to a stateless run and are ignored: priorities, time-outs, a client's own
    parameters."""

    model_config = ConfigDict(extra="ignore")


class _InputParameters(_TensorFields):
    binary_data_size: StrictInt | None = None


class _Input(_TensorFields):
    name: str
    datatype: str
    shape: list[StrictInt] = Field(max_length=_LISTED)
    parameters: _InputParameters = _InputParameters()


class _OutputParameters(_TensorFields):
    binary_data: StrictBool = False
    classification: StrictInt = 0


class _Output(_TensorFields):
    name: str
    parameters: _OutputParameters = _OutputParameters()


class _RequestParameters(_TensorFields):
    model_config = ConfigDict(extra="allow")

    binary_data_output: StrictBool = False


class TensorRequest(_TensorFields):
    """The JSON header of a request."""

    id: Annotated[str, Field(max_length=256)] | None = None
    inputs: list[_Input] = Field(max_length=_LISTED)
    outputs: list[_Output] = Field([], max_length=_LISTED)
    parameters: _RequestParameters = _RequestParameters()

    def check(self, object_bytes: int) -> None:
        """Checks that it is about one tensor of all bytes that follow, and asks for the answer in the same form.

        Raises:
            MalformedError, UnsupportedMediaError.
        """
        stateful = [name for name in _STATEFUL if (self.parameters.model_extra or {}).get(name)]
        if stateful:
            raise MalformedError(f"this service keeps no sequences: send no '{stateful[0]}'")
        self._check_input(object_bytes)
        self._check_outputs()

    def _check_input(self, object_bytes: int) -> None:
        if [each.name for each in self.inputs] != [INPUT]:
            raise MalformedError(f"expected one input, '{INPUT}', got {len(self.inputs)} or another name; {_HOW}")
        (input_tensor,) = self.inputs
        if input_tensor.datatype != DATATYPE:
            raise MalformedError(f"expected input '{INPUT}' of datatype {DATATYPE}, got another; {_HOW}")
        if input_tensor.parameters.binary_data_size is None:
            raise UnsupportedMediaError(
                f"input '{INPUT}' has no binary_data_size: numbers in JSON are not taken; {_HOW}"
            )
        if input_tensor.parameters.binary_data_size != object_bytes:
            raise MalformedError(
                f"binary_data_size is {input_tensor.parameters.binary_data_size}, and {object_bytes} bytes follow the JSON header"
            )
        if input_tensor.shape != [object_bytes]:
            raise MalformedError(
                f"expected input '{INPUT}' of shape [{object_bytes}], its bytes, got {input_tensor.shape}"
            )

    def _check_outputs(self) -> None:
        if any(each.name != OUTPUT for each in self.outputs) or len(self.outputs) > 1:
            raise MalformedError(f"there is one output, '{OUTPUT}'; ask for that one, or for none by name")
        if any(each.parameters.classification for each in self.outputs):
            raise MalformedError("results are encrypted: nobody but the client can make classes of them")
        binary = [each.parameters.binary_data for each in self.outputs] or [self.parameters.binary_data_output]
        if not all(binary):
            raise UnsupportedMediaError(
                f"output '{OUTPUT}' would come as numbers in JSON, which this service does not write; ask for binary data: "
                '"binary_data": true of the output, or "binary_data_output": true of the request'
            )

    def answer(self, model: str, version: str, content: bytes) -> tuple[bytes, int]:
        """Returns the body, and how much of it is the JSON header."""
        tensor = {
            "name": OUTPUT,
            "datatype": DATATYPE,
            "shape": [len(content)],
            "parameters": {"binary_data_size": len(content)},
        }
        about: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": [tensor]}
        if self.id is not None:
            about["id"] = self.id
        head = json.dumps(about, separators=(",", ":")).encode()
        return head + content, len(head)


def header_bytes(request: Request, length: int) -> int:
    """Returns bytes of the JSON header of a body of `length`; 0 of a body that is an object of ciphertexts and nothing else.

    Raises:
        BadRequestError, TooLargeError, MalformedError: no length that a header can have.
        UnsupportedMediaError: a body in JSON alone.
    """
    given = request.headers.getlist(HEADER)
    if not given:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json":
            raise UnsupportedMediaError(f"tensors in JSON are not taken; {_HOW}")
        return 0
    if len(given) > 1 or not _DIGITS.match(given[0]):
        raise BadRequestError(f"expected one number of bytes in {HEADER}")
    count = int(given[0])
    if count > _JSON_BYTES:
        raise TooLargeError(f"expected a JSON header of at most {_JSON_BYTES} bytes, {HEADER} says {count}")
    if not 0 < count < length:
        raise MalformedError(f"{HEADER} says {count} bytes of a body of {length}; the object follows the JSON header")
    return count


def wrong_length(error: TooLargeError | MalformedError, json_bytes: int) -> TooLargeError | MalformedError:
    """Returns the same error: clients that write tensors as numbers in JSON do not always call it JSON."""
    return error if json_bytes else type(error)(f"{error}. A client of the Open Inference Protocol? Then {_HOW}")


async def read_tensor_request(reader: BodyReader, count: int, object_bytes: int) -> TensorRequest:
    """Reads a request from the first `count` bytes; what is left in the reader is the object.

    Raises:
        MalformedError, UnsupportedMediaError.
    """
    head = await reader.take(count)
    try:
        request = TensorRequest.model_validate_json(head)
    except ValidationError as error:
        # Not the values: a message must not repeat what was sent.
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "header"
        raise MalformedError(f"the JSON header of the tensor: {place}: {first['msg']}") from None
    request.check(object_bytes)
    return request
