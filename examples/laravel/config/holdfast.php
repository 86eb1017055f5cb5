<?php

return [
    'url' => env('API_URL', 'http://127.0.0.1:8080'),
    'key' => env('API_KEY'), // of the scopes read, work and money
    'webhook_secrets' => array_values(array_filter(explode(' ', (string) env('WEBHOOK_SECRET')))), // two while one is replaced
    'bot_token' => env('BOT_TOKEN'),
    'telegram_api' => env('TELEGRAM_API', 'https://api.telegram.org'),
    'telegram_secret' => env('TELEGRAM_SECRET'),
    'provider_url' => env('PROVIDER_URL'),
    'provider_key' => env('PROVIDER_KEY'),
];
