"""A bot with aiogram and a queue of its own that charges through Holdfast. See docs/guides/aiogram.md.

The queue is asyncio's, and is empty after a restart: what was in it expires, and the person is told by the webhook. With a
queue that survives (arq, Celery, …) put the same three values into it and call worker_of_one in its task.
"""

import asyncio
import hmac
import logging
import os
import re

from aiogram import Bot, Dispatcher, F
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.filters import Command
from aiogram.types import InlineKeyboardButton, InlineKeyboardMarkup, Message
from aiohttp import web

import holdfast

telegram_api = TelegramAPIServer.from_base(os.environ.get("TELEGRAM_API", "https://api.telegram.org"))
bot = Bot(os.environ["BOT_TOKEN"], session=AiohttpSession(api=telegram_api))
dispatcher = Dispatcher()
client = holdfast.Holdfast(os.environ["API_URL"], os.environ["API_KEY"])
seen = holdfast.Seen(os.environ.get("SEEN_DB", "seen.db"))
jobs: asyncio.Queue = asyncio.Queue()

SORRY = "The service is temporarily unavailable. Please try again a little later."


async def improve(text: str, idempotency_key: str) -> str:
    """Stands for your provider. Give it the key: the same job may come twice."""
    return text.strip().capitalize()


# Reserve before the job exists.


@dispatcher.message(Command("buy"))
async def buy(message: Message) -> None:
    account, language = f"telegram:{message.from_user.id}", message.from_user.language_code
    order = await asyncio.to_thread(client.telegram_order, bot.id, account, "credits_100", language=language)
    link = await make(order["call"])
    button = InlineKeyboardButton(text=f"{order['amount']} ⭐", url=link)
    await message.answer(order["call"]["parameters"]["title"], reply_markup=InlineKeyboardMarkup(inline_keyboard=[[button]]))


@dispatcher.message(F.text)
async def press(message: Message) -> None:
    try:
        held = await asyncio.to_thread(
            client.reserve,
            f"telegram:{message.from_user.id}",
            "text.improve",
            key=f"{message.chat.id}:{message.message_id}",  # the message is the intention: it is charged once
            language=message.from_user.language_code,
            metadata={"chat": str(message.chat.id)},
        )
    except holdfast.Refused as no:
        await message.answer(no.detail)
    except holdfast.Unavailable:
        await message.answer(SORRY)
    else:
        await jobs.put((held["id"], message.chat.id, message.text))


# Start, heartbeat, commit or release in the worker.


async def worker_of_one(reservation: str, chat: int, text: str) -> None:
    loop = asyncio.get_running_loop()

    def do(lease):
        async def deliver():
            await bot.send_message(chat, await improve(text, idempotency_key=reservation))

        asyncio.run_coroutine_threadsafe(deliver(), loop).result()

    try:
        await asyncio.to_thread(holdfast.work, client, reservation, do)
    except (holdfast.Refused, holdfast.Unavailable):
        logging.exception("not now: %s", reservation)  # a queue that survives brings it again
    except Exception as error:
        logging.exception("failed: %s", reservation)
        if error.reservation and holdfast.nothing_charged(error.reservation):
            await bot.send_message(chat, "It did not work out. Nothing was charged.")


async def worker() -> None:
    while True:
        await worker_of_one(*await jobs.get())


# Telegram's webhook. Updates about Stars go to Holdfast as they came.


async def telegram(request: web.Request) -> web.Response:
    secret = request.headers.get("X-Telegram-Bot-Api-Secret-Token", "")
    if not hmac.compare_digest(secret.encode(), os.environ["TELEGRAM_SECRET"].encode()):
        return web.Response(status=401)
    update = await request.json()
    if not holdfast.about_stars(update):
        await dispatcher.feed_raw_update(bot, update)
        return web.Response()
    try:
        told = await asyncio.to_thread(client.telegram_update, bot.id, update)
        for call in told["calls"]:
            await make(call)
    except Exception:
        logging.exception("Telegram will tell it again")
        return web.Response(status=503)
    return web.Response()


async def make(call: dict):
    """Makes a call of the Bot API that Holdfast asks for: createInvoiceLink is create_invoice_link here."""
    method = getattr(bot, re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), call["method"]))
    answered = await method(**call["parameters"])
    if call["action"]:
        await asyncio.to_thread(client.telegram_done, bot.id, call["action"])
    return answered


# Holdfast's webhook, for reservation.expire: nobody came back, and the person is told.


async def events(request: web.Request) -> web.Response:
    loop, body = asyncio.get_running_loop(), await request.read()
    try:
        event = holdfast.verify_webhook(os.environ["WEBHOOK_SECRET"].split(), request.headers, body)
    except holdfast.BadSignature:
        return web.Response(status=401)

    def act():
        with seen.once(event["id"]) as new:
            if not new or event["type"] != "reservation.expire":
                return
            ended = client.reservation(event["data"]["reservation"])
            if holdfast.nothing_charged(ended) and "chat" in ended["metadata"]:
                told = bot.send_message(int(ended["metadata"]["chat"]), "It took too long. Nothing was charged.")
                asyncio.run_coroutine_threadsafe(told, loop).result()

    await asyncio.to_thread(act)
    return web.Response()


async def main() -> None:
    application = web.Application()
    application.add_routes([web.post("/telegram", telegram), web.post("/holdfast", events)])
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(os.environ.get("PORT", "8090"))).start()
    await bot.set_webhook(
        os.environ["PUBLIC_URL"] + "/telegram",
        secret_token=os.environ["TELEGRAM_SECRET"],
        allowed_updates=["message", "callback_query", "pre_checkout_query", "subscription"],
    )
    await asyncio.gather(*(worker() for _ in range(4)))


if __name__ == "__main__":
    asyncio.run(main())
