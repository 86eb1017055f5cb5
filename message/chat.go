package message

import (
	"time"

	"github.com/holdfast-dev/holdfast"
)

// Phrase is the name of a text that a chat needs besides those that are composed from outcomes: buttons, states of work,
// screens. Every one is in the files, so that operators put their own in its place in the same way.
type Phrase string

// The phrases of work in a chat.
const (
	StatusQueued    Phrase = "chat.status.queued"
	StatusWorking   Phrase = "chat.status.working"
	StatusStopping  Phrase = "chat.status.stopping"
	ButtonCancel    Phrase = "chat.button.cancel"
	ButtonRepeat    Phrase = "chat.button.repeat"
	ButtonTopUp     Phrase = "chat.button.top_up"
	ButtonPlans     Phrase = "chat.button.plans"
	ButtonMute      Phrase = "chat.button.mute"
	Muted           Phrase = "chat.muted"
	TakenAlready    Phrase = "chat.taken_already"     // the same was pressed twice
	ButtonSpent     Phrase = "chat.button_spent"      // what it was for is over
	NotYours        Phrase = "chat.not_yours"         // somebody else's button
	Anonymous       Phrase = "chat.anonymous"         // nobody who could pay
	NothingUnderWay Phrase = "chat.nothing_under_way" // there is nothing to cancel
	WorkNumber      Phrase = "chat.work_number"       // {{.Number}}: for whoever asks for support
)

// Blanks are what a phrase's {{.Blanks}} are filled with.
type Blanks map[string]string

// Phrase is a text by its name.
func (t *Texts) Phrase(reader Reader, phrase Phrase, blanks Blanks) string {
	return t.writer(reader, nil, time.Time{}).phrase(string(phrase), values(blanks))
}

// PhraseOf is a text by its name, in the form for so many.
func (t *Texts) PhraseOf(reader Reader, phrase Phrase, count int, blanks Blanks) string {
	return t.writer(reader, nil, time.Time{}).phraseOf(string(phrase), count, values(blanks))
}

// Quantity is an amount with its unit's name: 3 credits.
func (t *Texts) Quantity(reader Reader, catalog *holdfast.Catalog, amount holdfast.Amount, unit string) string {
	return t.writer(reader, catalog, time.Time{}).quantity(amount, unit)
}

// FeatureName is a feature's name in the reader's language, in quotes.
func (t *Texts) FeatureName(reader Reader, catalog *holdfast.Catalog, name string) string {
	return t.writer(reader, catalog, time.Time{}).feature(name)
}

// PlanName is a plan's name in the reader's language, in quotes.
func (t *Texts) PlanName(reader Reader, catalog *holdfast.Catalog, name string) string {
	return t.writer(reader, catalog, time.Time{}).plans([]string{name})[0]
}

// ProductName is a product's name in the reader's language, in quotes.
func (t *Texts) ProductName(reader Reader, catalog *holdfast.Catalog, name string) string {
	w := t.writer(reader, catalog, time.Time{})
	for _, product := range w.catalog.Products {
		if product.Name == name {
			return w.quoted(firstName(product.Names[w.name], name))
		}
	}
	return w.quoted(name)
}

// When is a time that lies ahead of now, as texts tell it: in 3 hours, or on 5 May at 14:00 in the reader's zone.
func (t *Texts) When(reader Reader, at, now time.Time) string {
	return t.writer(reader, nil, now).when(at)
}
