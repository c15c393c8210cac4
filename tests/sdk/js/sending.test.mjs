// What a sender can send, and what arrives.

import assert from "node:assert/strict";

import {
  behaviour,
  bodies,
  connect,
  connectionString,
  once,
  partitionOf,
  range,
  refused,
  take,
  takeOne,
} from "./support.mjs";

behaviour("every property of a message arrives", async (bench) => {
  const queue = await bench.queue();
  const sent = {
    body: "hello",
    messageId: "id-1",
    subject: "a subject",
    contentType: "text/plain",
    correlationId: "correlation",
    to: "somebody",
    replyTo: "back",
    replyToSessionId: "back-session",
    partitionKey: "key",
    timeToLive: 3_600_000,
    applicationProperties: { text: "t", number: 7, half: 0.5, yes: true, day: new Date(86_400_000), none: null },
  };
  await bench.sender(queue).sendMessages(sent);
  const receiver = bench.receiver(queue);
  const message = await takeOne(receiver);
  sent.applicationProperties.day = 86_400_000; // the SDK hands timestamps over as numbers
  for (const name of Object.keys(sent)) assert.deepEqual(message[name], sent[name], name);
  assert.equal(message.deliveryCount, 0);
  assert.equal(message.state, "active");
  assert.ok(Math.abs(message.enqueuedTimeUtc.getTime() - Date.now()) < 60_000);
  assert.ok(message.lockedUntilUtc > new Date());
  assert.equal(message.expiresAtUtc.getTime(), message.enqueuedTimeUtc.getTime() + 3_600_000);
  await receiver.completeMessage(message);
});

behaviour("bodies of every kind arrive as they were", async (bench) => {
  const queue = await bench.queue();
  const sender = bench.sender(queue);
  const given = ["text", "", 42, 1.5, true, null, { a: [1, { b: "c" }] }, [1, "two"], Buffer.from([0, 255, 1])];
  for (const body of given) await sender.sendMessages({ body, partitionKey: "same" });
  const receiver = bench.receiver(queue, { receiveMode: "receiveAndDelete" });
  assert.deepEqual(bodies(await take(receiver, given.length)), given);
});

behaviour("data, sequence and value sections arrive as what they are", async (bench) => {
  const queue = await bench.queue();
  const sender = bench.sender(queue);
  const given = [
    { body: Buffer.from("raw"), bodyType: "data" },
    { body: [1, "two", { three: 3 }], bodyType: "sequence" },
    { body: { map: "value" }, bodyType: "value" },
  ];
  for (const one of given) await sender.sendMessages({ ...one, messageAnnotations: { "x-opt-partition-key": "k" } });
  const receiver = bench.receiver(queue, { receiveMode: "receiveAndDelete" });
  for (const [index, message] of (await take(receiver, given.length)).entries()) {
    assert.equal(message._rawAmqpMessage.bodyType, given[index].bodyType);
    assert.deepEqual(message.body, given[index].body);
  }
});

behaviour("a message without an id can be received and settled", async (bench) => {
  const queue = await bench.queue();
  await bench.sender(queue).sendMessages({ body: "nameless" });
  const receiver = bench.receiver(queue);
  const message = await takeOne(receiver);
  assert.ok(message.messageId);
  await receiver.completeMessage(message);
  assert.equal((await bench.counts(queue)).totalMessageCount, 0);
});

behaviour("an array of messages is sent as one batch", async (bench) => {
  const queue = await bench.queue();
  await bench.sender(queue).sendMessages(range(20).map((body) => ({ body })));
  const messages = await take(bench.receiver(queue, { receiveMode: "receiveAndDelete" }), 20);
  assert.deepEqual(bodies(messages), range(20));
  if (bench.partitioned) assert.equal(new Set(messages.map(partitionOf)).size, 1);
});

behaviour("a batch takes what fits and says when it is full", async (bench) => {
  const queue = await bench.queue();
  const sender = bench.sender(queue);
  const batch = await sender.createMessageBatch();
  assert.equal(batch.maxSizeInBytes, 262_144);
  while (batch.tryAddMessage({ body: Buffer.alloc(10_000) }));
  assert.ok(batch.count > 20 && batch.sizeInBytes <= batch.maxSizeInBytes);
  await sender.sendMessages(batch);
  assert.equal((await bench.counts(queue)).activeMessageCount, batch.count);
});

behaviour("a batch of one, of 500 and of none", async (bench) => {
  const queue = await bench.queue();
  const sender = bench.sender(queue);
  const one = await sender.createMessageBatch();
  one.tryAddMessage({ body: "one" });
  await sender.sendMessages(one);
  await sender.sendMessages(range(500).map((body) => ({ body })));
  await sender.sendMessages([]);
  assert.equal((await bench.counts(queue)).activeMessageCount, 501);
});

behaviour("a message of 200 KB goes out and comes back in several frames", async (bench) => {
  const queue = await bench.queue();
  const body = Buffer.from(range(200_000).map((number) => number % 251));
  await bench.sender(queue).sendMessages([{ body }]);
  const receiver = bench.receiver(queue);
  const message = await takeOne(receiver);
  assert.ok(body.equals(message.body));
  await receiver.completeMessage(message);
});

behaviour("a message over the limit is refused and the link goes on", async (bench) => {
  const queue = await bench.queue();
  const sender = bench.sender(queue);
  await refused(sender.sendMessages({ body: Buffer.alloc(300_000) }), "MessageSizeExceeded");
  await sender.sendMessages({ body: "small" });
  assert.equal((await bench.counts(queue)).activeMessageCount, 1);
});

behaviour(
  "3000 messages pass the SDK's ring of 2048",
  async (bench) => {
    const queue = await bench.queue();
    // When its ring is full the SDK gives up after a second, and tries again if it may.
    const patient = connect(connectionString, { retryOptions: { maxRetries: 10, retryDelayInMs: 100 } });
    const sender = bench.sender(queue, patient);
    await Promise.all(range(3000).map((number) => sender.sendMessages({ body: number })));
    const receiver = bench.receiver(queue);
    const seen = new Set();
    while (seen.size < 3000) {
      const messages = await take(receiver, Math.min(1000, 3000 - seen.size));
      await Promise.all(messages.map((message) => receiver.completeMessage(message)));
      for (const message of messages) seen.add(message.body);
    }
    assert.equal((await bench.counts(queue)).totalMessageCount, 0);
  },
  { timeout: 120_000 },
);

behaviour("a duplicate is accepted and dropped", async (bench) => {
  const queue = await bench.queue({ requiresDuplicateDetection: true });
  const sender = bench.sender(queue);
  for (const messageId of ["a", "b", "a"]) await sender.sendMessages({ body: messageId, messageId });
  const messages = await take(bench.receiver(queue, { receiveMode: "receiveAndDelete" }), 2);
  assert.deepEqual(bodies(messages).sort(), ["a", "b"]);
  assert.equal((await bench.counts(queue)).totalMessageCount, 0);
});

behaviour("a message that has been received can be sent again", async (bench) => {
  const queue = await bench.queue();
  const sender = bench.sender(queue);
  await sender.sendMessages({ body: "again", applicationProperties: { round: 1 } });
  const receiver = bench.receiver(queue);
  const first = await takeOne(receiver);
  await sender.sendMessages(first);
  await receiver.completeMessage(first);
  const second = await takeOne(receiver);
  assert.equal(second.body, "again");
  assert.notEqual(second.sequenceNumber.toString(), first.sequenceNumber.toString());
});

behaviour("several senders of one connection do not disturb each other", async (bench) => {
  const [first, second] = [await bench.queue(), await bench.queue()];
  await Promise.all(range(50).map((body) => bench.sender(body % 2 ? first : second).sendMessages({ body })));
  assert.equal((await bench.counts(first)).activeMessageCount, 25);
  assert.equal((await bench.counts(second)).activeMessageCount, 25);
});

once(
  "a partition key chooses one partition, no key spreads over all",
  async (bench) => {
    const queue = await bench.queue();
    const sender = bench.sender(queue);
    for (const body of range(10)) await sender.sendMessages({ body, partitionKey: "one" });
    const receiver = bench.receiver(queue, { receiveMode: "receiveAndDelete" });
    const keyed = await take(receiver, 10);
    assert.deepEqual(bodies(keyed), range(10));
    assert.equal(new Set(keyed.map(partitionOf)).size, 1);
    for (const body of range(16)) await sender.sendMessages({ body });
    assert.equal(new Set((await take(receiver, 16)).map(partitionOf)).size, 16);
  },
  { partitioned: true },
);

once(
  "a batch with different keys is refused on a partitioned queue as a whole",
  async (bench) => {
    const queue = await bench.queue();
    const mixed = range(4).map((body) => ({ body, partitionKey: `key-${body}` }));
    const error = await refused(bench.sender(queue).sendMessages(mixed), "GeneralError");
    assert.match(error.message, /distinct SessionId or PartitionKey is not supported/);
    assert.equal((await bench.counts(queue)).totalMessageCount, 0);
  },
  { partitioned: true },
);

once("a batch with different keys is fine on a plain queue", async (bench) => {
  const queue = await bench.queue();
  await bench.sender(queue).sendMessages(range(4).map((body) => ({ body, partitionKey: `key-${body}` })));
  assert.equal((await bench.counts(queue)).activeMessageCount, 4);
});

behaviour("two clients share a queue", async (bench) => {
  const queue = await bench.queue();
  const other = connect();
  await bench.sender(queue, other).sendMessages({ body: "from the other" });
  assert.equal((await takeOne(bench.receiver(queue))).body, "from the other");
});
