// Runs holdfast.mjs against the server at API_URL (holdfast serve --dev --webhook-allow 127.0.0.0/8) with the key in API_KEY.
//
//     API_URL=http://127.0.0.1:8080 API_KEY=try-me node --test

import assert from "node:assert/strict";
import { randomInt, randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { BadSignature, Holdfast, Refused, Seen, Unavailable, aboutStars, nothingCharged, verifyWebhook, work } from "./holdfast.mjs";

const { API_URL: URL, API_KEY: KEY } = process.env;
const atOnce = { sleep: async () => {} };
const makeClient = (url = URL, options = {}) => new Holdfast(url, KEY, options);
const client = makeClient();
const user = () => randomInt(1, 2 ** 47);
const person = () => `telegram:${user()}`;
const reserve = (account, key = "m1", feature = "text.improve") => client.reserve(account, feature, { key, language: "ru" });
const refused = (reason) => (error) => error instanceof Refused && error.reason === reason;

async function credits(account) {
  return (await client.account(account)).balances.find((balance) => balance.unit === "credit").available;
}

/** Serves answers of handle(request, body) → [status, body], or null to break the connection, until the test ends. */
async function serve(t, handle) {
  const server = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    const answered = await handle(request, Buffer.concat(parts));
    if (!answered) return request.socket.destroy();
    response.writeHead(answered[0]).end(answered[1]);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

test("two presses of one button are one reservation and one charge", async () => {
  const account = person();
  const [first, second] = await Promise.all([reserve(account), reserve(account)]);
  assert.equal(first.id, second.id);
  const done = await work(client, first.id, async () => {});
  assert.deepEqual([done.state, done.used], ["committed", 1]);
  assert.equal(await credits(account), 2);
});

test("a refusal has a reason for the program and words for the person", async () => {
  const account = person();
  await reserve(account, "m1");
  await assert.rejects(reserve(account, "m2"), (no) => {
    assert.deepEqual([no.status, no.reason, no.body.max_active], [409, "too_many_active", 1]);
    assert.match(no.detail, /Дождитесь завершения текущего запроса/);
    return no instanceof Refused;
  });
});

test("a job that the queue delivers twice is charged once", async () => {
  const account = person();
  const held = await reserve(account);
  const delivered = [];
  for (let n = 0; n < 2; n++) await work(client, held.id, async (lease) => void delivered.push(lease.reservation));
  assert.deepEqual(delivered, [held.id]);
  assert.equal(await credits(account), 2);
  assert.equal(await work(client, held.id, () => assert.fail()), null);
});

test("a job that another worker has is left to it", async () => {
  const held = await reserve(person());
  await client.start(held.id, "another");
  await assert.rejects(work(client, held.id, () => assert.fail()), refused("already_running"));
});

test("work that fails gives everything back", async () => {
  const account = person();
  const held = await reserve(account);
  const fails = async () => {
    throw new Error("the provider is down");
  };
  await assert.rejects(work(client, held.id, fails), ({ message, reservation }) => {
    assert.deepEqual([message, reservation.state, reservation.cause], ["the provider is down", "released", "failed"]);
    assert.ok(nothingCharged(reservation));
    assert.ok(!nothingCharged({ ...reservation, used: 1 }));
    return true;
  });
  assert.equal(await credits(account), 3);
  await reserve(account, "m2"); // the next one is free to go
});

test("a worker that lost its lease is told and ends nothing", async () => {
  const held = await reserve(person());
  const loses = async (lease) => {
    const stopped = once(lease.signal, "abort");
    await client.release(held.id, lease.token, "crashed");
    await stopped;
  };
  assert.equal(await work(client, held.id, loses, { beatEvery: 10 }), null);
  assert.equal((await client.reservation(held.id)).cause, "crashed");
});

test("a person who asks to stop is charged what was used", async () => {
  const account = person();
  await client.reserve(account, "text.improve", { key: "makes the account" }).then((held) => client.cancel(held.id));
  await client.call("POST", `/v1/accounts/${account}/grants`, { unit: "credit", amount: 10, source: "promo" }, { key: "give" });
  const held = await reserve(account, "m1", "image.generate");
  const draws = async (lease) => {
    const stopped = once(lease.signal, "abort");
    await client.cancel(held.id);
    await stopped;
    assert.ok(lease.cancelled);
    return 3;
  };
  const done = await work(client, held.id, draws, { beatEvery: 10 });
  assert.deepEqual([done.state, done.used, done.returned], ["committed", 3, 2]);
});

test("an answer that is lost is asked for again and has one effect", async (t) => {
  let lost = 1;
  const proxy = await serve(t, async (request, body) => {
    const { host, connection, ...headers } = request.headers;
    const answered = await fetch(URL + request.url, { method: request.method, headers, body });
    const text = await answered.text();
    return lost-- > 0 ? null : [answered.status, text]; // it was done, and nobody heard of it
  });
  const account = person();
  const through = makeClient(proxy, atOnce);
  const held = await through.reserve(account, "text.improve", { key: "m1" });
  lost = 1;
  const started = await through.start(held.id, "worker");
  lost = 1;
  const done = await through.commit(held.id, started.lease_token);
  assert.deepEqual([(await reserve(account)).id, done.used, await credits(account)], [held.id, 1, 2]);
});

test("a server that is away or redirects is no answer", async (t) => {
  const away = await serve(t, () => [503, "{}"]);
  const elsewhere = await serve(t, () => [302, "{}"]);
  for (const url of [away, elsewhere, "http://127.0.0.1:1"]) {
    await assert.rejects(makeClient(url, { retryFor: 50, ...atOnce }).reserve(person(), "text.improve", { key: "m1" }), Unavailable);
  }
});

test("an event is verified and acted on once", async (t) => {
  const account = person();
  let tell;
  const came = new Promise((resolve) => (tell = resolve));
  const receiver = await serve(t, (request, body) => {
    if (JSON.parse(body).account === account) tell([request.headers, body]);
    return [200, ""];
  });
  const endpoint = await client.call("POST", "/v1/endpoints", { url: receiver, types: ["reservation.commit"] });
  const rotated = await client.call("POST", `/v1/endpoints/${endpoint.id}/rotate`);
  const held = await reserve(account);
  await work(client, held.id, async () => {});
  const [headers, body] = await came;
  await client.call("PATCH", `/v1/endpoints/${endpoint.id}`, { paused: true });

  // Both secrets sign while one is replaced; either is enough to verify.
  let event;
  for (const secrets of [endpoint.secret, [rotated.secret], ["whsec_AAAA", rotated.secret]]) {
    event = verifyWebhook(secrets, headers, body);
    assert.deepEqual([event.type, event.data.reservation], ["reservation.commit", held.id]);
  }
  const signed = Number(headers["webhook-timestamp"]);
  for (const [name, ...wrong] of [
    ["another secret", "whsec_AAAA", headers, body],
    ["another body", endpoint.secret, headers, Buffer.from(String(body).replace("reservation.commit", "reservation.expire"))],
    ["another id", endpoint.secret, { ...headers, "webhook-id": "evt_1" }, body],
    ["too old", endpoint.secret, headers, body, { now: signed + 301 }],
    ["from the future", endpoint.secret, headers, body, { now: signed - 301 }],
    ["no headers", endpoint.secret, {}, body],
    ["no signature", endpoint.secret, { ...headers, "webhook-signature": "" }, body],
  ]) {
    assert.throws(() => verifyWebhook(...wrong), BadSignature, name);
  }

  const folder = mkdtempSync(join(tmpdir(), "seen-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const seen = new Seen(join(folder, "seen"));
  await assert.rejects(seen.once(event.id, () => Promise.reject(new Error("it could not be acted on"))));
  let acted = 0;
  const times = await Promise.all([1, 2, 3].map(() => seen.once(event.id, async () => void acted++)));
  assert.deepEqual([times, acted], [[true, false, false], 1]);
  assert.equal(await new Seen(join(folder, "seen")).once(event.id, () => assert.fail()), false); // after a restart
});

const wantsToPay = (from, payload) => ({
  update_id: 5,
  pre_checkout_query: { id: "q1", from: { id: from, first_name: "A", language_code: "ru" }, currency: "XTR", total_amount: 100, invoice_payload: payload },
});

const hasPaid = (from, payload, charge) => ({
  update_id: 6,
  message: {
    message_id: 1, date: 1_800_000_000, from: { id: from },
    successful_payment: { currency: "XTR", total_amount: 100, invoice_payload: payload, telegram_payment_charge_id: charge, provider_payment_charge_id: "" },
  },
});

test("a payment is forwarded, answered and granted once", async () => {
  const payer = user();
  const order = await client.telegramOrder(7000001, `telegram:${payer}`, "credits_100", { language: "ru" });
  assert.equal(order.call.method, "createInvoiceLink");
  assert.deepEqual(order.call.parameters.prices, [{ label: "100 кредитов", amount: 100 }]);
  const yes = await client.telegramUpdate(7000001, wantsToPay(payer, order.payload));
  assert.deepEqual(yes.calls, [{ method: "answerPreCheckoutQuery", parameters: { pre_checkout_query_id: "q1", ok: true }, action: null }]);
  const no = await client.telegramUpdate(7000001, wantsToPay(1, order.payload));
  assert.equal(no.reason, "wrong_person");
  assert.match(no.calls[0].parameters.error_message, /другому человеку/);
  const charge = randomUUID();
  const changed = [];
  for (let n = 0; n < 2; n++) changed.push((await client.telegramUpdate(7000001, hasPaid(payer, order.payload, charge))).changed);
  assert.deepEqual([changed, await credits(`telegram:${payer}`)], [[true, false], 103]);
});

test("a payment is stopped where Holdfast cannot be asked", async (t) => {
  const closed = await serve(t, () => [401, "{}"]);
  const stranger = await serve(t, () => [200, "yes"]);
  for (const url of ["http://127.0.0.1:1", closed, stranger]) {
    const away = makeClient(url, { preCheckoutWithin: 200, retryFor: 50, ...atOnce });
    const { reason, calls } = await away.telegramUpdate(7000001, wantsToPay(42, "x"));
    assert.deepEqual([reason, calls[0].method, calls[0].parameters.pre_checkout_query_id, calls[0].parameters.ok], ["try_again", "answerPreCheckoutQuery", "q1", false]);
    assert.ok(calls[0].parameters.error_message);
    // What was paid is told again instead.
    await assert.rejects(away.telegramUpdate(7000001, hasPaid(42, "x", "c1")), (error) => error instanceof Refused || error instanceof Unavailable);
  }
});

test("only updates about Stars are forwarded", () => {
  for (const update of [wantsToPay(1, "x"), hasPaid(1, "x", "c"), { update_id: 1, subscription: {} }]) assert.ok(aboutStars(update));
  for (const update of [{ update_id: 1, message: { text: "hello" } }, { update_id: 1, callback_query: {} }]) assert.ok(!aboutStars(update));
});
