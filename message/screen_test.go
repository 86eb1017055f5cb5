package message

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast"
)

const goldenScreens = "testdata/screens.golden"

// market is the shop with something to buy.
func market() *holdfast.Catalog {
	c := shop()
	pro, _ := c.Plan("pro")
	pro.FreeFeatures = []string{"text.improve"}
	pro.Allowances = []holdfast.Allowance{
		{Key: "pro/credit", Unit: "credit", Amount: 300, Every: holdfast.Cycle{Term: true}}, {Key: "pro/image", Unit: "image", Amount: 50, Every: holdfast.Cycle{Term: true}},
	}
	c.Products = []holdfast.Product{
		{Name: "pro_30", Plan: "pro", Period: holdfast.Period{Days: 30}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 250}}},
		{Name: "credits_100", Grant: &holdfast.ProductGrant{Unit: "credit", Amount: 100}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 1}}},
		{Name: "year", Names: holdfast.Names{"en": "A year", "ru": "Год"}, Plan: "pro", Period: holdfast.Period{Months: 12}, Prices: []holdfast.Money{{Currency: "USD", Amount: 4990}}},
	}
	return c
}

func marketOffers(c *holdfast.Catalog) []Offer {
	offers := make([]Offer, len(c.Products))
	for i := range c.Products {
		offers[i] = Offer{Product: &c.Products[i], Price: c.Products[i].Prices[0], Recurring: c.Products[i].Name == "pro_30"}
	}
	return offers
}

// shown are the screens, by name, for one reader.
func shown(texts *Texts, reader Reader) []struct{ name, text string } {
	c := market()
	offers := marketOffers(c)
	newcomer := &holdfast.AccountView{Plan: "free", MaxActive: 1, Balances: []holdfast.Balance{
		{Unit: "credit", Available: 3, Cycle: &holdfast.CycleNumbers{Granted: 3}}, {Unit: "image"},
	}}
	busy := &holdfast.AccountView{Plan: "free", MaxActive: 2, Account: holdfast.Account{Active: 1, Blocked: true}, Balances: []holdfast.Balance{
		{Unit: "credit", Available: 1, Reserved: 1, Debt: 2, Cycle: &holdfast.CycleNumbers{Granted: 3, Used: 1, Reserved: 1, StartsAt: noon, EndsAt: reset}, ResetsAt: reset},
		{Unit: "coin", Available: 150},
	}}
	paying := func(status holdfast.SubscriptionStatus) *holdfast.AccountView {
		return &holdfast.AccountView{
			Plan: "pro", MaxActive: 3, Balances: []holdfast.Balance{{Unit: "credit", Available: 300}, {Unit: "image", Available: 21}},
			Subscription: &holdfast.SubscriptionView{Plan: "pro", Status: status, PaidUntil: reset, GraceUntil: reset, Next: "max"},
		}
	}
	bought := []Bought{
		{ID: "chg_" + strings.Repeat("7", 90), Product: "credits_100", Price: holdfast.Money{Currency: "XTR", Amount: 100}, At: noon.Add(-time.Hour)},
		{ID: "chg_2", Product: "none.of.the.catalog", Price: holdfast.Money{Currency: "XTR", Amount: 99}, At: noon.Add(-25 * time.Hour), Flagged: true},
		{ID: "chg_3", Product: "pro_30", Price: holdfast.Money{Currency: "XTR", Amount: 250}, At: noon.AddDate(-1, 0, 0), Refunded: 250},
	}
	asked := func(r holdfast.Reservation, feature string) *holdfast.Reservation {
		r.Feature, r.CreatedAt = feature, noon.Add(-time.Minute)
		return &r
	}
	stopped := credits(holdfast.Released, 5, 0)
	stopped.Cause = holdfast.CauseCancelled
	history := []*holdfast.Reservation{
		asked(credits(holdfast.Running, 1, 0), "text.improve"), asked(credits(holdfast.Committed, 5, 3), "image.generate"), asked(stopped, "image.generate"),
	}
	asks := []Ask{{Feature: "text.improve"}, {Feature: "image.generate", Command: "image"}, {Feature: "file.analyze", Command: "file"}, {Feature: "gone", Command: "gone"}}
	contact := Contact{Support: "@shop_help", Terms: "https://shop.example/" + strings.Repeat("terms/", 20)}
	granted := &holdfast.Payment{State: holdfast.PaymentGranted, Product: "credits_100", Amount: 100, Currency: "XTR", Refunded: 100}
	flagged := &holdfast.Payment{State: holdfast.PaymentFlagged, Product: "gone", Amount: 21, Currency: "XTR", PaymentID: "chg_21"}
	title, description := texts.Invoice(reader, c, offers[0])
	packTitle, packDescription := texts.Invoice(reader, c, offers[1])
	list := []struct{ name, text string }{
		{"welcome", texts.Welcome(reader, c, newcomer, asks)},
		{"welcome on a paid plan", texts.Welcome(reader, c, paying(holdfast.SubscriptionActive), asks)},
		{"help", texts.Help(reader, c, newcomer, asks, contact)},
		{"help without a contact", texts.Help(reader, c, newcomer, nil, Contact{})},
		{"balance of a newcomer", texts.Balance(reader, c, newcomer, noon)},
		{"balance, busy", texts.Balance(reader, c, busy, noon)},
		{"balance, paid", texts.Balance(reader, c, paying(holdfast.SubscriptionActive), noon)},
		{"balance, cancelled", texts.Balance(reader, c, paying(holdfast.SubscriptionCancelled), noon)},
		{"balance, in grace", texts.Balance(reader, c, paying(holdfast.SubscriptionGrace), noon)},
		{"plans", texts.Plans(reader, c, newcomer, offers, noon)},
		{"plans, nothing sold", texts.Plans(reader, c, newcomer, nil, noon)},
		{"an offer", texts.OfferCard(reader, c, offers[0])},
		{"buttons of offers", texts.OfferButton(reader, c, offers[0]) + " | " + texts.OfferButton(reader, c, offers[1]) + " | " + texts.PayButton(reader, offers[0]) + " | " + texts.PayButton(reader, offers[1])},
		{"an invoice", title + "\n" + description},
		{"an invoice for a pack", packTitle + "\n" + packDescription},
		{"history", texts.History(reader, c, history, noon)},
		{"no history", texts.History(reader, c, nil, noon)},
		{"paysupport", texts.PaySupport(reader, c, bought, contact, noon)},
		{"paysupport, nothing known", texts.PaySupport(reader, c, nil, Contact{}, noon)},
		{"terms", texts.Terms(reader, contact)},
		{"terms, none", texts.Terms(reader, Contact{})},
		{"paid", texts.Paid(reader, c, granted, paying(holdfast.SubscriptionActive), noon)},
		{"paid and flagged", texts.Paid(reader, c, flagged, nil, noon)},
		{"refunded", texts.PaymentRefunded(reader, c, granted, newcomer, noon)},
		{"renewal stopped", texts.Renewal(reader, c, RenewalStopped, paying(holdfast.SubscriptionCancelled), noon)},
		{"renewal resumed", texts.Renewal(reader, c, RenewalResumed, paying(holdfast.SubscriptionActive), noon)},
		{"renewal failed", texts.Renewal(reader, c, RenewalFailed, nil, noon)},
		{"granted by an operator", texts.Granted(reader, c, "telegram:42", holdfast.Outcome{Grant: &holdfast.Grant{Unit: "credit", Granted: 5}, Balance: &holdfast.Balance{Unit: "credit", Available: 8}}, noon)},
	}
	for _, phrase := range []Phrase{
		ButtonStopRenewal, ButtonLanguageOf, ChooseLanguage, LanguageChosen, LanguageIsTelegrams, UnknownCommand,
		NoSuchOffer, AskWithWords, StopRenewalAsked, NoRenewal,
	} {
		list = append(list, struct{ name, text string }{string(phrase), texts.Phrase(reader, phrase, nil)})
	}
	for _, answer := range []Answer{
		GrantUsage, RefundUsage, RefundBegun, RefundDone, RefundRefused, RefundUnknown, RefundWasDone, OperatorRefused,
	} {
		list = append(list, struct{ name, text string }{string(answer), texts.Operator(reader, answer, "chg_1")})
	}
	return list
}

// The golden file is read by people: it is where the screens' words are judged.
func TestScreensReadAsTheyDidWhenTheyWereLastLookedAt(t *testing.T) {
	texts := newTexts(t)
	var written strings.Builder
	for _, reader := range []Reader{english(), russian()} {
		for _, screen := range shown(texts, reader) {
			fmt.Fprintf(&written, "# %s: %s\n%s\n\n", reader.Language, screen.name, screen.text)
			if screen.text == "" || strings.Contains(screen.text, "<no value>") || strings.Contains(screen.text, "\n\n\n") || !utf8.ValidString(screen.text) {
				t.Errorf("%s, %s: %q", reader.Language, screen.name, screen.text)
			}
		}
	}
	if *update {
		if err := os.WriteFile(goldenScreens, []byte(written.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(goldenScreens)
	if err != nil {
		t.Fatal(err)
	}
	if difference := cmp.Diff(string(golden), written.String()); difference != "" {
		t.Errorf("screens differ from %s (-golden +now):\n%s", goldenScreens, difference)
	}
}

func TestAnInvoiceKeepsWithinTelegramsBounds(t *testing.T) {
	texts, c := newTexts(t), market()
	long := &holdfast.Product{Name: "long", Plan: "pro", Period: holdfast.Period{Days: 30}, Names: holdfast.Names{"ru": strings.Repeat("Щедрый ", 9)}}
	pro, _ := c.Plan("pro")
	for i := range 40 {
		pro.Features = append(pro.Features, fmt.Sprintf("a.rather.long.name.of.a.feature.%d", i))
		pro.Allowances = append(pro.Allowances, holdfast.Allowance{Unit: "a.rather.long.name.of.a.unit", Amount: holdfast.MaxAmount})
	}
	title, description := texts.Invoice(russian(), c, Offer{Product: long, Price: holdfast.Money{Currency: "XTR", Amount: 10_000}, Recurring: true})
	if n := utf8.RuneCountInString(title); n == 0 || n > 32 {
		t.Errorf("the title has %d characters: %s", n, title)
	}
	if n := utf8.RuneCountInString(description); n == 0 || n > 255 {
		t.Errorf("the description has %d characters: %s", n, description)
	}
}

func TestEveryCommandSaysWhatItDoesInEveryLanguage(t *testing.T) {
	texts := newTexts(t)
	for _, command := range Commands() {
		en, ru := texts.CommandAbout("en", command), texts.CommandAbout("ru", command)
		if en == "" || ru == "" || en == ru || utf8.RuneCountInString(ru) > 256 {
			t.Errorf("/%s: %q, %q", command, en, ru)
		}
	}
}
