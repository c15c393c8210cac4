// What can be decided on a message, over its link and over management.

import assert from "node:assert/strict";

import { aMoment, behaviour, connect, peekAll, range, refused, take, takeOne } from "./support.mjs";

async function one(bench, options = {}, message = {}) {
  const queue = await bench.queue(options);
  await bench.sender(queue).sendMessages({ body: "one", ...message });
  const receiver = bench.receiver(queue);
  return { queue, receiver, message: await takeOne(receiver) };
}

function deadLetters(bench, queue) {
  return bench.receiver(queue, { subQueueType: "deadLetter" });
}

/** Gives a message back through management: its own link is closed, another receiver settles it. */
async function withoutLink(bench, { queue, receiver, message }) {
  await receiver.close();
  return { other: bench.receiver(queue), message };
}

behaviour("complete removes the message", async (bench) => {
  const { queue, receiver, message } = await one(bench);
  await receiver.completeMessage(message);
  assert.equal((await bench.counts(queue)).totalMessageCount, 0);
});

behaviour("abandon gives it back, counts and can change its properties", async (bench) => {
  const { receiver, message } = await one(bench, {}, { applicationProperties: { kept: 1, changed: "old" } });
  await receiver.abandonMessage(message, { changed: "new", added: true });
  const again = await takeOne(receiver);
  assert.equal(again.deliveryCount, 1);
  assert.deepEqual(again.applicationProperties, { kept: 1, changed: "new", added: true });
});

behaviour("abandon can ask for a delay", async (bench) => {
  const { queue, receiver, message } = await one(bench);
  await receiver.abandonMessage(message, { "polybus-retry-seconds": 2, why: "busy" });
  const abandoned = Date.now();
  assert.deepEqual(await receiver.receiveMessages(1, aMoment), []);
  assert.equal((await peekAll(bench.receiver(queue)))[0].state, "deferred");
  const again = await takeOne(receiver);
  assert.ok(Date.now() - abandoned > 1_500, "it rests first");
  assert.equal(again.deliveryCount, 1);
  assert.deepEqual(again.applicationProperties, { why: "busy" });
  await receiver.completeMessage(again);
  assert.equal((await bench.counts(queue)).totalMessageCount, 0);
});

behaviour("a delay beyond the time-to-live is refused, and the message stays held", async (bench) => {
  const { queue, receiver, message } = await one(bench, {}, { timeToLive: 60_000 });
  await assert.rejects(receiver.abandonMessage(message, { "polybus-retry-seconds": 3600 }), /expires in/);
  // The SDK counts it as settled and does not ask twice, but nothing has happened to it, and its lock is held.
  assert.deepEqual(await bench.receiver(queue).receiveMessages(1, aMoment), []);
  const [peeked] = await peekAll(bench.receiver(queue));
  assert.equal(peeked.state, "active");
  assert.equal(peeked.deliveryCount, message.deliveryCount);
});

behaviour("defer puts it aside until it is asked for by number", async (bench) => {
  const { queue, receiver, message } = await one(bench);
  await receiver.deferMessage(message, { why: "later" });
  assert.deepEqual(await receiver.receiveMessages(1, aMoment), []);
  const [peeked] = await peekAll(bench.receiver(queue));
  assert.equal(peeked.state, "deferred");
  const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  assert.equal(deferred.body, "one");
  assert.equal(deferred.applicationProperties.why, "later");
  await receiver.completeMessage(deferred);
  assert.equal((await bench.counts(queue)).totalMessageCount, 0);
});

behaviour("dead-letter moves it with reason, description and properties", async (bench) => {
  const { queue, receiver, message } = await one(bench);
  await receiver.deadLetterMessage(message, {
    deadLetterReason: "bad",
    deadLetterErrorDescription: "very bad",
    extra: 3,
  });
  const dead = await takeOne(deadLetters(bench, queue));
  assert.equal(dead.deadLetterReason, "bad");
  assert.equal(dead.deadLetterErrorDescription, "very bad");
  assert.equal(dead.applicationProperties.extra, 3);
  assert.equal(dead.deadLetterSource, queue);
  assert.equal(dead.sequenceNumber.toString(), message.sequenceNumber.toString());
  assert.equal((await bench.counts(queue)).deadLetterMessageCount, 1);
});

behaviour("dead-letter without a reason", async (bench) => {
  const { queue, receiver, message } = await one(bench);
  await receiver.deadLetterMessage(message);
  const from = deadLetters(bench, queue);
  const dead = await takeOne(from);
  assert.equal(dead.deadLetterReason, undefined);
  await from.completeMessage(dead);
  assert.equal((await bench.counts(queue)).totalMessageCount, 0);
});

behaviour("complete over management, after the link is gone", async (bench) => {
  const held = await one(bench);
  const { other, message } = await withoutLink(bench, held);
  await other.completeMessage(message);
  assert.equal((await bench.counts(held.queue)).totalMessageCount, 0);
});

behaviour("abandon over management, after the link is gone", async (bench) => {
  const { other, message } = await withoutLink(bench, await one(bench));
  await other.abandonMessage(message, { by: "management" });
  const again = await takeOne(other);
  assert.equal(again.deliveryCount, 1);
  assert.equal(again.applicationProperties.by, "management");
});

behaviour("defer over management, after the link is gone", async (bench) => {
  const { other, message } = await withoutLink(bench, await one(bench));
  await other.deferMessage(message);
  const [deferred] = await other.receiveDeferredMessages(message.sequenceNumber);
  assert.equal(deferred.state, "deferred");
  await other.completeMessage(deferred);
});

behaviour("dead-letter over management, after the link is gone", async (bench) => {
  const held = await one(bench);
  const { other, message } = await withoutLink(bench, held);
  await other.deadLetterMessage(message, { deadLetterReason: "r", deadLetterErrorDescription: "d", more: "m" });
  const dead = await takeOne(deadLetters(bench, held.queue));
  assert.equal(dead.deadLetterReason, "r");
  assert.equal(dead.deadLetterErrorDescription, "d");
  assert.equal(dead.applicationProperties.more, "m");
});

behaviour("another connection can settle a message by its token", async (bench) => {
  const { queue, message } = await one(bench);
  const other = connect().createReceiver(queue);
  bench.keep(other);
  await other.completeMessage(message);
  assert.equal((await bench.counts(queue)).totalMessageCount, 0);
});

behaviour("a deferred message can be abandoned, deferred again and dead-lettered", async (bench) => {
  const { queue, receiver, message } = await one(bench);
  await receiver.deferMessage(message);
  const number = message.sequenceNumber;
  await receiver.abandonMessage((await receiver.receiveDeferredMessages(number))[0]);
  await receiver.deferMessage((await receiver.receiveDeferredMessages(number))[0], { again: 1 });
  const [third] = await receiver.receiveDeferredMessages([number]);
  assert.equal(third.applicationProperties.again, 1);
  await receiver.renewMessageLock(third);
  await receiver.deadLetterMessage(third, { deadLetterReason: "enough" });
  assert.equal((await takeOne(deadLetters(bench, queue))).deadLetterReason, "enough");
});

behaviour("a deferred message can be received and deleted", async (bench) => {
  const { queue, receiver, message } = await one(bench);
  await receiver.deferMessage(message);
  const deleting = bench.receiver(queue, { receiveMode: "receiveAndDelete" });
  assert.equal((await deleting.receiveDeferredMessages(message.sequenceNumber))[0].body, "one");
  assert.equal((await bench.counts(queue)).totalMessageCount, 0);
});

behaviour("several deferred messages of one key come together", async (bench) => {
  const queue = await bench.queue();
  const sender = bench.sender(queue);
  for (const body of range(5)) await sender.sendMessages({ body, partitionKey: "k" });
  const receiver = bench.receiver(queue);
  const messages = await take(receiver, 5);
  for (const message of messages) await receiver.deferMessage(message);
  const deferred = await receiver.receiveDeferredMessages(messages.map((message) => message.sequenceNumber));
  assert.equal(deferred.length, 5);
  for (const message of deferred) await receiver.completeMessage(message);
});

behaviour("a number that nobody has deferred is not found", async (bench) => {
  const { receiver, message } = await one(bench);
  await refused(receiver.receiveDeferredMessages(message.sequenceNumber.add(1)), "MessageNotFound");
});

behaviour("settling twice is refused", async (bench) => {
  const { receiver, message } = await one(bench);
  await receiver.completeMessage(message);
  await assert.rejects(receiver.completeMessage(message), /already settled/);
});

behaviour("a token that was used is lost over management too", async (bench) => {
  const { queue, receiver, message } = await one(bench);
  const other = bench.keep(connect().createReceiver(queue));
  await receiver.completeMessage(message);
  await refused(other.renewMessageLock(message), "MessageLockLost");
});

behaviour("too many deliveries end in the dead-letter queue", async (bench) => {
  const { queue, receiver, message } = await one(bench, { maxDeliveryCount: 3 });
  await receiver.abandonMessage(message);
  for (const expected of [1, 2]) {
    const again = await takeOne(receiver);
    assert.equal(again.deliveryCount, expected);
    await receiver.abandonMessage(again);
  }
  const dead = await takeOne(deadLetters(bench, queue));
  assert.equal(dead.deadLetterReason, "MaxDeliveryCountExceeded");
  assert.match(dead.deadLetterErrorDescription, /3 delivery attempts/);
});

behaviour("a dead letter can be sent again to where it came from", async (bench) => {
  const { queue, receiver, message } = await one(bench);
  await receiver.deadLetterMessage(message, { deadLetterReason: "try again" });
  const from = deadLetters(bench, queue);
  const dead = await takeOne(from);
  await bench.sender(dead.deadLetterSource).sendMessages(dead);
  await from.completeMessage(dead);
  assert.equal((await takeOne(receiver)).body, "one");
});

behaviour("the dead-letter queue can be peeked, and its messages deferred there", async (bench) => {
  const { queue, receiver, message } = await one(bench);
  await receiver.deadLetterMessage(message);
  const from = deadLetters(bench, queue);
  assert.equal((await from.peekMessages(5)).length, 1);
  const dead = await takeOne(from);
  await from.deferMessage(dead);
  const [deferred] = await from.receiveDeferredMessages(dead.sequenceNumber);
  await from.completeMessage(deferred);
  assert.equal((await bench.counts(queue)).totalMessageCount, 0);
});
