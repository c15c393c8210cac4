// The same bus over TLS and over WebSocket.

import assert from "node:assert/strict";

import WebSocket from "ws";

import { behaviour, connect, impatient, places, range, take, takeOne } from "./support.mjs";

const keys = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE";

/** AMQP over TLS; the SDK always goes to 5671 unless it is told another address. */
function overTls() {
  return connect(`Endpoint=sb://localhost;${keys}`, {
    ...impatient,
    customEndpointAddress: `sb://localhost:${places.tls.split(":").pop()}`,
  });
}

function overWebSocket(place) {
  const text = `Endpoint=sb://${place};${keys};UseDevelopmentEmulator=true`;
  return connect(text, { ...impatient, webSocketOptions: { webSocket: WebSocket } });
}

for (const [name, open] of [
  ["TLS", overTls],
  ["WebSocket with TLS", () => overWebSocket(places.tls)],
  ["WebSocket with TLS on the HTTP port", () => overWebSocket(places.http)],
]) {
  behaviour(`send, receive and settle over ${name}`, async (bench) => {
    const queue = await bench.queue();
    const client = open();
    await bench.sender(queue, client).sendMessages(range(20).map((body) => ({ body })));
    const receiver = bench.keep(client.createReceiver(queue));
    for (const message of await take(receiver, 20)) await receiver.completeMessage(message);
    assert.equal((await bench.counts(queue)).totalMessageCount, 0);
  });

  behaviour(`large messages, sessions and management over ${name}`, async (bench) => {
    const queue = await bench.queue({ requiresSession: true });
    const client = open();
    const body = Buffer.alloc(200_000, 7);
    await bench.sender(queue, client).sendMessages({ body, sessionId: "s" });
    const session = bench.keep(await client.acceptNextSession(queue));
    assert.equal((await session.peekMessages(1))[0].body.length, 200_000);
    await session.setSessionState("state");
    const message = await takeOne(session);
    assert.ok(body.equals(message.body));
    await session.completeMessage(message);
    assert.equal(await session.getSessionState(), "state");
  });
}
