package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/catalog"
)

func variables(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestSettingsOfBotsAreToldAllAtOnceAndNeverShowAToken(t *testing.T) {
	const secret = "very-secret"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("5:"+secret), 0o600); err != nil {
		t.Fatal(err)
	}
	bots := []botSettings{
		{TokenEnv: "A"},
		{TokenEnv: "A", Name: "twice", PaymentsAs: "telegram_stars.again"},
		{TokenEnv: "B", Project: "UPPER CASE"},
		{TokenEnv: "C", Name: "no good"},
		{TokenEnv: "D", TokenFile: file},
		{TokenEnv: "E"},
		{TokenFile: file, Admins: []int64{-1}},
		{TokenFile: filepath.Join(t.TempDir(), "missing")},
		{TokenEnv: "F"},
	}
	err := completeBots(bots, variables("A", "1:"+secret, "B", "2:"+secret, "C", "3:"+secret, "E", secret, "F", "9:"+secret))
	if err == nil {
		t.Fatal("all of it is taken")
	}
	for _, part := range []string{
		"bot twice: there is another bot of this name or token", "bot 2: project: ", "bot no good: name: ", "use token_env or token_file, not both",
		"E does not hold a token", "bot 5: admins: ", "read the token", "bot 9: another bot sells in project dev", "telegram_stars.9",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not told:\n%s", part, err)
		}
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("a token is told:\n%s", err)
	}
	good := []botSettings{{TokenEnv: "A"}, {TokenEnv: "B", PaymentsAs: "telegram_stars.2"}, {TokenFile: file, Project: "other"}}
	if err := completeBots(good, variables("A", "1:"+secret, "B", "2:"+secret)); err != nil {
		t.Fatal(err)
	}
	if good[0].Name != "1" || good[0].Project != devProject || good[2].id != "5" || good[0].webhookSecret() == good[1].webhookSecret() {
		t.Errorf("%+v", good)
	}
	if strings.Contains(good[0].webhookSecret(), secret) {
		t.Error("the token is in the webhook's secret")
	}
}

func TestWhatTheExampleSellsIsOfferedWithoutFurtherSettings(t *testing.T) {
	models := map[featureKind]string{textKind: "small", imageKind: "painter"}
	offers, err := (&botSettings{Name: "b"}).features(catalog.Embedded(), models)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, o := range offers {
		told = append(told, o.name+" "+string(o.Kind)+" "+o.Model+" /"+o.Command)
	}
	want := "text.improve text small /, image.generate image painter /image, chat.completion text small /chat"
	if got := strings.Join(told, ", "); got != want {
		t.Errorf("%s", got)
	}
	if usage := offers[2].atMost("hello"); usage["output_token"] != defaultMaxTokens || usage["input_token"] < 5 {
		t.Errorf("at most %v", usage)
	}
}

func TestCommandsOfFeaturesAreTheirOwn(t *testing.T) {
	c := &holdfast.Catalog{}
	for _, name := range []string{"chat.short", "chat.long", "text.help", "image.a", "image.b", "video.make"} {
		c.Features = append(c.Features, holdfast.Feature{Name: name, Prices: []holdfast.Price{{Unit: "credit", Amount: 1}}})
	}
	offers, err := (&botSettings{Name: "b"}).features(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, o := range offers {
		if seen[o.Command] || o.Command == "help" || o.name == "video.make" {
			t.Errorf("%s has /%s", o.name, o.Command)
		}
		seen[o.Command] = true
	}
	if len(offers) != 5 || !seen[""] || !seen["image_b"] {
		t.Errorf("%v", offers)
	}
	for name, features := range map[string]map[string]featureSettings{
		"the catalog has no nothing":       {"nothing": {}},
		"say its kind":                     {"video.make": {}},
		"use text or image":                {"chat.short": {Kind: "sound"}},
		"that is no other command":         {"chat.short": {Command: "balance"}},
		"use 1 to 32 of a-z 0-9 _ that is": {"chat.short": {Command: "No Good"}},
	} {
		if _, err := (&botSettings{Name: "b", Features: features}).features(c, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: %v; wanted %q", features, err, name)
		}
	}
}
