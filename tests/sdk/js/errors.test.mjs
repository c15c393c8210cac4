// What the bus refuses, in the SDK's own codes.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";

import {
  aMoment,
  behaviour,
  connect,
  connectionString,
  once,
  places,
  range,
  refused,
  takeOne,
  until,
} from "./support.mjs";

function withKey(name, key) {
  const pair = `SharedAccessKeyName=${name};SharedAccessKey=${key}`;
  return `Endpoint=sb://${places.amqp};${pair};UseDevelopmentEmulator=true;`;
}

async function guarded(bench, ...rights) {
  const rule = {
    claimType: "SharedAccessKey",
    keyName: "limited",
    primaryKey: "cHJpbWFyeQ==",
    secondaryKey: "c2Vjb25k",
  };
  const queue = await bench.queue({ authorizationRules: [{ ...rule, accessRights: rights }] });
  return {
    queue,
    limited: connect(withKey(rule.keyName, rule.primaryKey)),
    second: connect(withKey(rule.keyName, rule.secondaryKey)),
  };
}

once("an entity that does not exist", async (bench) => {
  await refused(bench.sender("missing").sendMessages({ body: 1 }), "MessagingEntityNotFound");
  await refused(bench.receiver("missing").receiveMessages(1, aMoment), "MessagingEntityNotFound");
  await refused(bench.receiver("missing").peekMessages(1), "MessagingEntityNotFound");
  await refused(bench.receiver("missing", "sub").receiveMessages(1, aMoment), "MessagingEntityNotFound");
});

once("a wrong key and an unknown key name", async (bench) => {
  const queue = await bench.queue();
  for (const text of [withKey("RootManageSharedAccessKey", "wrong"), withKey("unknown", "SAS_KEY_VALUE")]) {
    await refused(bench.sender(queue, connect(text)).sendMessages({ body: 1 }), "UnauthorizedAccess");
  }
});

behaviour("a key of one queue with the right to send only", async (bench) => {
  const { queue, limited, second } = await guarded(bench, "Send");
  await limited.createSender(queue).sendMessages({ body: 1 });
  await second.createSender(queue).sendMessages({ body: 2 });
  await refused(limited.createReceiver(queue).receiveMessages(1, aMoment), "UnauthorizedAccess");
  const other = await bench.queue();
  await refused(limited.createSender(other).sendMessages({ body: 1 }), "UnauthorizedAccess");
});

behaviour("a key of one queue with the right to listen only", async (bench) => {
  const { queue, limited } = await guarded(bench, "Listen");
  await refused(limited.createSender(queue).sendMessages({ body: 1 }), "UnauthorizedAccess");
  await bench.sender(queue).sendMessages({ body: 1 });
  const receiver = limited.createReceiver(queue);
  await receiver.completeMessage(await takeOne(receiver));
});

behaviour("a shared access signature in the connection string", async (bench) => {
  const queue = await bench.queue();
  const resource = encodeURIComponent(`sb://${places.amqp}/${queue}`);
  const expiry = Math.floor(Date.now() / 1000) + 600;
  const sig = encodeURIComponent(
    createHmac("sha256", "SAS_KEY_VALUE").update(`${resource}\n${expiry}`).digest("base64"),
  );
  const token = `SharedAccessSignature sr=${resource}&sig=${sig}&se=${expiry}&skn=RootManageSharedAccessKey`;
  const client = connect(`Endpoint=sb://${places.amqp};SharedAccessSignature=${token};UseDevelopmentEmulator=true`);
  await client.createSender(queue).sendMessages({ body: "signed" });
  assert.equal((await takeOne(client.createReceiver(queue))).body, "signed");
});

behaviour("a disabled queue, and one that is enabled again", async (bench) => {
  const queue = await bench.queue();
  const properties = await bench.admin.getQueue(queue);
  await bench.admin.updateQueue({ ...properties, status: "SendDisabled" });
  await refused(bench.sender(queue).sendMessages({ body: 1 }), "MessagingEntityDisabled");
  await bench.admin.updateQueue({ ...properties, status: "ReceiveDisabled" });
  await refused(bench.receiver(queue).receiveMessages(1, aMoment), "MessagingEntityDisabled");
  await bench.admin.updateQueue({ ...properties, status: "Active" });
  await bench.sender(queue).sendMessages({ body: 1 });
  assert.equal((await takeOne(bench.receiver(queue))).body, 1);
});

behaviour("a queue that is deleted under a receiver", async (bench) => {
  const queue = await bench.queue();
  const errors = [];
  bench.receiver(queue).subscribe({
    processMessage: async () => {},
    processError: async ({ error }) => errors.push(error),
  });
  await until(async () => {
    // The receiver must be attached before its queue goes: a message that is gone shows it.
    await bench.sender(queue).sendMessages({ body: 1 });
    return (await bench.counts(queue)).totalMessageCount === 0;
  });
  await bench.admin.deleteQueue(queue);
  await until(() => errors.some((error) => error.code === "MessagingEntityNotFound"));
  await bench.admin.createQueue(queue, { enablePartitioning: !bench.partitioned });
});

behaviour("an id that is too long", async (bench) => {
  const queue = await bench.queue();
  const sender = bench.sender(queue);
  await assert.rejects(sender.sendMessages({ body: 1, messageId: "x".repeat(129) }));
  await sender.sendMessages({ body: 1, messageId: "x".repeat(128) });
  assert.equal((await bench.counts(queue)).activeMessageCount, 1);
});

behaviour("properties that are too large together", async (bench) => {
  const queue = await bench.queue();
  const applicationProperties = Object.fromEntries(range(3).map((number) => [`p${number}`, "x".repeat(30_000)]));
  const error = await refused(
    bench.sender(queue).sendMessages({ body: 1, applicationProperties }),
    "MessageSizeExceeded",
  );
  assert.match(error.message, /properties/);
});

once(
  "a session id that is not the partition key is refused",
  async (bench) => {
    const queue = await bench.queue({ requiresSession: true });
    const message = { body: 1, sessionId: "a", partitionKey: "b" };
    await assert.rejects(bench.sender(queue).sendMessages(message), /partitionKey/i);
    assert.equal((await bench.counts(queue)).totalMessageCount, 0);
  },
  { partitioned: true },
);

once("a connection string with an entity path is for that entity only", async (bench) => {
  const queue = await bench.queue();
  const client = connect(`${connectionString}EntityPath=${queue}`);
  await client.createSender(queue).sendMessages({ body: "path" });
  assert.throws(() => client.createSender("another"), /EntityPath|entity/i);
});
