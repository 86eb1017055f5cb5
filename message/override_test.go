package message

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/holdfast-dev/holdfast"
)

func TestAnOperatorsTextsTakeThePlaceOfOurs(t *testing.T) {
	texts, err := NewWith(fstest.MapFS{"ru.json": {Data: []byte(`{
		"account_blocked": "Доступ закрыт.",
		"feature_not_in_plan": "Функции {{.Feature}} на вашем тарифе нет, увы."
	}`)}})
	if err != nil {
		t.Fatal(err)
	}
	say := func(language string, reason holdfast.Reason, numbers *holdfast.Refusal) string {
		return texts.Detail(Reader{Language: language}, nil, holdfast.Outcome{Reason: reason, Refusal: numbers}, time.Time{})
	}
	if got := say("ru", holdfast.AccountBlocked, nil); got != "Доступ закрыт." {
		t.Errorf("the operator's text is told as %q", got)
	}
	if got := say("ru", holdfast.FeatureNotInPlan, &holdfast.Refusal{Feature: "draw"}); !strings.Contains(got, "увы") || !strings.Contains(got, "draw") {
		t.Errorf("the operator's text with a blank is told as %q", got)
	}
	if got := say("en", holdfast.AccountBlocked, nil); !strings.Contains(got, "blocked") {
		t.Errorf("a language without own texts says %q", got)
	}
	if got := say("ru", holdfast.StaleLease, nil); got == "" {
		t.Error("a text that the operator left as it is says nothing")
	}
}

func TestAnOperatorsTextsThatWouldConfuseAPersonAreRefused(t *testing.T) {
	for text, wanted := range map[string]string{
		`{"account_blocked": "You have {{.Money}}."}`:             "{{.Money}}",
		`{"no_such_text": "Hello."}`:                              "no_such_text",
		`{"feature_not_in_plan.plans": {"other": "{{.Plans}}."}}`: "one, other",
		`{"account_blocked": "Broken {{.`:                         "en.json",
		`{"account_blocked": "Broken {{"}`:                        "account_blocked",
	} {
		_, err := NewWith(fstest.MapFS{"en.json": {Data: []byte(text)}})
		if err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("%s: %v; wanted an error that names %s", text, err, wanted)
		}
	}
}
