// What every file of tests needs: clients of the unmodified SDK, entities that live as long as one test, and each
// behaviour shown on a plain and on a partitioned entity.

import assert from "node:assert/strict";
import test, { after } from "node:test";

import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";

export const places = {
  amqp: process.env.POLYBUS_AMQP,
  http: process.env.POLYBUS_HTTP,
  tls: process.env.POLYBUS_TLS,
};
export const connectionString = process.env.POLYBUS_CONNECTION_STRING;
export const admin = new ServiceBusAdministrationClient(process.env.POLYBUS_ADMIN_CONNECTION_STRING);

/** Refusals are final for these tests: what is retried would only be refused again, later. */
export const impatient = { retryOptions: { maxRetries: 0, retryDelayInMs: 10, timeoutInMs: 10_000 } };

/** How long a test waits for a message that is there, or is about to be. */
export const soon = { maxWaitTimeInMs: 20_000 };

/** How long a test looks for a message that must not be there. */
export const aMoment = { maxWaitTimeInMs: 300 };

const client = new ServiceBusClient(connectionString, impatient);
const clients = [client];
let entities = 0;

after(async () => {
  await Promise.all(clients.map((one) => one.close()));
});

/** A further client, closed with the file. */
export function connect(text = connectionString, options = impatient) {
  const made = new ServiceBusClient(text, options);
  clients.push(made);
  return made;
}

/** What a behaviour is given: a client, and entities of one kind that are gone after it. */
class Bench {
  constructor(partitioned) {
    this.partitioned = partitioned;
    this.client = client;
    this.admin = admin;
    this._names = [];
    this._open = [];
  }

  name(word) {
    entities += 1;
    return `${word}-${process.pid}-${entities}`;
  }

  async queue(options = {}, word = "queue") {
    const name = this.name(word);
    await admin.createQueue(name, { enablePartitioning: this.partitioned, ...options });
    this._names.push(["deleteQueue", name]);
    return name;
  }

  async topic(options = {}) {
    const name = this.name("topic");
    await admin.createTopic(name, { enablePartitioning: this.partitioned, ...options });
    this._names.push(["deleteTopic", name]);
    return name;
  }

  sender(name, from = client) {
    return this.keep(from.createSender(name));
  }

  receiver(...where) {
    return this.keep(client.createReceiver(...where));
  }

  keep(closable) {
    this._open.push(closable);
    return closable;
  }

  async counts(name) {
    return admin.getQueueRuntimeProperties(name);
  }

  async clear() {
    await Promise.allSettled(this._open.map((one) => one.close()));
    for (const [method, name] of this._names) await admin[method](name);
  }
}

function register(title, partitioned, body, options) {
  test(title, { timeout: 60_000, ...options }, async (context) => {
    const bench = new Bench(partitioned);
    try {
      await body(bench, context);
    } finally {
      await bench.clear();
    }
  });
}

/** For behaviours that an older release of the SDK hides from its caller; the text says why. */
export function newest(why) {
  return { skip: process.env.POLYBUS_SDK_RELEASE ? why : false };
}

/** A link that is refused is forgotten by older releases before they have looked at the error. */
export const refusedLinks = newest("this release says only that there was an internal error");

/** Shows a behaviour on both kinds of entity. */
export function behaviour(title, body, options = {}) {
  register(`${title} (plain)`, false, body, options);
  register(`${title} (partitioned)`, true, body, options);
}

/** Shows a behaviour that has nothing to do with partitions, or only one kind of entity has. */
export function once(title, body, { partitioned = false, ...options } = {}) {
  register(title, partitioned, body, options);
}

/** Checks that a promise is refused with the SDK's own code; gives the error. */
export async function refused(promise, code) {
  let raised;
  try {
    await promise;
  } catch (error) {
    raised = error;
  }
  assert.ok(raised, `nothing was refused, where ${code} was expected`);
  assert.equal(raised.code, code, `${raised.name}: ${raised.message}`);
  return raised;
}

/** The next `count` messages of a receiver, however many calls that takes. */
export async function take(receiver, count) {
  const found = [];
  while (found.length < count) {
    const more = await receiver.receiveMessages(count - found.length, soon);
    assert.ok(more.length > 0, `${found.length} of ${count} messages came`);
    found.push(...more);
  }
  return found;
}

export async function takeOne(receiver) {
  return (await take(receiver, 1))[0];
}

/** Everything that can be peeked, page by page as the SDK's own cursor goes. */
export async function peekAll(receiver, page = 50) {
  const found = [];
  for (;;) {
    const more = await receiver.peekMessages(page);
    if (more.length === 0) return found;
    found.push(...more);
  }
}

/** The partition that numbered a message. */
export function partitionOf(message) {
  return message.sequenceNumber.shiftRightUnsigned(48).toNumber();
}

export function bodies(messages) {
  return messages.map((message) => message.body);
}

/** Numbers from 0, as bodies or ids. */
export function range(count) {
  return Array.from({ length: count }, (_, index) => index);
}

/** Asks again until it is so; the test's own time-out is the limit. */
export async function until(ask) {
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** A promise with its handles outside. */
export function signal() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}
