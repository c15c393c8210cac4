// Topics, rules and forwarding.

import assert from "node:assert/strict";

import { aMoment, behaviour, bodies, range, refused, take, takeOne, until } from "./support.mjs";

async function topicWith(bench, ...subscriptions) {
  const topic = await bench.topic();
  for (const name of subscriptions) await bench.admin.createSubscription(topic, name);
  return topic;
}

async function rulesOf(manager) {
  const found = [];
  for await (const rule of manager.listRules()) found.push(rule);
  return found.filter(Boolean); // of an empty list the SDK makes one that holds `undefined`
}

/** A subscription whose only rules are these. */
async function managed(bench, topic, subscription, rules = []) {
  const manager = bench.client.createRuleManager(topic, subscription);
  await manager.deleteRule("$Default");
  for (const rule of rules) await manager.createRule(...rule);
  return manager;
}

behaviour("every subscription gets its own copy", async (bench) => {
  const topic = await topicWith(bench, "one", "two");
  await bench.sender(topic).sendMessages(range(5).map((body) => ({ body })));
  for (const name of ["one", "two"]) {
    const receiver = bench.receiver(topic, name);
    const messages = await take(receiver, 5);
    assert.deepEqual(bodies(messages), range(5));
    for (const message of messages) await receiver.completeMessage(message);
  }
});

behaviour("settling a copy touches no other", async (bench) => {
  const topic = await topicWith(bench, "one", "two");
  await bench.sender(topic).sendMessages({ body: "copy" });
  const first = bench.receiver(topic, "one");
  await first.deadLetterMessage(await takeOne(first), { deadLetterReason: "only here" });
  const dead = await takeOne(bench.receiver(topic, "one", { subQueueType: "deadLetter" }));
  assert.equal(dead.deadLetterSource, `${topic}/Subscriptions/one`);
  assert.equal((await takeOne(bench.receiver(topic, "two"))).body, "copy");
});

behaviour("a topic without a subscription accepts and forgets", async (bench) => {
  const topic = await topicWith(bench);
  await bench.sender(topic).sendMessages({ body: "nobody" });
  await bench.admin.createSubscription(topic, "late");
  assert.deepEqual(await bench.receiver(topic, "late").receiveMessages(1, aMoment), []);
});

behaviour("a new subscription has the rule that lets everything through", async (bench) => {
  const topic = await topicWith(bench, "s");
  const manager = bench.client.createRuleManager(topic, "s");
  const [rule] = await rulesOf(manager);
  assert.equal(rule.name, "$Default");
  assert.equal(rule.filter.sqlExpression, "1=1");
});

behaviour("an SQL rule chooses", async (bench) => {
  const topic = await topicWith(bench, "s");
  await managed(bench, topic, "s", [["many", { sqlExpression: "amount > 10 AND sys.Label LIKE 'ord%'" }]]);
  const sender = bench.sender(topic);
  for (const amount of [5, 11, 50]) {
    await sender.sendMessages({ body: amount, subject: "order", applicationProperties: { amount } });
  }
  await sender.sendMessages({ body: 99, subject: "other", applicationProperties: { amount: 99 } });
  const seen = bodies(await take(bench.receiver(topic, "s", { receiveMode: "receiveAndDelete" }), 2));
  assert.deepEqual(seen.sort(), [11, 50]);
  assert.equal((await bench.admin.getSubscriptionRuntimeProperties(topic, "s")).totalMessageCount, 0);
});

behaviour("a correlation rule chooses by properties of both kinds", async (bench) => {
  const topic = await topicWith(bench, "s");
  await managed(bench, topic, "s", [
    ["exact", { correlationId: "c", subject: "label", applicationProperties: { colour: "red", size: 3 } }],
  ]);
  const sender = bench.sender(topic);
  const fits = { correlationId: "c", subject: "label", applicationProperties: { colour: "red", size: 3 } };
  await sender.sendMessages({ body: "no", ...fits, applicationProperties: { colour: "red", size: 4 } });
  await sender.sendMessages({ body: "no", ...fits, correlationId: "other" });
  await sender.sendMessages({ body: "yes", ...fits });
  assert.equal((await takeOne(bench.receiver(topic, "s"))).body, "yes");
  assert.equal((await bench.admin.getSubscriptionRuntimeProperties(topic, "s")).totalMessageCount, 1);
});

behaviour("each rule with an action makes its own copy", async (bench) => {
  const topic = await topicWith(bench, "s");
  await managed(bench, topic, "s", [
    ["plain", { sqlExpression: "1=1" }],
    ["blue", { sqlExpression: "1=1" }, { sqlExpression: "SET colour = 'blue'; REMOVE old" }],
  ]);
  await bench.sender(topic).sendMessages({ body: "b", applicationProperties: { colour: "red", old: 1 } });
  const messages = await take(bench.receiver(topic, "s", { receiveMode: "receiveAndDelete" }), 2);
  const properties = messages.map((message) => message.applicationProperties);
  const changed = properties.find((one) => one.colour === "blue");
  assert.deepEqual(changed, { colour: "blue", RuleName: "blue" });
  assert.ok(properties.some((one) => one.colour === "red" && one.old === 1));
});

behaviour("the rule manager lists what it has made, of every kind", async (bench) => {
  const topic = await topicWith(bench, "s");
  const correlation = {
    correlationId: "c",
    messageId: "m",
    to: "t",
    replyTo: "r",
    subject: "l",
    sessionId: "s",
    replyToSessionId: "rs",
    contentType: "ct",
    applicationProperties: { text: "x", number: 4, yes: true },
  };
  const manager = await managed(bench, topic, "s", [
    ["sql", { sqlExpression: "a = 1" }, { sqlExpression: "SET b = 2" }],
    ["correlation", correlation],
    ["never", { sqlExpression: "1=0" }],
  ]);
  const rules = new Map((await rulesOf(manager)).map((rule) => [rule.name, rule]));
  assert.equal(rules.size, 3);
  assert.equal(rules.get("sql").filter.sqlExpression, "a = 1");
  assert.equal(rules.get("sql").action.sqlExpression, "SET b = 2");
  assert.deepEqual({ ...rules.get("correlation").filter }, correlation);
});

behaviour("a rule that exists, one that does not, and one that cannot be read", async (bench) => {
  const topic = await topicWith(bench, "s");
  const manager = bench.client.createRuleManager(topic, "s");
  await manager.createRule("r", { sqlExpression: "a = 1" });
  await refused(manager.createRule("r", { sqlExpression: "a = 2" }), "MessagingEntityAlreadyExists");
  await refused(manager.createRule("broken", { sqlExpression: "a = = 1" }), "GeneralError");
  await assert.rejects(manager.deleteRule("missing"), (error) => error.name === "ServiceBusError");
  assert.equal((await rulesOf(manager)).length, 2);
});

behaviour("a subscription without rules gets nothing", async (bench) => {
  const topic = await topicWith(bench, "s");
  const manager = await managed(bench, topic, "s");
  assert.deepEqual(await rulesOf(manager), []);
  await bench.sender(topic).sendMessages({ body: "none" });
  assert.deepEqual(await bench.receiver(topic, "s").receiveMessages(1, aMoment), []);
});

behaviour("a queue forwards to a queue", async (bench) => {
  const target = await bench.queue();
  const source = await bench.queue({ forwardTo: target });
  await bench.sender(source).sendMessages({ body: "on", partitionKey: "k", applicationProperties: { p: 1 } });
  const message = await takeOne(bench.receiver(target));
  assert.equal(message.body, "on");
  assert.deepEqual(message.applicationProperties, { p: 1 });
  await until(async () => (await bench.counts(source)).totalMessageCount === 0);
});

behaviour("a subscription forwards to a queue, and dead letters to another", async (bench) => {
  const [target, dead] = [await bench.queue(), await bench.queue()];
  const topic = await bench.topic();
  await bench.admin.createSubscription(topic, "moves", { forwardTo: target });
  await bench.admin.createSubscription(topic, "buries", { forwardDeadLetteredMessagesTo: dead });
  await bench.sender(topic).sendMessages({ body: "m" });
  assert.equal((await takeOne(bench.receiver(target))).body, "m");
  const receiver = bench.receiver(topic, "buries");
  await receiver.deadLetterMessage(await takeOne(receiver), { deadLetterReason: "because" });
  const buried = await takeOne(bench.receiver(dead));
  assert.equal(buried.deadLetterReason, "because");
  assert.equal(buried.deadLetterSource, `${topic}/Subscriptions/buries`);
});

behaviour("nobody can receive from a queue that forwards, or from a topic", async (bench) => {
  const target = await bench.queue();
  const source = await bench.queue({ forwardTo: target });
  await refused(bench.receiver(source).receiveMessages(1, aMoment), "GeneralError");
  const topic = await topicWith(bench, "s");
  await refused(bench.receiver(topic).receiveMessages(1, aMoment), "GeneralError");
});
