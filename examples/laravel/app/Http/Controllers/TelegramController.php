<?php

declare(strict_types=1);

namespace App\Http\Controllers;

use App\Holdfast\Client;
use App\Holdfast\Refused;
use App\Holdfast\Unavailable;
use App\Jobs\ImproveText;
use Illuminate\Http\Request;
use Illuminate\Http\Response;
use Illuminate\Support\Facades\Http;

use function App\Holdfast\aboutStars;

/** Telegram's webhook. Where anything throws, the answer is 5xx, and Telegram tells the update again. */
final class TelegramController
{
    public function __construct(private readonly Client $holdfast)
    {
    }

    public function __invoke(Request $request): Response
    {
        abort_unless(hash_equals(config('holdfast.telegram_secret'), (string) $request->header('X-Telegram-Bot-Api-Secret-Token')), 401);
        $update = $request->json()->all();
        if (aboutStars($update)) {
            foreach ($this->holdfast->telegramUpdate(self::bot(), $request->getContent())['calls'] as $call) {
                $this->make($call);
            }
        } elseif (isset($update['message']['text'], $update['message']['from'])) {
            $update['message']['text'] === '/buy' ? $this->buy($update['message']) : $this->press($update['message']);
        }
        return response()->noContent(200);
    }

    /** Reserves before the job exists. */
    private function press(array $message): void
    {
        $chat = $message['chat']['id'];
        try {
            $held = $this->holdfast->reserve(
                'telegram:' . $message['from']['id'],
                'text.improve',
                key: "$chat:{$message['message_id']}", // the message is the intention: it is charged once
                language: $message['from']['language_code'] ?? null,
                more: ['metadata' => ['chat' => (string) $chat]],
            );
        } catch (Refused $no) {
            $this->telegram('sendMessage', ['chat_id' => $chat, 'text' => $no->detail]);
            return;
        } catch (Unavailable) {
            $this->telegram('sendMessage', ['chat_id' => $chat, 'text' => 'The service is temporarily unavailable. Please try again a little later.']);
            return;
        }
        ImproveText::dispatch($held['id'], $chat, $message['text']);
    }

    private function buy(array $message): void
    {
        $order = $this->holdfast->telegramOrder(self::bot(), 'telegram:' . $message['from']['id'], 'credits_100', language: $message['from']['language_code'] ?? null);
        $button = ['text' => $order['amount'] . ' ⭐', 'url' => $this->make($order['call'])];
        $this->telegram('sendMessage', [
            'chat_id' => $message['chat']['id'], 'text' => $order['call']['parameters']['title'], 'reply_markup' => ['inline_keyboard' => [[$button]]],
        ]);
    }

    /** Makes a call of the Bot API that Holdfast asks for. */
    private function make(array $call): mixed
    {
        $answered = $this->telegram($call['method'], $call['parameters']);
        if ($call['action'] !== null) {
            $this->holdfast->telegramDone(self::bot(), $call['action']);
        }
        return $answered;
    }

    private function telegram(string $method, array $parameters): mixed
    {
        return Http::post(config('holdfast.telegram_api') . '/bot' . config('holdfast.bot_token') . '/' . $method, $parameters)->throw()->json('result');
    }

    /** The bot's id is what its token begins with; the token goes nowhere but to Telegram. */
    private static function bot(): string
    {
        return strtok(config('holdfast.bot_token'), ':');
    }
}
