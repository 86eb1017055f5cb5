package main

import (
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/httpapi"
	"github.com/holdfast-dev/holdfast/payment"
	"github.com/holdfast-dev/holdfast/payment/telegramstars"
)

// starsOf sells for bots whose tokens stay with their authors.
func starsOf(desk *payment.Desk, orders payment.Orders, e *engine.Engine) func(httpapi.Bot) httpapi.Stars {
	return func(bot httpapi.Bot) httpapi.Stars {
		return &telegramstars.Stars{
			Book: &payment.Book{Desk: desk, Orders: orders, Accounts: e, Project: bot.Project, Provider: bot.Provider},
			Bot:  bot.ID, Deadline: bot.Deadline,
		}
	}
}
