// Ways to receive and to look at messages.

import assert from "node:assert/strict";

import {
  aMoment,
  behaviour,
  bodies,
  once,
  partitionOf,
  peekAll,
  range,
  refused,
  signal,
  take,
  takeOne,
  until,
} from "./support.mjs";

async function filled(bench, count, options = {}) {
  const queue = await bench.queue(options);
  const sender = bench.sender(queue);
  for (const body of range(count)) await sender.sendMessages({ body, messageId: `${body}` });
  return queue;
}

function sorted(messages) {
  return bodies(messages).sort((a, b) => a - b);
}

behaviour("peek-lock holds messages until they are settled", async (bench) => {
  const queue = await filled(bench, 5);
  const receiver = bench.receiver(queue);
  const messages = await take(receiver, 5);
  assert.deepEqual(sorted(messages), range(5));
  assert.deepEqual(await bench.receiver(queue).receiveMessages(5, aMoment), []);
  assert.equal((await bench.counts(queue)).activeMessageCount, 5);
  for (const message of messages) await receiver.completeMessage(message);
  assert.equal((await bench.counts(queue)).totalMessageCount, 0);
});

behaviour("receive-and-delete leaves nothing behind", async (bench) => {
  const queue = await filled(bench, 10);
  const receiver = bench.receiver(queue, { receiveMode: "receiveAndDelete" });
  assert.deepEqual(sorted(await take(receiver, 10)), range(10));
  assert.equal((await bench.counts(queue)).totalMessageCount, 0);
});

behaviour("an empty queue gives an empty list, and a later message comes at once", async (bench) => {
  const queue = await bench.queue();
  const receiver = bench.receiver(queue);
  assert.deepEqual(await receiver.receiveMessages(10, aMoment), []);
  const waiting = takeOne(receiver);
  await bench.sender(queue).sendMessages({ body: "late" });
  assert.equal((await waiting).body, "late");
});

behaviour("subscribe completes what its handler has finished", async (bench) => {
  const queue = await filled(bench, 30);
  const receiver = bench.receiver(queue);
  const seen = [];
  const done = signal();
  receiver.subscribe(
    {
      processMessage: async (message) => {
        seen.push(message);
        if (seen.length === 30) done.resolve();
      },
      processError: async ({ error }) => assert.fail(error),
    },
    { maxConcurrentCalls: 5 },
  );
  await done.promise;
  await until(async () => (await bench.counts(queue)).totalMessageCount === 0);
  assert.deepEqual(sorted(seen), range(30));
});

behaviour("subscribe abandons what its handler has failed on", async (bench) => {
  const queue = await filled(bench, 1);
  const receiver = bench.receiver(queue);
  const second = signal();
  const errors = [];
  receiver.subscribe({
    processMessage: async (message) => {
      if (message.deliveryCount === 0) throw new Error("on purpose");
      second.resolve(message);
    },
    processError: async ({ error, errorSource }) => errors.push([errorSource, error.message]),
  });
  assert.equal((await second.promise).deliveryCount, 1);
  assert.deepEqual(errors, [["processMessageCallback", "on purpose"]]);
});

behaviour("subscribe without auto-complete leaves settling to the handler", async (bench) => {
  const queue = await filled(bench, 3);
  const receiver = bench.receiver(queue);
  const held = [];
  receiver.subscribe(
    { processMessage: async (message) => held.push(message), processError: async ({ error }) => assert.fail(error) },
    { autoCompleteMessages: false, maxConcurrentCalls: 3 },
  );
  await until(() => held.length === 3);
  assert.equal((await bench.counts(queue)).activeMessageCount, 3);
  for (const message of held) await receiver.completeMessage(message);
  assert.equal((await bench.counts(queue)).activeMessageCount, 0);
});

behaviour("the iterator goes over messages one by one", async (bench) => {
  const queue = await filled(bench, 4);
  const receiver = bench.receiver(queue);
  const seen = [];
  for await (const message of receiver.getMessageIterator()) {
    seen.push(message);
    await receiver.completeMessage(message);
    if (seen.length === 4) break;
  }
  assert.deepEqual(sorted(seen), range(4));
});

behaviour("peek reaches every message, locks none and goes on where it was", async (bench) => {
  const queue = await filled(bench, 40);
  const receiver = bench.receiver(queue);
  const peeked = await peekAll(receiver, 7);
  assert.deepEqual(sorted(peeked), range(40));
  assert.ok(peeked.every((message) => message.state === "active" && message.deliveryCount === 0));
  assert.equal((await take(bench.receiver(queue), 40)).length, 40);
  const [locked] = await receiver.peekMessages(1, { fromSequenceNumber: peeked[0].sequenceNumber });
  assert.equal(locked.messageId, peeked[0].messageId);
});

behaviour("peek begins at the sequence number that it is given", async (bench) => {
  const queue = await filled(bench, 10);
  const receiver = bench.receiver(queue);
  const all = await peekAll(receiver);
  const again = await receiver.peekMessages(3, { fromSequenceNumber: all[4].sequenceNumber });
  assert.equal(again[0].messageId, all[4].messageId);
});

behaviour("peek can leave the bodies out", async (bench) => {
  const queue = await bench.queue();
  await bench.sender(queue).sendMessages({ body: Buffer.alloc(100_000), subject: "large" });
  const [peeked] = await bench.receiver(queue).peekMessages(1, { omitMessageBody: true });
  assert.equal(peeked.subject, "large");
  assert.ok(!peeked.body || peeked.body.length === 0);
});

behaviour("a reply to peek stays within 256 KB", async (bench) => {
  const queue = await bench.queue();
  const sender = bench.sender(queue);
  for (const body of range(6))
    await sender.sendMessages({ body: Buffer.alloc(100_000), partitionKey: "k", messageId: `${body}` });
  const receiver = bench.receiver(queue);
  const first = await receiver.peekMessages(6);
  assert.ok(first.length >= 1 && first.length < 6);
  assert.equal(first.length + (await peekAll(receiver)).length, 6);
});

behaviour("a message's lock can be renewed", async (bench) => {
  const queue = await filled(bench, 1, { lockDuration: "PT30S" });
  const receiver = bench.receiver(queue);
  const message = await takeOne(receiver);
  const before = message.lockedUntilUtc;
  const after = await receiver.renewMessageLock(message);
  assert.ok(after >= before);
  assert.deepEqual(message.lockedUntilUtc, after);
  await receiver.completeMessage(message);
  await refused(receiver.renewMessageLock(message), "MessageLockLost");
});

behaviour("subscribe renews locks while a handler works", async (bench) => {
  const queue = await filled(bench, 1, { lockDuration: "PT5S" });
  const receiver = bench.receiver(queue);
  const done = signal();
  receiver.subscribe({
    processMessage: async (message) => {
      const first = message.lockedUntilUtc;
      await until(() => message.lockedUntilUtc > first);
      done.resolve(message);
    },
    processError: async ({ error }) => assert.fail(error),
  });
  assert.equal((await done.promise).deliveryCount, 0);
  await until(async () => (await bench.counts(queue)).totalMessageCount === 0);
});

behaviour("a lock that runs out gives the message back and is lost", async (bench) => {
  const queue = await filled(bench, 1, { lockDuration: "PT5S" });
  const first = bench.receiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  const held = await takeOne(first);
  const second = bench.receiver(queue);
  const again = await takeOne(second);
  assert.equal(again.messageId, held.messageId);
  assert.equal(again.deliveryCount, 1);
  await refused(first.completeMessage(held), "MessageLockLost");
  await second.completeMessage(again);
});

behaviour("two receivers share a queue and no message comes twice", async (bench) => {
  const queue = await filled(bench, 40);
  const receivers = [bench.receiver(queue), bench.receiver(queue)];
  const seen = (await Promise.all(receivers.map((receiver) => take(receiver, 20)))).flat();
  assert.deepEqual(sorted(seen), range(40));
});

behaviour("a message whose time is over is not received", async (bench) => {
  const queue = await bench.queue({ deadLetteringOnMessageExpiration: true });
  await bench.sender(queue).sendMessages({ body: "short", timeToLive: 100 });
  const dead = await takeOne(bench.receiver(queue, { subQueueType: "deadLetter" }));
  assert.equal(dead.deadLetterReason, "TTLExpiredException");
  assert.equal((await bench.counts(queue)).activeMessageCount, 0);
});

once(
  "the only message of a partitioned queue comes as from a plain one",
  async (bench) => {
    const queue = await bench.queue();
    const sender = bench.sender(queue);
    const receiver = bench.receiver(queue, { receiveMode: "receiveAndDelete" });
    const partitions = new Set();
    for (const body of range(20)) {
      await sender.sendMessages({ body });
      const message = await takeOne(receiver);
      assert.equal(message.body, body);
      partitions.add(partitionOf(message));
    }
    assert.equal(partitions.size, 16);
  },
  { partitioned: true },
);
