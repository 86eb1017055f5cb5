// A bot with grammY and a queue of its own that charges through Holdfast. See docs/guides/grammy.md.
//
// The queue is a list in memory, and is empty after a restart: what was in it expires, and the person is told by the webhook.
// With a queue that survives (BullMQ, pg-boss, …) put the same three values into it and call workOfOne in its processor.

import { timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

import { Bot, InlineKeyboard } from "grammy";

import { BadSignature, Holdfast, Refused, Seen, Unavailable, aboutStars, nothingCharged, verifyWebhook, work } from "./holdfast.mjs";

const { BOT_TOKEN, TELEGRAM_SECRET, TELEGRAM_API, PUBLIC_URL, API_URL, API_KEY, WEBHOOK_SECRET } = process.env;
const bot = new Bot(BOT_TOKEN, { client: TELEGRAM_API ? { apiRoot: TELEGRAM_API } : {} });
const client = new Holdfast(API_URL, API_KEY);
const seen = new Seen(process.env.SEEN_FILE ?? "seen");
const sorry = "The service is temporarily unavailable. Please try again a little later.";

/** Stands for your provider. Give it the key: the same job may come twice. */
async function improve(text, { idempotencyKey }) {
  return text.trim().replace(/^./u, (first) => first.toUpperCase());
}

// Reserve before the job exists.

bot.command("buy", async (context) => {
  const { id, language_code: language } = context.from;
  const order = await client.telegramOrder(bot.botInfo.id, `telegram:${id}`, "credits_100", { language });
  const link = await make(order.call);
  await context.reply(order.call.parameters.title, { reply_markup: new InlineKeyboard().url(`${order.amount} ⭐`, link) });
});

bot.on("message:text", async (context) => {
  const { chat, from, message } = context;
  try {
    const held = await client.reserve(`telegram:${from.id}`, "text.improve", {
      key: `${chat.id}:${message.message_id}`, // the message is the intention: it is charged once
      language: from.language_code,
      metadata: { chat: String(chat.id) },
    });
    push({ reservation: held.id, chat: chat.id, text: message.text });
  } catch (error) {
    if (error instanceof Refused) await context.reply(error.detail);
    else if (error instanceof Unavailable) await context.reply(sorry);
    else throw error;
  }
});

// Start, heartbeat, commit or release in the worker.

async function workOfOne({ reservation, chat, text }) {
  try {
    await work(client, reservation, async () => {
      await bot.api.sendMessage(chat, await improve(text, { idempotencyKey: reservation }));
    });
  } catch (error) {
    console.error(reservation, error);
    if (error.reservation && nothingCharged(error.reservation)) await bot.api.sendMessage(chat, "It did not work out. Nothing was charged.");
  }
}

const jobs = [];
let working = 0;

function push(job) {
  jobs.push(job);
  if (working < 4) void run();
}

async function run() {
  working++;
  for (let job = jobs.shift(); job; job = jobs.shift()) await workOfOne(job).catch(console.error);
  working--;
}

// Telegram's webhook. Updates about Stars go to Holdfast as they came.

async function telegram(headers, body) {
  const [secret, sent] = [TELEGRAM_SECRET, String(headers["x-telegram-bot-api-secret-token"] ?? "")].map((text) => Buffer.from(text));
  if (secret.length !== sent.length || !timingSafeEqual(secret, sent)) return 401;
  const update = JSON.parse(body);
  if (!aboutStars(update)) {
    await bot.handleUpdate(update);
    return 200;
  }
  const told = await client.telegramUpdate(bot.botInfo.id, update);
  for (const call of told.calls) await make(call);
  return 200;
}

/** Makes a call of the Bot API that Holdfast asks for. */
async function make(call) {
  const answered = await bot.api.raw[call.method](call.parameters);
  if (call.action) await client.telegramDone(bot.botInfo.id, call.action);
  return answered;
}

// Holdfast's webhook, for reservation.expire: nobody came back, and the person is told.

async function events(headers, body) {
  let event;
  try {
    event = verifyWebhook(WEBHOOK_SECRET.split(" "), headers, body);
  } catch (error) {
    if (error instanceof BadSignature) return 401;
    throw error;
  }
  await seen.once(event.id, async () => {
    if (event.type !== "reservation.expire") return;
    const ended = await client.reservation(event.data.reservation);
    if (nothingCharged(ended) && ended.metadata.chat) await bot.api.sendMessage(Number(ended.metadata.chat), "It took too long. Nothing was charged.");
  });
  return 200;
}

const routes = { "/telegram": telegram, "/holdfast": events };

const server = createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  let status = 404;
  try {
    if (request.method === "POST" && routes[request.url]) status = await routes[request.url](request.headers, Buffer.concat(parts));
  } catch (error) {
    console.error(error);
    status = 503; // it is told again
  }
  response.writeHead(status).end();
});

await bot.init();
server.listen(Number(process.env.PORT ?? 8090), "127.0.0.1");
await bot.api.setWebhook(PUBLIC_URL + "/telegram", {
  secret_token: TELEGRAM_SECRET,
  allowed_updates: ["message", "callback_query", "pre_checkout_query", "subscription"],
});
