// Sessions: locks, order, state, and how they are found.

import assert from "node:assert/strict";

import {
  aMoment,
  behaviour,
  bodies,
  connect,
  connectionString,
  once,
  partitionOf,
  range,
  refused,
  refusedLinks,
  signal,
  take,
  takeOne,
  until,
} from "./support.mjs";

async function withSessions(bench, sessions, count, options = {}) {
  const queue = await bench.queue({ requiresSession: true, ...options });
  const sender = bench.sender(queue);
  for (const sessionId of sessions) {
    for (const body of range(count)) await sender.sendMessages({ body, sessionId });
  }
  return queue;
}

async function accept(bench, queue, sessionId, options) {
  return bench.keep(await bench.client.acceptSession(queue, sessionId, options));
}

behaviour("a named session gives its own messages in order", async (bench) => {
  const queue = await withSessions(bench, ["a", "b"], 10);
  const session = await accept(bench, queue, "b");
  assert.equal(session.sessionId, "b");
  assert.ok(session.sessionLockedUntilUtc > new Date());
  const messages = await take(session, 10);
  assert.deepEqual(bodies(messages), range(10));
  assert.ok(messages.every((message) => message.sessionId === "b"));
  for (const message of messages) await session.completeMessage(message);
  assert.deepEqual(await session.receiveMessages(1, aMoment), []);
});

behaviour("the next available sessions are all found, each once", async (bench) => {
  const names = range(8).map((number) => `session-${number}`);
  const queue = await withSessions(bench, names, 1);
  const found = [];
  for (const _ of names) found.push(bench.keep(await bench.client.acceptNextSession(queue)));
  assert.deepEqual(found.map((session) => session.sessionId).sort(), names);
  for (const session of found) assert.equal((await takeOne(session)).sessionId, session.sessionId);
});

behaviour("no session within the time that the client gives", async (bench) => {
  const queue = await withSessions(bench, [], 0);
  const hasty = connect(connectionString, { retryOptions: { maxRetries: 0, timeoutInMs: 1_000 } });
  const error = await refused(hasty.acceptNextSession(queue), "ServiceTimeout");
  assert.match(error.message, /did not complete within the allotted timeout/);
}, refusedLinks);

behaviour("waiting for the next session ends with the first message", async (bench) => {
  const queue = await withSessions(bench, [], 0);
  const waiting = bench.client.acceptNextSession(queue);
  await bench.sender(queue).sendMessages({ body: "first", sessionId: "new" });
  const session = bench.keep(await waiting);
  assert.equal(session.sessionId, "new");
  assert.equal((await takeOne(session)).body, "first");
});

behaviour("a session that somebody holds cannot be locked, and is free after its close", async (bench) => {
  const queue = await withSessions(bench, ["a"], 1);
  const holder = await accept(bench, queue, "a");
  await refused(connect().acceptSession(queue, "a"), "SessionCannotBeLocked");
  await holder.close();
  const next = await accept(bench, queue, "a");
  assert.equal((await takeOne(next)).body, 0);
}, refusedLinks);

behaviour("a session without messages can be held, and what comes then is received", async (bench) => {
  const queue = await withSessions(bench, [], 0);
  const session = await accept(bench, queue, "empty");
  const waiting = takeOne(session);
  await bench.sender(queue).sendMessages({ body: "now", sessionId: "empty" });
  assert.equal((await waiting).body, "now");
});

behaviour("a session's state is set, read and cleared", async (bench) => {
  const queue = await withSessions(bench, ["a"], 1);
  const session = await accept(bench, queue, "a");
  assert.equal(await session.getSessionState(), null);
  await session.setSessionState({ step: 3, list: [1, 2] });
  assert.deepEqual(await session.getSessionState(), { step: 3, list: [1, 2] });
  await session.close();
  const again = await accept(bench, queue, "a");
  assert.deepEqual(await again.getSessionState(), { step: 3, list: [1, 2] });
  await again.setSessionState(null);
  assert.equal(await again.getSessionState(), null);
});

behaviour("a session's lock can be renewed", async (bench) => {
  const queue = await withSessions(bench, ["a"], 1, { lockDuration: "PT30S" });
  const session = await accept(bench, queue, "a");
  const before = session.sessionLockedUntilUtc;
  const after = await session.renewSessionLock();
  assert.ok(after >= before);
  assert.deepEqual(session.sessionLockedUntilUtc, after);
});

behaviour("a session's lock that runs out is lost, and the session is free", async (bench) => {
  const queue = await withSessions(bench, ["a"], 2, { lockDuration: "PT5S" });
  const first = await accept(bench, queue, "a", { maxAutoLockRenewalDurationInMs: 0 });
  const held = await takeOne(first);
  const second = bench.keep(await connect().acceptNextSession(queue));
  await until(() => first.isClosed);
  await refused(first.completeMessage(held), "SessionLockLost");
  const messages = await take(second, 2);
  assert.deepEqual(bodies(messages), [0, 1]);
  assert.equal(messages[0].deliveryCount, 1);
});

behaviour("a session's receiver renews its lock by itself", async (bench) => {
  const queue = await withSessions(bench, ["a"], 1, { lockDuration: "PT5S" });
  const session = await accept(bench, queue, "a");
  const first = session.sessionLockedUntilUtc;
  await until(() => session.sessionLockedUntilUtc > first);
  const message = await takeOne(session);
  await session.completeMessage(message);
});

behaviour("abandon in a session keeps the order", async (bench) => {
  const queue = await withSessions(bench, ["a"], 3);
  const session = await accept(bench, queue, "a");
  const [first] = await take(session, 1);
  await session.abandonMessage(first);
  const messages = await take(session, 3);
  assert.deepEqual(bodies(messages), [0, 1, 2]);
  assert.equal(messages[0].deliveryCount, 1);
});

behaviour("deferral, dead-lettering and peek in a session", async (bench) => {
  const queue = await withSessions(bench, ["a", "b"], 3);
  const session = await accept(bench, queue, "a");
  assert.equal((await session.peekMessages(10)).length, 3);
  const [zero, one, two] = await take(session, 3);
  await session.deferMessage(zero);
  await session.deadLetterMessage(one, { deadLetterReason: "in a session" });
  await session.completeMessage(two);
  const [deferred] = await session.receiveDeferredMessages(zero.sequenceNumber);
  assert.equal(deferred.body, 0);
  await session.completeMessage(deferred);
  const dead = await takeOne(bench.receiver(queue, { subQueueType: "deadLetter" }));
  assert.equal(dead.sessionId, "a");
  assert.equal(dead.deadLetterReason, "in a session");
});

behaviour("subscribe works through a session in order", async (bench) => {
  const queue = await withSessions(bench, ["a"], 12);
  const session = await accept(bench, queue, "a");
  const seen = [];
  const done = signal();
  session.subscribe({
    processMessage: async (message) => {
      seen.push(message);
      if (seen.length === 12) done.resolve();
    },
    processError: async ({ error }) => assert.fail(error),
  });
  await done.promise;
  assert.deepEqual(bodies(seen), range(12));
  await until(async () => (await bench.counts(queue)).totalMessageCount === 0);
});

behaviour("receive-and-delete in a session", async (bench) => {
  const queue = await withSessions(bench, ["a"], 4);
  const session = await accept(bench, queue, "a", { receiveMode: "receiveAndDelete" });
  assert.deepEqual(bodies(await take(session, 4)), range(4));
  assert.equal((await bench.counts(queue)).totalMessageCount, 0);
});

behaviour("a message without a session is refused by a queue that has sessions", async (bench) => {
  const queue = await withSessions(bench, [], 0);
  const error = await refused(bench.sender(queue).sendMessages({ body: "lost" }), "GeneralError");
  assert.match(error.message, /SessionId/);
});

behaviour("a receiver without a session is refused by a queue that has sessions", async (bench) => {
  const queue = await withSessions(bench, [], 0);
  const error = await refused(bench.receiver(queue).receiveMessages(1, aMoment), "GeneralError");
  assert.match(error.message, /requires sessions/);
});

behaviour("a session cannot be had from a queue without sessions", async (bench) => {
  const queue = await bench.queue();
  const error = await refused(bench.client.acceptNextSession(queue), "GeneralError");
  assert.match(error.message, /does not require sessions/);
  // For a named session the SDK hides the bus's reason behind its own.
  await refused(bench.client.acceptSession(queue, "a"), "SessionCannotBeLocked");
}, refusedLinks);

behaviour("a batch of one session stays together", async (bench) => {
  const queue = await withSessions(bench, [], 0);
  await bench.sender(queue).sendMessages(range(50).map((body) => ({ body, sessionId: "a" })));
  const session = await accept(bench, queue, "a");
  assert.deepEqual(bodies(await take(session, 50)), range(50));
});

behaviour("sessions of a subscription", async (bench) => {
  const topic = await bench.topic();
  await bench.admin.createSubscription(topic, "with-sessions", { requiresSession: true });
  await bench.sender(topic).sendMessages({ body: "via topic", sessionId: "s" });
  const session = bench.keep(await bench.client.acceptNextSession(topic, "with-sessions"));
  assert.equal(session.sessionId, "s");
  const message = await takeOne(session);
  await session.setSessionState("seen");
  await session.completeMessage(message);
  assert.equal(await session.getSessionState(), "seen");
});

once(
  "each session lives in one partition, and many sessions in many",
  async (bench) => {
    const names = range(40).map((number) => `s${number}`);
    const queue = await withSessions(bench, names, 2);
    const peeked = await bench.receiver(queue).peekMessages(80);
    const placed = new Map();
    for (const message of peeked) {
      const place = placed.get(message.sessionId) ?? partitionOf(message);
      assert.equal(partitionOf(message), place);
      placed.set(message.sessionId, place);
    }
    assert.ok(new Set(placed.values()).size > 8);
  },
  { partitioned: true },
);
