package message

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"text/template"
	"time"

	"github.com/nicksnyder/go-i18n/v2/i18n"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/number"

	"github.com/holdfast-dev/holdfast"
)

//go:embed en.json ru.json
var files embed.FS

// languages are those that texts are written in; the first is spoken to whoever speaks none of them. Each has a file.
var languages = []language.Tag{language.English, language.Russian}

// Texts holds all texts in all languages. It is safe for concurrent use.
type Texts struct {
	locales map[string]*locale
	matcher language.Matcher
}

// locale is one language: its sentences, its plural rules, its way to write numbers.
type locale struct {
	name      string // as in the catalog: en, ru
	sentences *i18n.Localizer
	numbers   *message.Printer
	point     string // between the whole and its decimals
}

// Reader is the person who will read.
type Reader struct {
	// Language is a BCP 47 tag, or a whole Accept-Language header. What is not spoken here, and nothing, is English.
	Language string
	// Location is the zone of every time of day; nil is UTC.
	Location *time.Location
}

// New reads the embedded texts. Its error means that they are broken, which no caller can repair.
func New() (*Texts, error) { return NewWith(nil) }

// NewWith reads the embedded texts, and an operator's own in place of those that it has: en.json and ru.json, each with the
// texts that are to be told in other words. Nil: there are none. The error says what is wrong with them.
func NewWith(own fs.FS) (*Texts, error) {
	bundle := i18n.NewBundle(languages[0])
	t := &Texts{locales: map[string]*locale{}, matcher: language.NewMatcher(languages)}
	for _, tag := range languages {
		name := tag.String()
		content, err := files.ReadFile(name + ".json")
		if err != nil {
			return nil, fmt.Errorf("read texts: %w", err)
		}
		parsed, err := bundle.ParseMessageFileBytes(content, name+".json")
		if err != nil {
			return nil, fmt.Errorf("parse %s.json: %w", name, err)
		}
		if err := checkTemplates(parsed.Messages); err != nil {
			return nil, fmt.Errorf("parse %s.json: %w", name, err)
		}
		if own != nil {
			if err := override(bundle, own, name+".json", parsed.Messages); err != nil {
				return nil, err
			}
		}
		numbers := message.NewPrinter(tag)
		t.locales[name] = &locale{
			name:      name,
			sentences: i18n.NewLocalizer(bundle, name),
			numbers:   numbers,
			point:     strings.Trim(numbers.Sprint(number.Decimal(1.5)), "15"),
		}
	}
	return t, nil
}

// checkTemplates finds a broken sentence now, and not when it is first needed: i18n parses each when it is used.
func checkTemplates(messages []*i18n.Message) error {
	for _, m := range messages {
		for _, text := range []string{m.Zero, m.One, m.Two, m.Few, m.Many, m.Other} {
			if _, err := template.New(m.ID).Parse(text); err != nil {
				return err
			}
		}
	}
	return nil
}

// Match chooses the language to answer in, "en" or "ru": the first one that the Accept-Language header asks for and that
// is spoken here, else the account's, else English. A header or tag that cannot be read counts as none.
func (t *Texts) Match(acceptLanguage, accountLanguage string) string {
	for _, wanted := range []string{acceptLanguage, accountLanguage} {
		tags, _, err := language.ParseAcceptLanguage(wanted)
		if err != nil {
			continue
		}
		for _, tag := range tags {
			if _, i, confidence := t.matcher.Match(tag); confidence >= language.High {
				return languages[i].String()
			}
		}
	}
	return languages[0].String()
}

// Detail is what to tell the person about an outcome, a refusal or a success, at now: one or more whole sentences. Names
// are those of the catalog in the reader's language, else the technical ones; a nil catalog has none. Times are the
// outcome's, in the reader's zone. A reason that has no text of its own yet is told as a plain refusal.
func (t *Texts) Detail(reader Reader, catalog *holdfast.Catalog, outcome holdfast.Outcome, now time.Time) string {
	w := t.writer(reader, catalog, now)
	if outcome.Reason == "" {
		w.success(&outcome)
	} else {
		w.refusal(&outcome)
	}
	return w.text()
}

// Accident is what to tell the person when a command could not be answered at all.
func (t *Texts) Accident(reader Reader, accident Accident) string {
	w := t.writer(reader, nil, time.Time{})
	w.say(accident.sentence(), nil)
	return w.text()
}

// writer composes one text for one reader.
type writer struct {
	*locale
	catalog *holdfast.Catalog
	zone    *time.Location
	now     time.Time
	said    []string
}

// values fill the blanks of a sentence.
type values map[string]string

func (t *Texts) writer(reader Reader, catalog *holdfast.Catalog, now time.Time) *writer {
	spoken, ok := t.locales[reader.Language]
	if !ok {
		spoken = t.locales[t.Match(reader.Language, "")]
	}
	w := &writer{locale: spoken, catalog: catalog, zone: reader.Location, now: now}
	if w.catalog == nil {
		w.catalog = &holdfast.Catalog{}
	}
	if w.zone == nil {
		w.zone = time.UTC
	}
	return w
}

func (w *writer) text() string { return strings.Join(w.said, " ") }

// say adds a sentence.
func (w *writer) say(sentence string, v values) {
	w.said = append(w.said, w.phrase(sentence, v))
}

// sayOf adds a sentence whose form depends on how many there are.
func (w *writer) sayOf(sentence string, count int, v values) {
	w.said = append(w.said, w.phraseOf(sentence, count, v))
}

// phrase is a piece of text by its name in the files.
//
// A test proves that every name is in every file, so there is no error to return; were there one, English or an empty
// piece is better than no answer at all about money that has moved.
func (l *locale) phrase(name string, v values) string {
	text, _ := l.sentences.Localize(&i18n.LocalizeConfig{MessageID: name, TemplateData: v})
	return text
}

// phraseOf is a piece of text in the plural form of the count: an integer, or a decimal number as text.
func (l *locale) phraseOf(name string, count any, v values) string {
	text, _ := l.sentences.Localize(&i18n.LocalizeConfig{MessageID: name, TemplateData: v, PluralCount: count})
	return text
}
