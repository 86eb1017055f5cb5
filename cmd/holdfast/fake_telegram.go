package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
)

// fakeTelegramCommand serves the stand-in for the Bot API: bots in any language on one side, curl on the other.
type fakeTelegramCommand struct {
	Listen  string   `default:"127.0.0.1:8081" placeholder:"HOST:PORT" help:"Where to listen; port 0: any free one. Whoever reaches it can be anybody."`
	Token   []string `sep:"none" placeholder:"TOKEN" help:"A bot's token, such as 7000001:any; repeat the flag for several. Left out: any token is accepted."`
	Verbose bool     `help:"Show what bots call and are told, on standard error."`
}

func (c fakeTelegramCommand) Run(ctx context.Context, t *terminal) error {
	for _, token := range c.Token {
		if !fakeapi.ValidToken(token) {
			return errors.New("--token: use a number, a colon and anything behind it, such as 7000001:any")
		}
	}
	s := fakeapi.New(fakeapi.Options{Tokens: c.Token})
	defer s.Close()
	if err := s.Listen(c.Listen); err != nil {
		return err
	}
	if err := c.explain(s.URL, t); err != nil {
		return err
	}
	if c.Verbose {
		s.Follow(ctx, func(e fakeapi.Entry) { _, _ = fmt.Fprintln(t.notes, e) })
	}
	<-ctx.Done()
	return nil
}

// explain prints where bots call, and how to be the person.
func (fakeTelegramCommand) explain(address string, t *terminal) error {
	_, err := fmt.Fprintf(t.out, "listening on %s\n\nA bot calls %s/bot<token>/<method>: give it this address in place of https://api.telegram.org.\nYou are the person, for example:\n\n"+
		"curl -s %s/sim/chats/42/messages -d '{\"text\": \"/start\"}'\ncurl -s %s/sim/chats/42\n\n", address, address, address, address)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	for _, route := range fakeapi.SimRoutes() {
		method, path, _ := strings.Cut(route.Route, " ")
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", method, path, route.Does)
	}
	return table.Flush()
}
