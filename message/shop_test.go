package message

import (
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
)

var (
	moscow = time.FixedZone("Europe/Moscow", 3*60*60)
	// noon is the moment at which the texts of these tests are read.
	noon = time.Date(2026, time.December, 13, 9, 0, 0, 0, time.UTC)
	// reset is the example of the article: "14 December at 12:12" in Moscow.
	reset = time.Date(2026, time.December, 14, 9, 12, 0, 0, time.UTC)
)

func newTexts(t testing.TB) *Texts {
	t.Helper()
	texts, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

func english() Reader { return Reader{Language: "en", Location: moscow} }
func russian() Reader { return Reader{Language: "ru", Location: moscow} }

// shop is a catalog with names in both languages, a unit with two decimals, and words that have no names at all.
func shop() *holdfast.Catalog {
	return &holdfast.Catalog{
		Version: 1,
		Units: []holdfast.Unit{
			{Name: "credit", Names: holdfast.Plurals{
				"en": {"one": "credit", "other": "credits"},
				"ru": {"one": "кредит", "few": "кредита", "many": "кредитов", "other": "кредита"},
			}},
			{Name: "image", Names: holdfast.Plurals{
				"en": {"one": "image", "other": "images"},
				"ru": {"one": "картинка", "few": "картинки", "many": "картинок", "other": "картинки"},
			}},
			{Name: "coin", Scale: 2, Names: holdfast.Plurals{
				"en": {"one": "coin", "other": "coins"},
				"ru": {"one": "монета", "few": "монеты", "many": "монет", "other": "монеты"},
			}},
			{Name: "token"},
		},
		Features: []holdfast.Feature{
			{
				Name: "text.improve", Names: holdfast.Names{"en": "Improve text", "ru": "Улучшение текста"},
				Prices: []holdfast.Price{{Unit: "credit", Amount: 1}}, TTL: 5 * time.Minute,
			},
			{
				Name: "image.generate", Names: holdfast.Names{"en": "Image", "ru": "Картинка"},
				Prices: []holdfast.Price{{Unit: "image", Amount: 1}, {Unit: "credit", Amount: 5}}, TTL: 15 * time.Minute,
			},
			{
				Name: "file.analyze", Names: holdfast.Names{"en": "File analysis", "ru": "Анализ файлов"},
				Prices: []holdfast.Price{{Unit: "credit", Amount: 3}}, TTL: 15 * time.Minute,
			},
		},
		Plans: []holdfast.Plan{
			{
				Name: "free", Default: true, Names: holdfast.Names{"en": "Free", "ru": "Бесплатный"},
				Features: []string{"text.improve", "image.generate"}, MaxActive: 2,
				Allowances: []holdfast.Allowance{{Key: "credit", Unit: "credit", Amount: 3, Every: holdfast.Cycle{Rolling: 24 * time.Hour}}},
			},
			{Name: "pro", Names: holdfast.Names{"en": "Pro", "ru": "Старший"}, Features: []string{"text.improve", "image.generate", "file.analyze"}, MaxActive: 3},
			{Name: "max", Names: holdfast.Names{"en": "Max", "ru": "Полный"}, Features: []string{"text.improve", "image.generate", "file.analyze"}, MaxActive: 9},
		},
	}
}

func pointer[T any](value T) *T { return &value }
