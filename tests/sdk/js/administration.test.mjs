// Every call of the administration client, over TLS, on both kinds of entity.

import assert from "node:assert/strict";

import { ServiceBusAdministrationClient } from "@azure/service-bus";

import { admin, behaviour, once, places, range, refused, takeOne } from "./support.mjs";

const rule = {
  claimType: "SharedAccessKey",
  accessRights: ["Manage", "Send", "Listen"],
  keyName: "all",
  primaryKey: "cHJpbWFyeSBrZXkgb2YgdGhlIHJ1bGU=",
  secondaryKey: "c2Vjb25kYXJ5IGtleSBvZiB0aGUgcnVsZQ==",
};

const queueOptions = {
  lockDuration: "PT45S",
  maxSizeInMegabytes: 2048,
  requiresDuplicateDetection: true,
  requiresSession: true,
  defaultMessageTimeToLive: "P2D",
  deadLetteringOnMessageExpiration: true,
  duplicateDetectionHistoryTimeWindow: "PT5M",
  maxDeliveryCount: 7,
  enableBatchedOperations: false,
  autoDeleteOnIdle: "PT1H",
  userMetadata: "some & <text>",
  authorizationRules: [rule],
};

async function all(pages) {
  const found = [];
  for await (const one of pages) found.push(one);
  return found;
}

async function paged(pages, size) {
  const found = [];
  for await (const page of pages.byPage({ maxPageSize: size })) {
    assert.ok(page.length <= size, "a page is no larger than asked for");
    found.push(...page);
  }
  return found;
}

function same(given, expected) {
  for (const [name, value] of Object.entries(expected)) assert.deepEqual(given[name], value, name);
}

once("the namespace describes itself", async () => {
  const found = await admin.getNamespaceProperties();
  assert.equal(found.messagingSku, "Standard");
  assert.ok(found.name && found.createdAt <= new Date());
});

behaviour("a queue with defaults", async (bench) => {
  const name = await bench.queue();
  same(await admin.getQueue(name), {
    name,
    lockDuration: "PT1M",
    maxSizeInMegabytes: bench.partitioned ? 16_384 : 1024,
    requiresDuplicateDetection: false,
    requiresSession: false,
    defaultMessageTimeToLive: "P10675199DT2H48M5.4775807S",
    deadLetteringOnMessageExpiration: false,
    duplicateDetectionHistoryTimeWindow: "PT10M",
    maxDeliveryCount: 10,
    enableBatchedOperations: true,
    status: "Active",
    autoDeleteOnIdle: "P10675199DT2H48M5.4775807S",
    enablePartitioning: bench.partitioned,
    availabilityStatus: "Available",
    forwardTo: undefined,
    authorizationRules: undefined,
  });
});

behaviour("a queue with everything set", async (bench) => {
  const target = await bench.queue();
  const name = await bench.queue({ ...queueOptions, forwardDeadLetteredMessagesTo: target });
  const found = await admin.getQueue(name);
  same(found, { ...queueOptions, maxSizeInMegabytes: bench.partitioned ? 32_768 : 2048 });
  assert.ok(found.forwardDeadLetteredMessagesTo.endsWith(`/${target}`));
});

behaviour("a queue is updated, and what cannot change stays", async (bench) => {
  const name = await bench.queue();
  const found = await admin.getQueue(name);
  const changes = { lockDuration: "PT10S", maxDeliveryCount: 3, userMetadata: "new", authorizationRules: [rule] };
  same(await admin.updateQueue({ ...found, ...changes }), changes);
  same(await admin.getQueue(name), changes);
  await refused(admin.updateQueue({ ...found, enablePartitioning: !bench.partitioned }), "ServiceError");
  assert.equal((await admin.getQueue(name)).enablePartitioning, bench.partitioned);
});

behaviour("a queue's runtime properties count what is in it", async (bench) => {
  const name = await bench.queue();
  const sender = bench.sender(name);
  for (const body of range(5)) await sender.sendMessages({ body });
  await sender.scheduleMessages({ body: "later" }, new Date(Date.now() + 3_600_000));
  const receiver = bench.receiver(name);
  await receiver.deadLetterMessage(await takeOne(receiver));
  const found = await admin.getQueueRuntimeProperties(name);
  same(found, {
    name,
    activeMessageCount: 4,
    deadLetterMessageCount: 1,
    scheduledMessageCount: 1,
    transferMessageCount: 0,
    transferDeadLetterMessageCount: 0,
    totalMessageCount: 6,
  });
  assert.ok(found.sizeInBytes > 0);
  assert.ok(found.createdAt <= found.accessedAt);
});

behaviour("queues exist, are listed page by page, and are deleted", async (bench) => {
  const names = [];
  for (const _ of range(3)) names.push(await bench.queue());
  const listed = (await paged(admin.listQueues(), 1)).map((queue) => queue.name);
  for (const name of names) assert.equal(listed.filter((other) => other === name).length, 1);
  const runtime = (await all(admin.listQueuesRuntimeProperties())).map((queue) => queue.name);
  for (const name of names) assert.ok(runtime.includes(name));
  const extra = bench.name("extra");
  assert.equal(await admin.queueExists(extra), false);
  await admin.createQueue(extra, { enablePartitioning: bench.partitioned });
  assert.equal(await admin.queueExists(extra), true);
  await admin.deleteQueue(extra);
  assert.equal(await admin.queueExists(extra), false);
  await refused(admin.getQueue(extra), "MessageEntityNotFoundError");
  await refused(admin.deleteQueue(extra), "MessageEntityNotFoundError");
});

behaviour("a queue with a slash in its name", async (bench) => {
  const name = await bench.queue({}, "a/b/c");
  assert.equal((await admin.getQueue(name)).name, name);
  assert.ok((await all(admin.listQueues())).some((queue) => queue.name === name));
  await bench.sender(name).sendMessages({ body: "slashed" });
  assert.equal((await takeOne(bench.receiver(name))).body, "slashed");
});

behaviour("a queue that exists already", async (bench) => {
  const name = await bench.queue();
  await refused(admin.createQueue(name), "MessageEntityAlreadyExistsError");
  await refused(admin.createTopic(name), "MessageEntityAlreadyExistsError");
});

once("values that are out of range are refused", async (bench) => {
  const bad = [
    { lockDuration: "PT10M" },
    { maxDeliveryCount: 0 },
    { maxSizeInMegabytes: 3 },
    { duplicateDetectionHistoryTimeWindow: "PT1S" },
  ];
  for (const options of bad) await refused(admin.createQueue(bench.name("bad"), options), "ServiceError");
});

behaviour("a topic with everything, updated and deleted", async (bench) => {
  const options = {
    maxSizeInMegabytes: 2048,
    requiresDuplicateDetection: true,
    duplicateDetectionHistoryTimeWindow: "PT2M",
    defaultMessageTimeToLive: "P3D",
    autoDeleteOnIdle: "PT2H",
    enableBatchedOperations: false,
    supportOrdering: false,
    userMetadata: "of a topic",
    authorizationRules: [rule],
  };
  const name = await bench.topic(options);
  const found = await admin.getTopic(name);
  same(found, {
    ...options,
    name,
    maxSizeInMegabytes: bench.partitioned ? 32_768 : 2048,
    enablePartitioning: bench.partitioned,
  });
  same(await admin.updateTopic({ ...found, status: "SendDisabled", userMetadata: "other" }), {
    status: "SendDisabled",
  });
  same(await admin.getTopic(name), { status: "SendDisabled", userMetadata: "other" });
  assert.equal(await admin.topicExists(name), true);
  assert.equal(await admin.topicExists("no-such-topic"), false);
  await refused(admin.getTopic("no-such-topic"), "MessageEntityNotFoundError");
  const other = bench.name("topic");
  await admin.createTopic(other, { enablePartitioning: bench.partitioned });
  await admin.deleteTopic(other);
  assert.equal(await admin.topicExists(other), false);
  await refused(admin.deleteTopic(other), "MessageEntityNotFoundError");
});

behaviour("topics are listed page by page, with what is in them", async (bench) => {
  const names = [await bench.topic(), await bench.topic()];
  await admin.createSubscription(names[0], "s");
  const listed = (await paged(admin.listTopics(), 1)).map((topic) => topic.name);
  for (const name of names) assert.equal(listed.filter((other) => other === name).length, 1);
  const runtime = await all(admin.listTopicsRuntimeProperties());
  assert.equal(runtime.find((topic) => topic.name === names[0]).subscriptionCount, 1);
  await bench.sender(names[0]).scheduleMessages({ body: 1 }, new Date(Date.now() + 3_600_000));
  same(await admin.getTopicRuntimeProperties(names[0]), { subscriptionCount: 1, scheduledMessageCount: 1 });
});

behaviour("a subscription with everything, updated and deleted", async (bench) => {
  const [topic, target] = [await bench.topic(), await bench.queue()];
  const options = {
    lockDuration: "PT20S",
    requiresSession: true,
    defaultMessageTimeToLive: "P1D",
    deadLetteringOnMessageExpiration: true,
    deadLetteringOnFilterEvaluationExceptions: false,
    maxDeliveryCount: 4,
    enableBatchedOperations: false,
    autoDeleteOnIdle: "PT3H",
    userMetadata: "of a subscription",
  };
  await admin.createSubscription(topic, "s", { ...options, forwardDeadLetteredMessagesTo: target });
  const found = await admin.getSubscription(topic, "s");
  same(found, {
    ...options,
    topicName: topic,
    subscriptionName: "s",
    status: "Active",
    availabilityStatus: "Available",
  });
  assert.ok(found.forwardDeadLetteredMessagesTo.endsWith(`/${target}`));
  await admin.updateSubscription({ ...found, maxDeliveryCount: 9, status: "ReceiveDisabled" });
  same(await admin.getSubscription(topic, "s"), {
    maxDeliveryCount: 9,
    status: "ReceiveDisabled",
    lockDuration: "PT20S",
  });
  assert.equal(await admin.subscriptionExists(topic, "s"), true);
  await admin.deleteSubscription(topic, "s");
  assert.equal(await admin.subscriptionExists(topic, "s"), false);
  await refused(admin.getSubscription(topic, "s"), "MessageEntityNotFoundError");
});

behaviour("subscriptions are listed page by page and counted", async (bench) => {
  const topic = await bench.topic();
  for (const name of ["a", "b", "c"]) await admin.createSubscription(topic, name);
  await bench.sender(topic).sendMessages({ body: 1 });
  const listed = await paged(admin.listSubscriptions(topic), 1);
  assert.deepEqual(
    listed.map((one) => one.subscriptionName),
    ["a", "b", "c"],
  );
  const runtime = await all(admin.listSubscriptionsRuntimeProperties(topic));
  assert.deepEqual(
    runtime.map((one) => one.activeMessageCount),
    [1, 1, 1],
  );
  same(await admin.getSubscriptionRuntimeProperties(topic, "b"), { totalMessageCount: 1, deadLetterMessageCount: 0 });
});

behaviour("a subscription can be made with a rule of its own", async (bench) => {
  const topic = await bench.topic();
  const filter = { sqlExpression: "colour = 'red'" };
  await admin.createSubscription(topic, "s", { defaultRuleOptions: { name: "red", filter } });
  const rules = await all(admin.listRules(topic, "s"));
  assert.deepEqual(
    rules.map((one) => one.name),
    ["red"],
  );
  await bench.sender(topic).sendMessages({ body: "blue", applicationProperties: { colour: "blue" } });
  await bench.sender(topic).sendMessages({ body: "red", applicationProperties: { colour: "red" } });
  assert.equal((await takeOne(bench.receiver(topic, "s"))).body, "red");
});

behaviour("rules of every kind are made, read, changed, listed and deleted", async (bench) => {
  const topic = await bench.topic();
  await admin.createSubscription(topic, "s");
  const day = new Date("2024-05-06T07:08:09.000Z");
  const correlation = { correlationId: "c", subject: "l", applicationProperties: { n: 1.5, t: "x", yes: true, day } };
  const sql = { sqlExpression: "a = @p", sqlParameters: { "@p": "v" } };
  await admin.createRule(topic, "s", "sql", sql, { sqlExpression: "SET b = 1" });
  await admin.createRule(topic, "s", "correlation", correlation);
  const found = await admin.getRule(topic, "s", "sql");
  assert.equal(found.filter.sqlExpression, "a = @p");
  assert.deepEqual(found.filter.sqlParameters, { "@p": "v" });
  assert.equal(found.action.sqlExpression, "SET b = 1");
  same((await admin.getRule(topic, "s", "correlation")).filter, correlation);
  await admin.updateRule(topic, "s", { ...found, filter: { sqlExpression: "a = 2" }, action: {} });
  assert.equal((await admin.getRule(topic, "s", "sql")).filter.sqlExpression, "a = 2");
  const names = (await paged(admin.listRules(topic, "s"), 1)).map((one) => one.name);
  assert.deepEqual(names, ["$Default", "sql", "correlation"]);
  assert.equal(await admin.ruleExists(topic, "s", "sql"), true);
  await admin.deleteRule(topic, "s", "sql");
  assert.equal(await admin.ruleExists(topic, "s", "sql"), false);
  await refused(admin.getRule(topic, "s", "sql"), "MessageEntityNotFoundError");
  await refused(admin.createRule(topic, "s", "correlation", correlation), "MessageEntityAlreadyExistsError");
});

behaviour("what is not there has no subscriptions and no rules", async (bench) => {
  const topic = await bench.topic();
  assert.deepEqual(await all(admin.listSubscriptions(topic)), []);
  await refused(admin.createSubscription("no-such-topic", "s"), "MessageEntityNotFoundError");
  await refused(admin.createRule(topic, "none", "r", { sqlExpression: "1=1" }), "MessageEntityNotFoundError");
  await refused(admin.createQueue(bench.name("q"), { forwardTo: "no-such-queue" }), "ServiceError");
});

once("a wrong key is refused over HTTP", async () => {
  const text = `Endpoint=sb://${places.http};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=wrong`;
  await refused(new ServiceBusAdministrationClient(text).getNamespaceProperties(), "UnauthorizedRequestError");
});

behaviour("a queue's own key manages that queue and no other", async (bench) => {
  const [mine, other] = [await bench.queue({ authorizationRules: [rule] }), await bench.queue()];
  const text = `Endpoint=sb://${places.http};SharedAccessKeyName=${rule.keyName};SharedAccessKey=${rule.primaryKey}`;
  const limited = new ServiceBusAdministrationClient(text);
  assert.equal((await limited.getQueue(mine)).name, mine);
  await refused(limited.getQueue(other), "UnauthorizedRequestError");
});

once(
  "a partitioned queue can be deleted and made again without partitions",
  async (bench) => {
    const name = await bench.queue();
    await bench.sender(name).sendMessages({ body: "old" });
    await admin.deleteQueue(name);
    await admin.createQueue(name, { enablePartitioning: false });
    assert.equal((await admin.getQueue(name)).enablePartitioning, false);
    assert.equal((await admin.getQueueRuntimeProperties(name)).totalMessageCount, 0);
  },
  { partitioned: true },
);
