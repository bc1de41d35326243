// Evaluation keys on their way to servers that lose, forget, merge and lie.
import assert from "node:assert/strict";
import { test } from "node:test";

import { ConnectionLostError, ServiceError } from "../dist/index.js";
import { sendKeys, UploadForgottenError } from "../dist/upload.js";

const PART = 4 << 20;
const TOTAL = 3 * PART + 12345;
const OBJECT = Uint8Array.from({ length: TOTAL }, (_, i) => (i * 7) ^ (i >> 13));

/** Pieces of a size that divides nothing. */
async function* pieces(object, size = 100_003) {
  for (let start = 0; start < object.length; start += size) yield object.subarray(start, start + size);
}

/** A server in memory; `change(request number, request, carry out)` may do something else. */
function serverWith(change = (_number, _request, carryOut) => carryOut()) {
  const server = { bytes: new Uint8Array(TOTAL), offset: 0, id: "k", requests: [], ready: false };
  const answer = (fields) => ({ status: 200, headers: new Headers(), body: new TextEncoder().encode(JSON.stringify(fields)) });
  const standing = () => answer({ id: server.id, offset: server.offset, state: server.ready ? "ready" : "open" });
  const carryOut = (request) => {
    if (request.method === "PATCH") {
      if (server.ready) throw new ServiceError("complete", 409, "conflict");
      if (Number(request.headers["Upload-Offset"]) !== server.offset) throw new ServiceError("elsewhere", 409, "wrong_offset");
      server.bytes.set(request.body, server.offset);
      server.offset += request.body.length;
      server.ready = server.offset === TOTAL;
    }
    return standing();
  };
  server.ask = async (request) => {
    server.requests.push(request.method);
    return change(server.requests.length, request, () => carryOut(request), server, standing);
  };
  return server;
}

const lost = () => {
  throw new ConnectionLostError("gone");
};
const send = (server, start = 0) => sendKeys(server.ask, "k", pieces(OBJECT.subarray(start)), [start, TOTAL], () => undefined);

test("all at once, and from the middle", async () => {
  for (const start of [0, 1, PART - 1, PART, 2 * PART + 1, TOTAL - 1]) {
    const server = serverWith();
    server.bytes.set(OBJECT.subarray(0, start));
    server.offset = start;
    assert.deepEqual(await send(server, start), { id: "k", sent: TOTAL - start });
    assert.deepEqual(server.bytes, OBJECT);
    assert.equal(server.requests.length, Math.ceil((TOTAL - start) / PART));
  }
});

test("a connection that is lost before, within and after every part", async () => {
  for (const kept of [0, 1, PART / 2, Infinity])
    for (const number of [1, 3, 5]) {
      const server = serverWith((i, request, carryOut) => {
        if (i !== number || request.method !== "PATCH") return carryOut();
        request.body = request.body.subarray(0, Math.min(kept, request.body.length));
        if (request.body.length > 0) carryOut();
        return lost();
      });
      assert.equal((await send(server)).id, "k");
      assert.deepEqual(server.bytes, OBJECT, `request ${number}, ${kept} bytes`);
    }
});

test("a server that has not noticed yet, and one that is checking the whole", async () => {
  const busy = serverWith((i, request, carryOut) => {
    if (i === 2) lost();
    if (i === 4 || i === 6) throw new ServiceError("another request is writing", 409, "conflict");
    return carryOut();
  });
  await send(busy);
  assert.deepEqual(busy.bytes, OBJECT);
  let looks = 0;
  const checking = serverWith((_, request, carryOut, server, standing) => {
    if (request.method === "PATCH" && server.offset === TOTAL) throw new ServiceError("another request is writing", 409, "conflict");
    if (request.method === "GET") server.ready = ++looks === 3;
    if (request.method !== "PATCH") return standing();
    carryOut();
    if (server.offset < TOTAL) return standing();
    server.ready = false;
    return lost();
  });
  assert.equal((await send(checking)).id, "k");
  assert.equal(looks, 3);
});

test("all bytes are there, but for the check", async () => {
  const server = serverWith();
  server.offset = TOTAL;
  assert.deepEqual(await send(server, TOTAL), { id: "k", sent: 0 });
  assert.deepEqual(server.requests, ["PATCH"]);
});

test("the same keys were there under another name", async () => {
  const server = serverWith((i, _request, carryOut, itself) => {
    if (i === 4) itself.id = "first";
    return carryOut();
  });
  assert.equal((await send(server)).id, "first");
});

test("bytes that the server forgot are not here any more", async () => {
  for (const forget of [
    (server) => void (server.offset = 0),
    (server) => void (server.offset = 2 * PART - 1),
    () => {
      throw new ServiceError("no such key", 404, "unknown_key");
    },
  ]) {
    const server = serverWith((i, _request, carryOut, itself) => {
      if (i === 3) forget(itself);
      return carryOut();
    });
    await assert.rejects(send(server), UploadForgottenError);
  }
});

test("servers that are gone, refuse or make no sense", async () => {
  let ended = false;
  async function* endless() {
    try {
      yield* pieces(OBJECT);
    } finally {
      ended = true;
    }
  }
  const gone = serverWith((_, request, carryOut) => (request.method === "PATCH" ? lost() : carryOut()));
  await assert.rejects(
    sendKeys(gone.ask, "k", endless(), [0, TOTAL], () => undefined),
    ConnectionLostError,
  );
  assert.ok(ended); // who makes the keys can stop
  assert.equal(gone.requests.filter((method) => method === "PATCH").length, 9);
  const full = serverWith(() => {
    throw new ServiceError("full", 507, "storage_full");
  });
  await assert.rejects(send(full), { name: "ServiceError", serviceCode: "storage_full" });
  for (const nonsense of ["[]", "{}", '{"id": "", "offset": 1}', '{"id": "k", "offset": "many"}', '{"id": "k", "offset": -1}', "x"]) {
    const liar = serverWith(() => ({ status: 200, headers: new Headers(), body: new TextEncoder().encode(nonsense) }));
    await assert.rejects(send(liar), ServiceError, nonsense);
  }
  const short = serverWith();
  await assert.rejects(
    sendKeys(short.ask, "k", pieces(OBJECT.subarray(0, PART)), [0, TOTAL], () => undefined),
    { name: "ServiceError", message: /expected an upload of/ },
  );
});
