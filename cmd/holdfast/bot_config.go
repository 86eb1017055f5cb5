package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/payment/telegramstars"
)

// botSettings say what one bot is. Flags describe one; a file describes several.
type botSettings struct {
	Name      string `yaml:"name"`       // for logs and for the path of its webhook
	TokenEnv  string `yaml:"token_env"`  // the variable that holds the token
	TokenFile string `yaml:"token_file"` // or the file
	Project   string `yaml:"project"`    // whose accounts its people are
	// PaymentsAs is the provider's name of its payments. Two bots of one project need two.
	PaymentsAs string                     `yaml:"payments_as"`
	Admins     []int64                    `yaml:"admins"`
	Support    string                     `yaml:"support"`
	Terms      string                     `yaml:"terms"`
	Features   map[string]featureSettings `yaml:"features"` // empty: those of the catalog that a model can do

	token string
	id    string // the part of the token that is no secret
}

// featureSettings say how a feature is done.
type featureSettings struct {
	Kind      featureKind `yaml:"kind"`
	Model     string      `yaml:"model"`
	Command   string      `yaml:"command"` // empty: of the first text feature, just writing; else from its name
	Prompt    string      `yaml:"prompt"`  // what the model is told first
	Size      string      `yaml:"size"`    // of pictures
	MaxTokens int64       `yaml:"max_tokens"`
}

// featureKind is what a model makes.
type featureKind string

const (
	textKind  featureKind = "text"
	imageKind featureKind = "image"
)

// botFile is a file of several bots.
type botFile struct {
	Bots []botSettings `yaml:"bots"`
}

func readBots(file string) ([]botSettings, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	var read botFile
	if err := yaml.NewDecoder(bytes.NewReader(content), yaml.Strict()).Decode(&read); err != nil {
		return nil, fmt.Errorf("--config: %s: %s", file, yaml.FormatError(err, false, true))
	}
	if len(read.Bots) == 0 {
		return nil, fmt.Errorf("--config: %s has no bots: write bots: and a list below it", file)
	}
	return read.Bots, nil
}

var (
	botTokenShape = regexp.MustCompile(`^([0-9]+):[A-Za-z0-9_-]+$`)
	botNameShape  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
)

// complete fills in what is left out and returns all that is wrong. No error holds a token.
func completeBots(bots []botSettings, environment func(string) string) error {
	var wrong []error
	names, payments := map[string]bool{}, map[string]bool{}
	for i := range bots {
		b := &bots[i]
		bad := func(format string, values ...any) {
			which := b.Name
			if which == "" {
				which = "number " + strconv.Itoa(i+1)
			}
			wrong = append(wrong, fmt.Errorf("bot %s: "+format, append([]any{which}, values...)...))
		}
		if b.Project == "" {
			b.Project = devProject
		}
		if b.PaymentsAs == "" {
			b.PaymentsAs = telegramstars.Provider
		}
		if err := b.readToken(environment); err != nil {
			bad("%w", err)
			continue
		}
		if b.Name == "" {
			b.Name = b.id
		}
		switch {
		case !botNameShape.MatchString(b.Name):
			bad("name: use at most 64 of A-Z a-z 0-9 _ -")
		case !holdfast.ValidProject(b.Project):
			bad("project: use 1 to %d of a-z 0-9 . _ -", holdfast.MaxProjectBytes)
		case !holdfast.ValidIdentifier(b.PaymentsAs):
			bad("payments_as: use a word such as telegram_stars.%s", b.id)
		case names[b.Name] || names[b.id]:
			bad("there is another bot of this name or token")
		case payments[b.Project+" "+b.PaymentsAs]:
			bad("another bot sells in project %s: give one of them a payments_as of its own, such as telegram_stars.%s, and never change it", b.Project, b.id)
		}
		names[b.Name], names[b.id], payments[b.Project+" "+b.PaymentsAs] = true, true, true
		if slices.ContainsFunc(b.Admins, func(id int64) bool { return id < 1 }) {
			bad("admins: use the ids of users, which are positive numbers")
		}
	}
	return errors.Join(wrong...)
}

// readToken finds the token where the settings say it is.
func (b *botSettings) readToken(environment func(string) string) error {
	where := ""
	switch {
	case b.TokenEnv != "" && b.TokenFile != "":
		return errors.New("use token_env or token_file, not both")
	case b.TokenFile != "":
		where = "the file " + b.TokenFile
		content, err := os.ReadFile(b.TokenFile)
		if err != nil {
			return fmt.Errorf("read the token: %w", err)
		}
		b.token = strings.TrimSpace(string(content))
	default:
		if b.TokenEnv == "" {
			b.TokenEnv = tokenVariable
		}
		where = b.TokenEnv
		b.token = strings.TrimSpace(environment(b.TokenEnv))
	}
	if b.token == "" {
		return fmt.Errorf("%s has no token: @BotFather gives one", where)
	}
	shape := botTokenShape.FindStringSubmatch(b.token)
	if shape == nil {
		return fmt.Errorf("%s does not hold a token: it is the bot's id, a colon and a secret", where)
	}
	b.id = shape[1]
	return nil
}

const tokenVariable = "HOLDFAST_BOT_TOKEN"

func (b *botSettings) contact() message.Contact {
	return message.Contact{Support: b.Support, Terms: b.Terms}
}

// webhookSecret is what Telegram sends along with every update. It follows from the token, so that several processes of a bot
// know the same one, and nothing of the token can be seen in it.
func (b *botSettings) webhookSecret() string {
	sum := hmac.New(sha256.New, []byte(b.token))
	_, _ = sum.Write([]byte("holdfast webhook"))
	return hex.EncodeToString(sum.Sum(nil))
}

// webhookPath is where the bot's updates arrive.
func (b *botSettings) webhookPath() string { return "/telegram/" + b.Name }

// offer is a feature as a bot has it.
type offer struct {
	featureSettings
	name string
}

// features are what the bot can do, in the catalog's order: what its settings say, or else what a model can do by the look of
// it. The first text feature that has no command takes every message that is no command.
func (b *botSettings) features(catalog *holdfast.Catalog, models map[featureKind]string) ([]offer, error) {
	var offers []offer
	var wrong []error
	for name := range b.Features {
		if _, ok := catalog.Feature(name); !ok {
			wrong = append(wrong, fmt.Errorf("bot %s: features: the catalog has no %s", b.Name, name))
		}
	}
	used := map[string]bool{}
	for _, command := range append(message.Commands(), message.CommandStart) {
		used[string(command)] = true
	}
	used["grant"], used["refund"] = true, true
	plain := false
	for i := range catalog.Features {
		f := &catalog.Features[i]
		o := offer{featureSettings: b.Features[f.Name], name: f.Name}
		if _, named := b.Features[f.Name]; !named && len(b.Features) > 0 {
			continue
		}
		if o.Kind == "" {
			if o.Kind = kindOf(f); o.Kind == "" {
				if len(b.Features) > 0 {
					wrong = append(wrong, fmt.Errorf("bot %s: features: %s: say its kind, text or image", b.Name, f.Name))
				}
				continue
			}
		}
		switch {
		case o.Kind != textKind && o.Kind != imageKind:
			wrong = append(wrong, fmt.Errorf("bot %s: features: %s: kind: use text or image", b.Name, f.Name))
		case o.Kind == imageKind && f.ByUsage():
			wrong = append(wrong, fmt.Errorf("bot %s: features: %s: pictures need a fixed price", b.Name, f.Name))
		}
		if o.Model == "" {
			o.Model = models[o.Kind]
		}
		if o.Prompt == "" {
			o.Prompt = prompts[f.Name]
		}
		if o.MaxTokens == 0 && o.Kind == textKind {
			o.MaxTokens = defaultMaxTokens
		}
		switch {
		case o.Command != "" && (used[o.Command] || !commandShape.MatchString(o.Command)):
			wrong = append(wrong, fmt.Errorf("bot %s: features: %s: command: use 1 to 32 of a-z 0-9 _ that is no other command", b.Name, f.Name))
		case o.Command == "" && o.Kind == textKind && !plain:
			plain = true
		case o.Command == "":
			o.Command = commandFor(f.Name, used)
		}
		used[o.Command] = true
		offers = append(offers, o)
	}
	if len(offers) == 0 && len(wrong) == 0 {
		wrong = append(wrong, fmt.Errorf("bot %s: none of the catalog's features is one that a model can do by its name: name them under features", b.Name))
	}
	return offers, errors.Join(wrong...)
}

var commandShape = regexp.MustCompile(`^[a-z0-9_]{1,32}$`)

// defaultMaxTokens bounds an answer, and so what a feature by usage reserves.
const defaultMaxTokens = 1024

// prompts are what models are told first, for the features of the embedded catalog.
var prompts = map[string]string{
	"text.improve": "Improve the text that you are given: correct its mistakes and make it read well. Keep its meaning, its language and its tone. Answer with the improved text alone.",
}

// kindOf is what a feature makes, by its name and its unit; empty: that cannot be told.
func kindOf(f *holdfast.Feature) featureKind {
	for _, price := range f.Prices {
		if price.Unit == "image" {
			return imageKind
		}
	}
	switch first, _, _ := strings.Cut(f.Name, "."); first {
	case "image", "picture", "draw":
		return imageKind
	case "text", "chat":
		return textKind
	}
	return ""
}

// commandFor makes a command of a feature's name: its first word, or all of them where that is taken.
func commandFor(name string, used map[string]bool) string {
	first, _, _ := strings.Cut(name, ".")
	for _, candidate := range []string{first, strings.NewReplacer(".", "_", "-", "_").Replace(name)} {
		if candidate = candidate[:min(len(candidate), 32)]; commandShape.MatchString(candidate) && !used[candidate] {
			return candidate
		}
	}
	for n := 1; ; n++ {
		if candidate := "do" + strconv.Itoa(n); !used[candidate] {
			return candidate
		}
	}
}

// checkPublic refuses an address at which Telegram would find nobody. A stand-in on this machine finds also what is not https.
func checkPublic(address string) error {
	parsed, err := url.Parse(address)
	local := err == nil && parsed.Scheme == "http" && net.ParseIP(parsed.Hostname()).IsLoopback()
	if err != nil || parsed.Scheme != "https" && !local || parsed.Host == "" || parsed.RawQuery != "" {
		return errors.New("--webhook-url: use the public https address that leads to --listen, for example https://bot.example")
	}
	return nil
}
