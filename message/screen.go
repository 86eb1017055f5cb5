package message

import (
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// Screens are what a chat bot shows where nobody has asked for work: what there is, what it costs, what was bought. Like
// every text they are composed from what was read, and they compute nothing. They have several lines.

// Ask is how a person asks for a feature: by a command and their words, or, where there is no command, by just writing.
type Ask struct{ Feature, Command string }

// Offer is what a product costs in a currency. Recurring says that it is charged again with every period.
type Offer struct {
	Product   *holdfast.Product
	Price     holdfast.Money
	Recurring bool
	// Features are those of the plan that can be asked for here: no others are told. Nil: all.
	Features []string
}

// screen is a text of several lines.
type screen struct {
	*writer
	lines []string
}

func (t *Texts) screen(reader Reader, catalog *holdfast.Catalog, now time.Time) *screen {
	return &screen{writer: t.writer(reader, catalog, now)}
}

// end ends a line: what was said since the last one.
func (s *screen) end() {
	if len(s.said) > 0 {
		s.lines = append(s.lines, s.text())
		s.said = nil
	}
}

// gap sets what follows apart.
func (s *screen) gap() {
	s.end()
	if len(s.lines) > 0 && s.lines[len(s.lines)-1] != "" {
		s.lines = append(s.lines, "")
	}
}

func (s *screen) whole() string {
	s.end()
	return strings.TrimSpace(strings.Join(s.lines, "\n"))
}

// Welcome greets a person, and says what they can ask for and what it costs them.
func (t *Texts) Welcome(reader Reader, catalog *holdfast.Catalog, view *holdfast.AccountView, asks []Ask) string {
	s := t.screen(reader, catalog, time.Time{})
	s.say("welcome", nil)
	s.end()
	s.asks(view, asks)
	s.gap()
	s.say("welcome.more", nil)
	return s.whole()
}

func (s *screen) asks(view *holdfast.AccountView, asks []Ask) {
	plan, _ := s.catalog.Plan(view.Plan)
	for _, ask := range asks {
		feature, ok := s.catalog.Feature(ask.Feature)
		if !ok {
			continue
		}
		v := values{"Feature": s.feature(ask.Feature), "Command": ask.Command}
		if ask.Command == "" {
			s.say("ask.write", v)
		} else {
			s.say("ask.command", v)
		}
		switch {
		case plan != nil && !plan.Has(ask.Feature):
			if having := s.plansWith(ask.Feature); len(having) > 0 {
				s.sayOf("ask.plans", len(having), values{"Plans": s.list(or, s.plans(having))})
			}
		case plan != nil && contains(plan.FreeFeatures, ask.Feature):
			s.say("free", nil)
		default:
			s.say("ask.price", values{"Price": s.prices(feature)})
		}
		s.end()
	}
}

func contains(names []string, name string) bool {
	for _, one := range names {
		if one == name {
			return true
		}
	}
	return false
}

// plansWith are the plans that can still be had and that have the feature.
func (s *screen) plansWith(feature string) (names []string) {
	for i := range s.catalog.Plans {
		if plan := &s.catalog.Plans[i]; plan.Has(feature) && !plan.Retired {
			names = append(names, plan.Name)
		}
	}
	return names
}

// prices are a feature's alternatives.
func (s *screen) prices(feature *holdfast.Feature) string {
	var ways []string
	for _, price := range feature.Prices {
		if price.ByUsage() {
			ways = append(ways, s.phrase("price.by_usage", values{"Unit": s.unit(price.Unit, "many")}))
		} else {
			ways = append(ways, s.quantity(price.Amount, price.Unit))
		}
	}
	return s.list(or, ways)
}

// Contact is where a person finds help, and what they have agreed to. What is empty is not told.
type Contact struct{ Support, Terms string }

// Help says what can be asked for, and lists the commands.
func (t *Texts) Help(reader Reader, catalog *holdfast.Catalog, view *holdfast.AccountView, asks []Ask, contact Contact) string {
	s := t.screen(reader, catalog, time.Time{})
	s.say("help", nil)
	s.end()
	s.asks(view, asks)
	s.gap()
	for _, command := range Commands() {
		s.lines = append(s.lines, s.phrase("help.command", values{"Command": string(command), "About": s.phrase(commandText+string(command), nil)}))
	}
	if contact.Support != "" {
		s.gap()
		s.say("help.support", values{"Contact": oneLine(contact.Support)})
	}
	return s.whole()
}

// Command is one that every bot of this module has.
type Command string

// The commands. CommandStart is not listed: whoever sees the list has begun.
const (
	CommandStart      Command = "start"
	CommandHelp       Command = "help"
	CommandBalance    Command = "balance"
	CommandPlans      Command = "plans"
	CommandHistory    Command = "history"
	CommandCancel     Command = "cancel"
	CommandLanguage   Command = "lang"
	CommandPaySupport Command = "paysupport"
	CommandTerms      Command = "terms"
)

// commandText begins the names of the texts that say what a command does.
const commandText = "command."

// Commands lists those that people are shown, in the order in which they are.
func Commands() []Command {
	return []Command{
		CommandBalance, CommandPlans, CommandHistory, CommandCancel, CommandLanguage, CommandHelp, CommandPaySupport, CommandTerms,
	}
}

// CommandAbout is what a list of commands says about one, in a language that Match returned.
func (t *Texts) CommandAbout(language string, command Command) string {
	return t.writer(Reader{Language: language}, nil, time.Time{}).phrase(commandText+string(command), nil)
}

// Balance says what an account has and when there will be more.
func (t *Texts) Balance(reader Reader, catalog *holdfast.Catalog, view *holdfast.AccountView, now time.Time) string {
	s := t.screen(reader, catalog, now)
	s.plan(view)
	for i := range view.Balances {
		s.balance(&view.Balances[i])
	}
	s.say("balance.active", values{"Active": s.count(view.Account.Active), "Limit": s.count(view.MaxActive)})
	if view.Account.Blocked {
		s.end()
		s.say("account_blocked", nil)
	}
	return s.whole()
}

// plan says which plan it is, and until when.
func (s *screen) plan(view *holdfast.AccountView) {
	s.say("plan", values{"Plan": s.plans([]string{view.Plan})[0]})
	if paid := view.Subscription; paid != nil {
		switch paid.Status {
		case holdfast.SubscriptionGrace:
			s.say("plan.grace", values{"When": s.when(paid.GraceUntil)})
		case holdfast.SubscriptionCancelled:
			s.say("plan.ends", values{"When": s.when(paid.PaidUntil)})
		default:
			s.say("plan.paid", values{"When": s.when(paid.PaidUntil)})
		}
		if paid.Next != "" {
			s.say("plan.next", values{"Plan": s.plans([]string{paid.Next})[0]})
		}
	}
	s.end()
}

func (s *screen) balance(b *holdfast.Balance) {
	if b.Cycle == nil && b.Available == 0 && b.Reserved == 0 && b.Debt == 0 {
		return // a unit that this person has nothing to do with
	}
	s.say("available", values{"Available": s.quantity(b.Available, b.Unit)})
	if b.Reserved > 0 {
		s.say("balance.held", values{"Held": s.quantity(b.Reserved, b.Unit)})
	}
	if b.Debt > 0 {
		s.say("balance.owed", values{"Debt": s.quantity(b.Debt, b.Unit)})
	}
	if c := b.Cycle; c != nil && c.Granted > 0 {
		s.say("balance.cycle", values{
			"Granted": s.quantityIn(genitive, c.Granted, b.Unit), "Left": s.amount(max(c.Granted-c.Used-c.Reserved-c.Voided, 0), b.Unit),
		})
		switch {
		case b.ResetsAt.IsZero() && c.StartsAt.IsZero():
			s.say("balance.not_started", nil)
		case !b.ResetsAt.IsZero():
			s.say("reset.period", values{"When": s.when(b.ResetsAt)})
		}
	}
	s.end()
}

// Plans says which plan a person has, and what can be bought. Without offers it says that nothing is sold here.
func (t *Texts) Plans(reader Reader, catalog *holdfast.Catalog, view *holdfast.AccountView, offers []Offer, now time.Time) string {
	s := t.screen(reader, catalog, now)
	s.plan(view)
	for _, offer := range offers {
		s.gap()
		s.offer(offer)
	}
	s.gap()
	if len(offers) == 0 {
		s.say("plans.nothing", nil)
	} else {
		s.say("plans.choose", nil)
	}
	return s.whole()
}

func (s *screen) offer(offer Offer) {
	s.lines = append(s.lines, s.phrase("offer", values{"Product": s.product(offer.Product), "Price": s.offered(offer)}))
	for _, gives := range s.gives(offer) {
		s.lines = append(s.lines, s.phrase("offer.gives", values{"What": gives}))
	}
}

// offered is the price with its period.
func (s *screen) offered(offer Offer) string {
	price := s.money(offer.Price)
	switch period := offer.Product.Period; {
	case period.Months > 0:
		return s.phrase("offer.period", values{"Price": price, "Period": s.phraseOf("months", period.Months, values{"Count": s.count(period.Months)})})
	case period.Days > 0:
		return s.phrase("offer.period", values{"Price": price, "Period": s.phraseOf("days", period.Days, values{"Count": s.count(period.Days)})})
	}
	return price
}

// money is an amount of money: Stars by name, everything else by its code and with two decimals.
func (s *screen) money(m holdfast.Money) string {
	if m.Currency == "XTR" {
		plain := strconv.FormatInt(int64(m.Amount), 10)
		return s.phraseOf("stars", plain, values{"Count": s.number(plain)})
	}
	return s.number(decimal(m.Amount, 2)) + " " + clean(m.Currency)
}

// product is what a product is called: by its own name, its plan's, or what it gives.
func (s *screen) product(p *holdfast.Product) string {
	switch named := clean(p.Names[s.name]); {
	case named != "":
		return named
	case p.Grant != nil:
		return s.quantity(p.Grant.Amount, p.Grant.Unit)
	case p.Plan != "":
		if plan, ok := s.catalog.Plan(p.Plan); ok {
			return firstName(plan.Names[s.name], p.Plan)
		}
	}
	return clean(p.Name)
}

// gives lists what is had for the price.
func (s *screen) gives(offer Offer) (lines []string) {
	p := offer.Product
	plan, ok := s.catalog.Plan(p.Plan)
	if !ok {
		if p.Grant != nil && p.Names[s.name] != "" {
			lines = append(lines, s.quantity(p.Grant.Amount, p.Grant.Unit))
		}
		return lines
	}
	for _, a := range plan.Allowances {
		lines = append(lines, s.quantity(a.Amount, a.Unit))
	}
	var names []string
	for _, feature := range plan.Features {
		if offer.Features == nil || contains(offer.Features, feature) {
			shown := s.feature(feature)
			if contains(plan.FreeFeatures, feature) {
				shown = s.phrase("offer.free_feature", values{"Feature": shown})
			}
			names = append(names, shown)
		}
	}
	if len(names) > 0 {
		lines = append(lines, s.list(and, names))
	}
	if plan.MaxActive > 1 {
		lines = append(lines, s.phraseOf("offer.at_once", plan.MaxActive, values{"Limit": s.count(plan.MaxActive)}))
	}
	return lines
}

// Telegram's bounds of an invoice, in characters.
const (
	mostInvoiceTitle       = 32
	mostInvoiceDescription = 255
)

// Invoice is the title and the description of an offer, within Telegram's bounds.
func (t *Texts) Invoice(reader Reader, catalog *holdfast.Catalog, offer Offer) (title, description string) {
	s := t.screen(reader, catalog, time.Time{})
	title = cutTo(mostInvoiceTitle, s.product(offer.Product))
	gives := s.gives(offer)
	if len(gives) == 0 {
		gives = []string{s.product(offer.Product)}
	}
	text := strings.Join(gives, "; ") + "."
	if offer.Recurring {
		text += " " + s.phrase("offer.renews", values{"Price": s.offered(offer)})
	}
	return title, cutTo(mostInvoiceDescription, text)
}

func cutTo(most int, text string) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// OfferCard is what is told about an offer before it is paid.
func (t *Texts) OfferCard(reader Reader, catalog *holdfast.Catalog, offer Offer) string {
	s := t.screen(reader, catalog, time.Time{})
	s.offer(offer)
	if offer.Recurring {
		s.gap()
		s.say("offer.renews", values{"Price": s.offered(offer)})
		s.say("offer.stop", nil)
	}
	return s.whole()
}

// OfferButton is what is written on the button that leads to an offer.
func (t *Texts) OfferButton(reader Reader, catalog *holdfast.Catalog, offer Offer) string {
	s := t.screen(reader, catalog, time.Time{})
	return s.phrase("offer", values{"Product": s.product(offer.Product), "Price": s.money(offer.Price)})
}

// PayButton is what is written on the button that pays an offer.
func (t *Texts) PayButton(reader Reader, offer Offer) string {
	s := t.screen(reader, nil, time.Time{})
	if offer.Recurring {
		return s.phrase("button.subscribe", values{"Price": s.money(offer.Price)})
	}
	return s.phrase("button.pay", values{"Price": s.money(offer.Price)})
}

// History lists what a person has asked for, the newest first, and what became of it.
func (t *Texts) History(reader Reader, catalog *holdfast.Catalog, reservations []*holdfast.Reservation, now time.Time) string {
	s := t.screen(reader, catalog, now)
	if len(reservations) == 0 {
		s.say("history.nothing", nil)
		return s.whole()
	}
	s.say("history", values{"Zone": s.zone.String()})
	for _, r := range reservations {
		s.gap()
		s.say("history.line", values{"When": s.date(r.CreatedAt), "Feature": s.feature(r.Feature)})
		if r.Live() {
			s.accepted(&holdfast.Outcome{Reservation: r})
		} else {
			s.ended(r, nil)
		}
	}
	return s.whole()
}

// Bought is a payment, and what it was for.
type Bought struct {
	ID      string // the provider's
	Product string
	Price   holdfast.Money
	At      time.Time
	// Flagged says that nothing was given for it.
	Flagged  bool
	Refunded holdfast.Amount
}

// PaySupport says where help with payments is found, with the person's payments, the newest first.
func (t *Texts) PaySupport(reader Reader, catalog *holdfast.Catalog, bought []Bought, contact Contact, now time.Time) string {
	s := t.screen(reader, catalog, now)
	if contact.Support != "" {
		s.say("paysupport", values{"Contact": oneLine(contact.Support)})
	} else {
		s.say("paysupport.nobody", nil)
	}
	s.say("paysupport.telegram", nil)
	s.gap()
	if len(bought) == 0 {
		s.say("paysupport.nothing", nil)
		return s.whole()
	}
	s.say("paysupport.name_it", nil)
	for _, b := range bought {
		s.gap()
		s.say("paysupport.line", values{"When": s.date(b.At), "Price": s.money(b.Price), "Product": s.productNamed(b.Product)})
		switch {
		case b.Refunded > 0:
			s.say("paysupport.refunded", nil)
		case b.Flagged:
			s.say("paid.flagged", nil)
		}
		s.end()
		s.lines = append(s.lines, oneLine(b.ID)) // whole and by itself, so that it can be copied
	}
	return s.whole()
}

func (s *screen) productNamed(name string) string {
	if p, ok := s.catalog.Product(name); ok {
		return s.product(p)
	}
	return s.phrase("product.unknown", nil)
}

// Paid tells a person what their payment has brought.
func (t *Texts) Paid(reader Reader, catalog *holdfast.Catalog, paid *holdfast.Payment, view *holdfast.AccountView, now time.Time) string {
	s := t.screen(reader, catalog, now)
	if paid.State == holdfast.PaymentFlagged {
		s.say("paid.received", values{"Price": s.money(holdfast.Money{Currency: paid.Currency, Amount: paid.Amount})})
		s.say("paid.flagged", nil)
		s.end()
		s.say("paid.number", nil)
		s.end()
		s.lines = append(s.lines, oneLine(paid.PaymentID))
		return s.whole()
	}
	s.say("paid", values{"Product": s.productNamed(paid.Product)})
	s.end()
	if view != nil {
		s.has(view)
	}
	return s.whole()
}

// has says what there is now.
func (s *screen) has(view *holdfast.AccountView) {
	s.plan(view)
	for i := range view.Balances {
		if b := &view.Balances[i]; b.Available > 0 {
			s.sayBalance(b)
			s.end()
		}
	}
}

// PaymentRefunded tells a person that a payment came back, and what there is left.
func (t *Texts) PaymentRefunded(reader Reader, catalog *holdfast.Catalog, paid *holdfast.Payment, view *holdfast.AccountView, now time.Time) string {
	s := t.screen(reader, catalog, now)
	s.say("payment.refunded", values{
		"Price": s.money(holdfast.Money{Currency: paid.Currency, Amount: paid.Refunded}), "Product": s.productNamed(paid.Product),
	})
	s.end()
	if view != nil {
		s.has(view)
	}
	return s.whole()
}

// Renewal is what became of the renewal of a subscription.
type Renewal string

// What may have become of it.
const (
	RenewalStopped Renewal = "renewal.stopped" // it ends with what is paid
	RenewalResumed Renewal = "renewal.resumed"
	RenewalFailed  Renewal = "renewal.failed"
)

// Renewal tells a person what became of the renewal of their subscription.
func (t *Texts) Renewal(reader Reader, catalog *holdfast.Catalog, became Renewal, view *holdfast.AccountView, now time.Time) string {
	s := t.screen(reader, catalog, now)
	switch became {
	case RenewalStopped:
		s.say("renewal.stopped", nil)
	case RenewalResumed:
		s.say("renewal.resumed", nil)
	case RenewalFailed:
		s.say("renewal.failed", nil)
	}
	s.end()
	if view != nil {
		s.plan(view)
	}
	return s.whole()
}

// The phrases of screens.
const (
	ButtonStopRenewal   Phrase = "button.stop_renewal"
	ButtonLanguageOf    Phrase = "button.language_of"
	ChooseLanguage      Phrase = "lang.choose"
	LanguageChosen      Phrase = "lang.chosen"
	LanguageIsTelegrams Phrase = "lang.telegrams"
	UnknownCommand      Phrase = "unknown_command"
	NoSuchOffer         Phrase = "offer.gone"
	AskWithWords        Phrase = "ask.with_words"
	StopRenewalAsked    Phrase = "renewal.asked"
	NoRenewal           Phrase = "renewal.none"
)

// Terms says where the terms of use are.
func (t *Texts) Terms(reader Reader, contact Contact) string {
	w := t.writer(reader, nil, time.Time{})
	if contact.Terms == "" {
		return w.phrase("terms.unknown", nil)
	}
	return w.phrase("terms", values{"Where": oneLine(contact.Terms)})
}

// Answer is what an operator is told about an order of theirs.
type Answer string

// The answers.
const (
	GrantUsage      Answer = "operator.grant.usage"
	RefundUsage     Answer = "operator.refund.usage"
	RefundBegun     Answer = "operator.refund.begun"
	RefundDone      Answer = "operator.refund.done"
	RefundRefused   Answer = "operator.refund.refused"
	RefundUnknown   Answer = "operator.refund.unknown"
	RefundWasDone   Answer = "operator.refund.was_done"
	OperatorRefused Answer = "operator.refused"
)

// Operator answers an operator. About is what the answer is about: a payment's id, or the words of Telegram.
func (t *Texts) Operator(reader Reader, answer Answer, about string) string {
	return t.writer(reader, nil, time.Time{}).phrase(string(answer), values{"About": oneLine(about)})
}

// Granted answers an operator who has given something.
func (t *Texts) Granted(reader Reader, catalog *holdfast.Catalog, account string, outcome holdfast.Outcome, now time.Time) string {
	s := t.screen(reader, catalog, now)
	s.say("operator.granted", values{"Account": oneLine(account)})
	s.success(&outcome)
	return s.whole()
}

// date tells a moment that is over, or far away.
func (w *writer) date(at time.Time) string {
	at = at.In(w.zone)
	v := values{
		"Day": strconv.Itoa(at.Day()), "Month": w.phrase("month."+strconv.Itoa(int(at.Month())), nil), "Clock": at.Format("15:04"),
	}
	if at.Year() == w.now.In(w.zone).Year() {
		return w.phrase("time.date", v)
	}
	v["Year"] = strconv.Itoa(at.Year())
	return w.phrase("time.date_in_year", v)
}
