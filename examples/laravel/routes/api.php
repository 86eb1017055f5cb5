<?php

use App\Http\Controllers\HoldfastController;
use App\Http\Controllers\TelegramController;
use Illuminate\Support\Facades\Route;

Route::post('/telegram', TelegramController::class);
Route::post('/holdfast', HoldfastController::class);
