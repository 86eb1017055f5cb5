// Command telegram is a bot that sells work, in one process, on an SQLite file that it creates:
//
//	TELEGRAM_BOT_TOKEN=… go run ./examples/telegram
//
// With TELEGRAM_API_URL it speaks to a stand-in for Telegram: holdfast fake-telegram. It is for reading; nothing else calls
// it.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/catalog"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/outbox"
	"github.com/holdfast-dev/holdfast/store/sqlite"
	"github.com/holdfast-dev/holdfast/telegram"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
	"github.com/holdfast-dev/holdfast/telegram/inbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	db, err := sqlite.Open(ctx, "bot.db", sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	api, err := botapi.New(botapi.Options{Token: os.Getenv("TELEGRAM_BOT_TOKEN"), URL: os.Getenv("TELEGRAM_API_URL")})
	if err != nil {
		return err
	}
	id, username, err := api.Me(ctx)
	if err != nil {
		return err
	}
	texts, err := message.New()
	if err != nil {
		return err
	}
	sold := catalog.Embedded()
	eng := engine.New(db, engine.Options{Catalog: func(string) *holdfast.Catalog { return sold }})

	kit, err := telegram.New(telegram.Options{
		Bot: strconv.FormatInt(id, 10), Username: username, Project: "bot", Engine: eng, API: api, Notes: db, Texts: texts,
		Plans: telegram.ButtonPlans, TopUp: telegram.ButtonPlans,
	})
	if err != nil {
		return err
	}
	kit.Feature(telegram.Feature{Name: "text.improve", Do: improve}) // whatever people write
	shop := telegram.NewShop(kit, telegram.ShopOptions{})            // /start, /balance, /plans, /cancel and the like

	updates := inbox.New(inbox.Options{Store: db, Bot: strconv.FormatInt(id, 10), Handle: func(ctx context.Context, u inbox.Update) error {
		_, err := shop.Take(ctx, u.Raw)
		return err
	}, Refuse: func(ctx context.Context, u inbox.Update) error { return shop.Refuse(ctx, u.Raw) }})

	serving, stop := context.WithCancel(context.WithoutCancel(ctx)) // the engine ends last: the ends of work are told to it
	defer stop()
	var parts, last sync.WaitGroup
	last.Go(func() { report(eng.Serve(serving)) })
	parts.Go(func() { report(updates.Poll(ctx, api)) })
	parts.Go(func() { report(updates.Run(ctx)) })
	parts.Go(func() { report(kit.Run(ctx)) })
	parts.Go(func() { report(shop.Run(ctx)) })
	parts.Go(func() { report(telegram.Relay(db, outbox.Options{}, kit).Run(ctx)) })
	parts.Wait()
	stop()
	last.Wait()
	return nil
}

// improve is the work. An error gives it back for another attempt, and in the end returns what it would have cost; the result
// is charged when it is with the person.
func improve(_ context.Context, w *telegram.Work) (telegram.Result, error) {
	return telegram.Result{Text: strings.ToUpper(w.Prompt.Text)}, nil
}

func report(err error) {
	if err != nil {
		log.Print(err)
	}
}
