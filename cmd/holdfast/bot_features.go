package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/internal/fakeprovider"
	"github.com/holdfast-dev/holdfast/jobs"
	"github.com/holdfast-dev/holdfast/jobs/openai"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/telegram"
)

// modelProvider is who does the work.
type modelProvider struct {
	client *openai.Client
}

// provider is the one that the command line names. Without one, work is rehearsed: a stand-in on this machine answers with
// the person's own words, so that everything around a model can be tried. It serves a stand-in for Telegram only.
func (h *botHouse) provider() (*modelProvider, func(), error) {
	c := h.command
	client := &openai.Client{
		URL: c.ProviderURL, Key: c.ProviderKey, RemembersKeys: c.Remembers,
		Provider: jobs.Provider{Client: &http.Client{}, Logger: h.log}, // every job has its own deadline
	}
	if c.ProviderURL != "" {
		return &modelProvider{client}, func() {}, nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, fmt.Errorf("rehearse: %w", err)
	}
	server := &http.Server{Handler: &fakeprovider.Provider{Latency: rehearsalTakes}, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	client.URL = "http://" + listener.Addr().String() + "/v1"
	client.RemembersKeys = true
	h.log.Warn("no model provider is named: answers are rehearsed, and say what they were asked")
	return &modelProvider{client}, func() { _ = server.Close() }, nil
}

// rehearsalTakes is long enough to see the status message and to press Cancel.
const rehearsalTakes = 2 * time.Second

// feature is what people can ask for, and how it is done.
func (h *botHouse) feature(project string, o offer, provider *modelProvider) telegram.Feature {
	feature := telegram.Feature{Name: o.name, Command: o.Command, Concurrency: h.command.AtOnce, Action: "typing"}
	if o.Kind == imageKind {
		feature.Action = "upload_photo"
		feature.Do = func(ctx context.Context, work *telegram.Work) (telegram.Result, error) {
			return provider.picture(ctx, o, work)
		}
		return feature
	}
	feature.Do = func(ctx context.Context, work *telegram.Work) (telegram.Result, error) {
		return provider.text(ctx, o, work)
	}
	feature.Ask = func(_ context.Context, turn *telegram.Turn) (telegram.Ask, error) { return h.askText(project, o, turn) }
	return feature
}

// askText says what a text is asked for, and, where its price is by usage, how much that can be at most.
func (h *botHouse) askText(project string, o offer, turn *telegram.Turn) (telegram.Ask, error) {
	ask := telegram.Ask{Text: turn.Argument}
	if ask.Text == "" {
		return ask, &telegram.Decline{Text: turn.Text(message.AskWithWords, nil)}
	}
	if feature, ok := h.catalogs.of(project).Feature(o.name); ok && feature.ByUsage() {
		ask.Usage = o.atMost(ask.Text)
	}
	return ask, nil
}

// frameTokens is what a chat's form takes around its messages.
const frameTokens = 64

// atMost bounds the usage of a chat: no tokenizer makes more tokens of a text than it has bytes.
func (o offer) atMost(words string) map[string]holdfast.Amount {
	return map[string]holdfast.Amount{
		openai.InputToken: holdfast.Amount(len(o.Prompt) + len(words) + frameTokens), openai.OutputToken: holdfast.Amount(o.MaxTokens),
	}
}

// text has a model write.
func (p *modelProvider) text(ctx context.Context, o offer, work *telegram.Work) (telegram.Result, error) {
	chat := openai.Chat{Model: o.Model, MaxTokens: o.MaxTokens}
	if o.Prompt != "" {
		chat.Messages = append(chat.Messages, openai.Message{Role: "system", Content: o.Prompt})
	}
	chat.Messages = append(chat.Messages, openai.Message{Role: "user", Content: work.Prompt.Text})
	answer, err := p.client.Chat(ctx, work.Job, chat)
	if err != nil {
		return telegram.Result{}, err
	}
	if work.Reservation.Price.ByUsage() {
		usage := answer.Usage
		if usage == nil { // it was not told: less than it was, rather than more
			usage = map[string]holdfast.Amount{
				openai.InputToken: tokensAtLeast(o.Prompt + work.Prompt.Text), openai.OutputToken: tokensAtLeast(answer.Text),
			}
		}
		work.Use(usage)
	}
	return telegram.Result{Text: answer.Text}, nil
}

// tokensAtLeast is about how many tokens a text has where they are long.
func tokensAtLeast(text string) holdfast.Amount {
	return holdfast.Amount(utf8.RuneCountInString(text) / 6)
}

// picture has a model draw.
func (p *modelProvider) picture(ctx context.Context, o offer, work *telegram.Work) (telegram.Result, error) {
	made, err := p.client.Image(ctx, work.Job, openai.Image{Model: o.Model, Prompt: work.Prompt.Text, Size: o.Size})
	if err != nil {
		return telegram.Result{}, err
	}
	if len(made.Pictures) == 0 {
		return telegram.Result{}, jobs.Fail(openai.CauseUnusable, errors.New("there is no picture"))
	}
	picture := made.Pictures[0]
	return telegram.Result{Photo: picture.Data, PhotoURL: picture.URL}, nil
}
