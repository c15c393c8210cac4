// Messages for later.

import assert from "node:assert/strict";

import { aMoment, behaviour, bodies, partitionOf, peekAll, range, refused, take, takeOne } from "./support.mjs";

function inSeconds(seconds) {
  return new Date(Date.now() + seconds * 1000);
}

behaviour("a scheduled message waits, can be peeked, and comes when it is due", async (bench) => {
  const queue = await bench.queue();
  const due = inSeconds(3);
  const [number] = await bench.sender(queue).scheduleMessages({ body: "later" }, due);
  const receiver = bench.receiver(queue);
  const [waiting] = await peekAll(receiver);
  assert.equal(waiting.state, "scheduled");
  assert.equal(waiting.sequenceNumber.toString(), number.toString());
  assert.equal((await bench.counts(queue)).scheduledMessageCount, 1);
  const message = await takeOne(receiver);
  assert.equal(message.body, "later");
  assert.ok(Date.now() >= due.getTime() - 50);
  assert.equal(message.scheduledEnqueueTimeUtc.getTime(), due.getTime());
  assert.notEqual(message.sequenceNumber.toString(), number.toString());
});

behaviour("a cancelled message never comes", async (bench) => {
  const queue = await bench.queue();
  const sender = bench.sender(queue);
  const [number] = await sender.scheduleMessages({ body: "never" }, inSeconds(3600));
  await sender.cancelScheduledMessages(number);
  assert.equal((await bench.counts(queue)).totalMessageCount, 0);
  await refused(sender.cancelScheduledMessages(number), "MessageNotFound");
});

behaviour("several messages are scheduled and cancelled together", async (bench) => {
  const queue = await bench.queue();
  const sender = bench.sender(queue);
  const messages = range(5).map((body) => ({ body, partitionKey: "k" }));
  const numbers = await sender.scheduleMessages(messages, inSeconds(3600));
  assert.equal(new Set(numbers.map(String)).size, 5);
  await sender.cancelScheduledMessages(numbers.slice(0, 3));
  assert.equal((await bench.counts(queue)).scheduledMessageCount, 2);
});

behaviour("messages without a key are scheduled one by one and cancelled in one call", async (bench) => {
  const queue = await bench.queue();
  const sender = bench.sender(queue);
  const numbers = [];
  for (const body of range(20)) numbers.push(...(await sender.scheduleMessages({ body }, inSeconds(3600))));
  if (bench.partitioned)
    assert.equal(new Set(numbers.map((sequenceNumber) => partitionOf({ sequenceNumber }))).size, 16);
  await sender.cancelScheduledMessages(numbers);
  assert.equal((await bench.counts(queue)).scheduledMessageCount, 0);
});

behaviour("a time in the past means now", async (bench) => {
  const queue = await bench.queue();
  await bench.sender(queue).scheduleMessages({ body: "now" }, inSeconds(-60));
  assert.equal((await takeOne(bench.receiver(queue))).body, "now");
});

behaviour("a message can carry its own schedule", async (bench) => {
  const queue = await bench.queue();
  await bench.sender(queue).sendMessages({ body: "own", scheduledEnqueueTimeUtc: inSeconds(2) });
  const receiver = bench.receiver(queue);
  assert.deepEqual(await receiver.receiveMessages(1, aMoment), []);
  assert.equal((await takeOne(receiver)).body, "own");
});

behaviour("scheduled messages of a session come in the order of their times", async (bench) => {
  const queue = await bench.queue({ requiresSession: true });
  const sender = bench.sender(queue);
  const now = Date.now();
  for (const body of [2, 0, 1]) {
    await sender.scheduleMessages({ body, sessionId: "s" }, new Date(now + 1500 + body * 1000));
  }
  const session = bench.keep(await bench.client.acceptSession(queue, "s"));
  assert.deepEqual(bodies(await take(session, 3)), [0, 1, 2]);
});

behaviour("a topic keeps what is scheduled until it is due, then asks its rules", async (bench) => {
  const topic = await bench.topic();
  await bench.admin.createSubscription(topic, "all");
  await bench.sender(topic).scheduleMessages({ body: "by topic" }, inSeconds(3));
  assert.equal((await bench.admin.getTopicRuntimeProperties(topic)).scheduledMessageCount, 1);
  assert.equal((await bench.admin.getSubscriptionRuntimeProperties(topic, "all")).totalMessageCount, 0);
  assert.equal((await takeOne(bench.receiver(topic, "all"))).body, "by topic");
});
