// rhea, which knows nothing of Service Bus: what its own examples do.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";
import rhea from "rhea";

const { filter } = rhea;
const [host, port] = process.env.POLYBUS_AMQP.split(":");
let connection;

before(async () => {
  const login = { username: process.env.POLYBUS_KEY_NAME, password: process.env.POLYBUS_KEY };
  connection = rhea.create_container().connect({ host, port, reconnect: false, ...login });
  await once(connection, "connection_open");
});

after(() => connection.close());

function once(emitter, event) {
  return new Promise((resolve) => emitter.once(event, resolve));
}

function newName() {
  return `rhea-${randomUUID()}`;
}

async function send(target, messages) {
  const sender = connection.open_sender({ target });
  await once(sender, "sendable");
  const answered = new Promise((resolve, reject) => {
    let left = messages.length;
    sender.on("accepted", () => --left || resolve());
    sender.on("rejected", (context) => reject(context.delivery.remote_state.error));
  });
  messages.forEach((message) => sender.send(message));
  await answered;
  sender.close();
}

const numbered = (count) => Array.from({ length: count }, (_, n) => ({ body: `${n}`, application_properties: { n } }));

/** What is there: the link is drained, so that its end is known. */
async function receive(source) {
  const receiver = connection.open_receiver({ source, credit_window: 0 });
  const bodies = [];
  receiver.on("message", (context) => bodies.push(context.message.body));
  receiver.add_credit(100);
  receiver.drain_credit();
  await once(receiver, "receiver_drained");
  receiver.close();
  await once(receiver, "receiver_close");
  return bodies;
}

test("sending and receiving", async () => {
  const name = newName();
  await send({ address: name }, numbered(5));
  assert.deepEqual(await receive({ address: name }), ["0", "1", "2", "3", "4"]);
  assert.deepEqual(await receive({ address: name }), []);
});

test("looking at a queue removes nothing", async () => {
  const name = newName();
  await send({ address: name }, numbered(3));
  for (let look = 0; look < 4; look++) {
    assert.deepEqual(await receive({ address: name, distribution_mode: "copy" }), ["0", "1", "2"]);
  }
  assert.deepEqual(await receive({ address: name }), ["0", "1", "2"]);
});

test("receiving what a selector wants", async () => {
  const name = newName();
  await send({ address: name }, numbered(4));
  assert.deepEqual(await receive({ address: name, filter: filter.selector("n = 2") }), ["2"]);
  assert.deepEqual(await receive({ address: name }), ["0", "1", "3"]);
});

test("sending to whatever a message names", async () => {
  const [one, two] = [newName(), newName()];
  await send({}, [one, two, one].map((to) => ({ to, body: to })));
  assert.deepEqual(await receive({ address: one }), [one, one]);
  assert.deepEqual(await receive({ address: two }), [two]);
});

test("request and reply over a temporary queue", async () => {
  const service = newName();
  const server = connection.open_receiver(service);
  const out = connection.open_sender({ target: {} });
  server.on("message", ({ message }) => out.send({ to: message.reply_to, body: message.body.toUpperCase() }));
  const replies = connection.open_receiver({ source: { dynamic: true } });
  await once(replies, "receiver_open");
  const answer = once(replies, "message");
  out.send({ to: service, reply_to: replies.source.address, body: "what?" });
  assert.equal((await answer).message.body, "WHAT?");
});

test("every subscriber of a topic gets a copy", async () => {
  const name = newName();
  const source = { address: name, capabilities: ["topic"] };
  const subscribers = [1, 2].map(() => connection.open_receiver({ source }));
  await Promise.all(subscribers.map((receiver) => once(receiver, "receiver_open")));
  const got = subscribers.map((receiver) => once(receiver, "message"));
  await send({ address: name, capabilities: ["topic"] }, [{ body: "x" }]);
  assert.deepEqual((await Promise.all(got)).map(({ message }) => message.body), ["x", "x"]);
});
