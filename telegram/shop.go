package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/payment/telegramstars"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
)

// ShopOptions say what a bot sells, and who answers for it.
type ShopOptions struct {
	// Stars takes payments; its Book is of the kit's project, and its Bot the bot's id. Nil: nothing is sold.
	Stars *telegramstars.Stars
	// Contact is told by /help, /paysupport and /terms.
	Contact message.Contact
	// Operators are the user ids of those who may /grant and /refund. For everybody else these commands do not exist.
	Operators []int64
	// History is how many requests /history lists; 0: 10.
	History int
	// Retry is how long a refund that Telegram has not answered waits for its next attempt, at first; 0: 10 s. It doubles, up
	// to an hour.
	Retry time.Duration
	// Reconcile is how far apart all of the bot's transactions are compared with what is here; 0: a day; negative: never.
	Reconcile time.Duration
}

// Shop is everything that a bot tells and sells besides work: the commands that every bot has, payments, and what follows
// from them at Telegram. Give updates to its Take. Its methods are safe for concurrent use.
type Shop struct {
	kit     *Kit
	options ShopOptions
	buying  keyed                 // one purchase of a person at a time
	actions *telegramstars.Runner // nil: nothing is sold
	wake    chan struct{}         // a refund is asked for
	running sync.Mutex            // of Refunds
}

// The defaults of ShopOptions.
const (
	listedRequests = 10
	firstRetry     = 10 * time.Second
	longestRetry   = time.Hour
	reconcileEvery = 24 * time.Hour
)

// Buttons of the shop. ButtonPlans may be the kit's Options.Plans, and ButtonTopUp its Options.TopUp.
const (
	ButtonPlans    = "plans"
	ButtonTopUp    = ButtonPlans + ":" + onlyPacks
	onlyPacks      = "packs"
	buttonBuy      = "buy"
	buttonStop     = "stop"
	buttonLanguage = "lang"
)

// NewShop lets a bot answer the commands of every bot, and sell. It registers with the kit, so before its first update; what
// the kit has of the same names already is replaced. Then Run.
func NewShop(kit *Kit, options ShopOptions) *Shop {
	s := &Shop{kit: kit, options: options, wake: make(chan struct{}, 1)}
	if s.options.History == 0 {
		s.options.History = listedRequests
	}
	if s.options.Retry == 0 {
		s.options.Retry = firstRetry
	}
	if s.options.Reconcile == 0 {
		s.options.Reconcile = reconcileEvery
	}
	if options.Stars != nil {
		s.actions = telegramstars.NewRunner(telegramstars.RunnerOptions{Stars: options.Stars, Notes: kit.options.Notes, Do: s.act, Logger: kit.log()})
	}
	for command, handle := range map[message.Command]Handler{
		message.CommandStart: s.start, message.CommandHelp: s.help, message.CommandBalance: s.balance, message.CommandPlans: s.plans,
		message.CommandHistory: s.history, message.CommandCancel: s.cancel, message.CommandLanguage: s.language,
		message.CommandPaySupport: s.paySupport, message.CommandTerms: s.terms,
	} {
		kit.Command(string(command), handle)
	}
	kit.Command("grant", s.operatorsOnly(s.grant))
	kit.Command("refund", s.operatorsOnly(s.refund))
	kit.Button(ButtonPlans, s.plans)
	kit.Button(buttonBuy, s.buy)
	kit.Button(buttonStop, s.stop)
	kit.Button(buttonLanguage, s.chooseLanguage)
	kit.On(KindMessage, s.unknown)
	kit.paid = s.rememberTold
	for _, kind := range []Kind{KindPreCheckout, KindSuccessfulPayment, KindRefundedPayment, KindSubscription} {
		kit.On(kind, func(ctx context.Context, turn *Turn) error {
			_, err := s.takeMoney(ctx, turn.Update.Raw)
			return err
		})
	}
	return s
}

// Run does at Telegram what is still to be done there, and compares Telegram's list of transactions with what is here, until
// ctx ends. Whatever it does may be done twice, so every process of a bot may run it.
func (s *Shop) Run(ctx context.Context) error {
	if s.options.Stars == nil {
		<-ctx.Done()
		return nil
	}
	var parts sync.WaitGroup
	parts.Go(func() { _ = s.actions.Run(ctx) }) // it ends with ctx alone
	parts.Go(func() { s.refunds(ctx) })
	if s.options.Reconcile > 0 {
		parts.Go(func() { s.reconcileDaily(ctx) })
	}
	parts.Wait()
	return nil
}

// SetUp tells Telegram the bot's commands, in every language that is spoken here.
func (s *Shop) SetUp(ctx context.Context) error {
	for _, language := range []string{"", "en", "ru"} {
		if err := s.kit.options.API.SetCommands(ctx, language, s.menu(language)); err != nil {
			return fmt.Errorf("tell Telegram the commands: %w", err)
		}
	}
	return nil
}

// Telegram's bounds of a menu.
const (
	mostCommands = 100
	mostAbout    = 256
)

func (s *Shop) menu(language string) []botapi.Command {
	texts := s.kit.options.Texts
	var menu []botapi.Command
	for _, ask := range s.asks() {
		if ask.Command != "" {
			name := texts.FeatureName(message.Reader{Language: language}, s.kit.catalog(), ask.Feature)
			menu = append(menu, botapi.Command{Name: ask.Command, Description: botapi.Shorten(name, mostAbout, false)})
		}
	}
	for _, command := range message.Commands() {
		menu = append(menu, botapi.Command{Name: string(command), Description: texts.CommandAbout(language, command)})
	}
	return menu[:min(len(menu), mostCommands)]
}

// asks are the ways to ask for the features that the bot has.
func (s *Shop) asks() []message.Ask {
	var asks []message.Ask
	for _, feature := range s.kit.features {
		asks = append(asks, message.Ask{Feature: feature.Name, Command: feature.Command})
	}
	return asks
}

// ErrUpdatesMissing is the error of CheckWebhook.
var ErrUpdatesMissing = errors.New("telegram would not send every kind of update that the bot needs")

// CheckWebhook reports what is wrong with where Telegram sends updates, and which kinds: without pre_checkout_query, for
// example, every payment would time out, and nobody would be told.
func CheckWebhook(info botapi.WebhookInfo, url string, kinds []string) error {
	if info.URL != url {
		return errors.New("telegram sends updates to another address: another program has set it, for the same bot")
	}
	var missing []string
	for _, kind := range kinds {
		if !slices.Contains(info.Allowed, kind) {
			missing = append(missing, kind)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: it leaves out %v", ErrUpdatesMissing, missing)
	}
	return nil
}

// say answers with a text in the person's language.
func (s *Shop) say(ctx context.Context, turn *Turn, text string, keyboard botapi.Keyboard) error {
	_, err := turn.Reply(ctx, text, keyboard)
	return err
}

func (s *Shop) texts() *message.Texts { return s.kit.options.Texts }

func (s *Shop) now() time.Time { return s.kit.options.Engine.Now() }

// view is an account as it is now, and how to speak to its person where no turn says it.
func (s *Shop) view(ctx context.Context, account string) (*holdfast.AccountView, message.Reader, error) {
	view, err := s.kit.options.Engine.View(ctx, s.kit.options.Project, account)
	if err != nil {
		return nil, message.Reader{}, err
	}
	return view, s.kit.reader(view.Account.Language, view.Account.TimeZone), nil
}

// tell writes to a person who has not asked just now. Whoever cannot be written to is left alone.
func (s *Shop) tell(ctx context.Context, user int64, text string, keyboard botapi.Keyboard) error {
	_, err := s.kit.options.API.Send(botapi.WithPriority(ctx, botapi.Notice), botapi.Message{Chat: user, Text: text, Keyboard: keyboard})
	if errors.Is(err, botapi.ErrBlocked) {
		return nil
	}
	return err
}

// read reads the value of a note.
func read[T any](value string) (T, error) {
	var into T
	err := json.Unmarshal([]byte(value), &into)
	return into, err
}
