package botapi

import (
	"context"
	"encoding/json"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"
)

// Raw is an update as Telegram has sent it: with what this version does not know, too.
type Raw = json.RawMessage

// PollAtMost is the longest time that Telegram lets a poll wait.
const PollAtMost = 50 * time.Second

// Command is a command that the app shows in the bot's menu.
type Command struct{ Name, Description string }

// Webhook is where Telegram sends updates.
type Webhook struct {
	URL            string   // https
	Secret         string   // comes with every update, in X-Telegram-Bot-Api-Secret-Token; A-Z a-z 0-9 _ -
	Allowed        []string // kinds of updates; nil: as before
	MaxConnections int      // 0: Telegram's default
}

// WebhookInfo is how Telegram's deliveries go.
type WebhookInfo struct {
	URL         string // empty: none is set
	Pending     int
	LastErrorAt time.Time // zero: there was none
	LastError   string
	Allowed     []string
}

// Me says which bot this is.
func (c *Client) Me(ctx context.Context) (id int64, username string, err error) {
	err = c.do(ctx, call{method: "getMe", repeat: true}, func(ctx context.Context, _ Chat) error {
		me, err := c.bot.GetMe(ctx)
		if err == nil {
			id, username = me.ID, me.Username
		}
		return err
	})
	return id, username, err
}

// SetCommands sets the menu for those whose app is in a language; "": for all others.
func (c *Client) SetCommands(ctx context.Context, language string, commands []Command) error {
	params := &bot.SetMyCommandsParams{LanguageCode: language}
	for _, command := range commands {
		params.Commands = append(params.Commands, models.BotCommand{Command: command.Name, Description: command.Description})
	}
	return c.do(ctx, call{method: "setMyCommands", repeat: true}, func(ctx context.Context, _ Chat) error {
		_, err := c.bot.SetMyCommands(ctx, params)
		return err
	})
}

// SetWebhook has updates sent to an address, from now on.
func (c *Client) SetWebhook(ctx context.Context, w Webhook) error {
	params := &bot.SetWebhookParams{URL: w.URL, SecretToken: w.Secret, AllowedUpdates: w.Allowed, MaxConnections: w.MaxConnections}
	return c.do(ctx, call{method: "setWebhook", repeat: true}, func(ctx context.Context, _ Chat) error {
		_, err := c.bot.SetWebhook(ctx, params)
		return err
	})
}

// DeleteWebhook has updates wait for Updates. None is dropped.
func (c *Client) DeleteWebhook(ctx context.Context) error {
	return c.do(ctx, call{method: "deleteWebhook", repeat: true}, func(ctx context.Context, _ Chat) error {
		_, err := c.bot.DeleteWebhook(ctx, &bot.DeleteWebhookParams{})
		return err
	})
}

// WebhookInfo asks how deliveries go.
func (c *Client) WebhookInfo(ctx context.Context) (info WebhookInfo, err error) {
	err = c.do(ctx, call{method: "getWebhookInfo", repeat: true}, func(ctx context.Context, _ Chat) error {
		read, err := c.bot.GetWebhookInfo(ctx)
		if err != nil {
			return err
		}
		info = WebhookInfo{URL: read.URL, Pending: read.PendingUpdateCount, LastError: read.LastErrorMessage, Allowed: read.AllowedUpdates}
		if read.LastErrorDate > 0 {
			info.LastErrorAt = time.Unix(int64(read.LastErrorDate), 0).UTC()
		}
		return nil
	})
	return info, err
}

// Updates waits until there are updates from offset on, at most as long as the timeout, and returns them, up to 100. It
// confirms those before offset: Telegram forgets them. It asks once; ErrConflict, and what every call may return.
func (c *Client) Updates(ctx context.Context, offset int64, timeout time.Duration, allowed []string) (updates []Raw, err error) {
	timeout = min(timeout, PollAtMost).Truncate(time.Second)
	arguments := map[string]any{"offset": offset, "limit": 100, "timeout": int(timeout / time.Second)}
	if allowed != nil {
		arguments["allowed_updates"] = allowed
	}
	err = c.once(ctx, call{method: "getUpdates", within: timeout + callWithin}, func(ctx context.Context, _ Chat) error {
		return c.send.raw(ctx, "getUpdates", arguments, &updates)
	})
	return updates, err
}
